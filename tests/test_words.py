"""Words that the glossary avoids do not come back: none in the pages, and in the sources fewer and fewer.

``python tests/test_words.py`` prints what is counted today, to lower ``AT_MOST`` by.
"""

import ast
import re
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Avoided:
    """A way to say something that the glossary does not use.

    Attributes:
        name: Of the pattern, in ``AT_MOST``.
        pattern: Regular expression, matched without regard to case.
        instead: What to write.
    """

    name: str
    pattern: str
    instead: str


PROSE = (
    Avoided("tell", r"\b(tells?|told|telling)\b(?! (?:apart|whether))", "leak or reveal (a release), say (a person)"),
    Avoided("tell apart", r"\b(tells?|told) apart\b", "distinguish"),
    Avoided("let through", r"\blets? (?:\w+ ){0,3}through\b(?! of)", "reveal"),
    Avoided("anew", r"\banew\b", "again, from scratch"),
    Avoided("beside", r"\bbeside\b", "next to, in addition to, besides"),
    Avoided("what leaves", r"\bwhat leaves\b|\bleaves as it is\b|\bgiven out\b", "release"),
    Avoided("nobody's secret", r"\bnobody's\b", "public"),
    Avoided("law", r"\blaws?\b", "distribution"),
    Avoided("look", r"\blooks?\b(?! (?:at|up|for|like)\b)", "use (of a record)"),
    Avoided("naming", r"\bnaming\b|\bnames? (?:itself|members|the (?:right|true))", "identification, identifies"),
)
IDENTIFIERS = (
    *("found", "one", "own", "known", "told", "some", "asked"),
    *("looks", "look", "named", "way", "things", "given"),
)
# Pages that others write or that are generated from texts which are counted below.
NOT_HERE = {"figures.md", "changelog.md", "conf.py"}
# What may stay, and why: a file, a piece of its text, the reason.
ALLOWED = (
    ("glossary.md", "", "the page lists the words that it avoids"),
    ("privacy-statement.md", "capacity under the members' law", "the name of an item in provenance files"),
)
# Occurrences in the sources, of all other words none. A number may only fall.
AT_MOST: dict[str, dict[str, int]] = {
    "docstrings": {"tell": 1, "law": 4, "look": 11, "naming": 6, "semicolon": 16},
    "texts": {"tell": 4, "nobody's secret": 1, "law": 6, "look": 10, "naming": 14},
    "captions": {"tell": 1, "let through": 1, "beside": 7, "naming": 25},
    "identifiers": {"own": 1, "known": 3},
}


def pages() -> list[Path]:
    """The README and the pages of the documentation that are written by hand."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if path.name not in NOT_HERE and path.parent.name != "figures"]


def prose(text: str) -> str:
    """A page without code: blocks, words in backquotes, targets of links. Lines stay where they are."""
    text = re.sub(r"^```.*?^```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`|\]\([^)\s]*\)", "", text)


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_say_it_in_the_words_of_the_glossary(path):
    allowed = [piece for name, piece, _ in ALLOWED if name == path.name]
    if "" in allowed:
        return
    wrong = []
    for number, line in enumerate(prose(path.read_text(encoding="utf-8")).splitlines(), 1):
        for piece in allowed:
            line = line.replace(piece, "")
        for avoided in PROSE:
            for match in re.finditer(avoided.pattern, line, re.IGNORECASE):
                wrong.append(f"{path.name}:{number}: {match[0]!r}; say {avoided.instead}")
    assert not wrong, "\n".join(wrong)


@cache
def sources() -> dict[str, list[str]]:
    """All that the sources say: docstrings, other texts (messages, help, labels), names that are bound, captions."""
    docstrings: list[str] = []
    texts: list[str] = []
    identifiers: list[str] = []
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for path in sorted((ROOT / "src").rglob("*.py")):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        described = [node for node in nodes if isinstance(node, documented) and ast.get_docstring(node)]
        docstrings += [str(ast.get_docstring(node)) for node in described]
        first = {id(node.body[0].value) for node in described if isinstance(node.body[0], ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in first:
                texts.append(node.value)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                identifiers.append(node.id)
            elif isinstance(node, ast.arg):
                identifiers.append(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ClassDef):
                identifiers.append(node.name)
    captions = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "config").rglob("*.yaml"))]
    return {"docstrings": docstrings, "texts": texts, "identifiers": identifiers, "captions": captions}


@cache
def counted() -> dict[str, dict[str, int]]:
    """Occurrences of each avoided word, by place; docstrings with a semicolon as well."""
    counts: dict[str, dict[str, int]] = {}
    for place in ("docstrings", "texts", "captions"):
        joined = "\n".join(sources()[place])
        counts[place] = {one.name: len(re.findall(one.pattern, joined, re.IGNORECASE)) for one in PROSE}
    counts["docstrings"]["semicolon"] = sum(";" in text for text in sources()["docstrings"])
    bound = Counter(name.strip("_") for name in sources()["identifiers"])
    counts["identifiers"] = {name: bound[name] for name in IDENTIFIERS}
    return counts


@pytest.mark.parametrize("place", ["docstrings", "texts", "captions", "identifiers"])
def test_sources_use_an_avoided_word_no_more_often_than_before(place):
    said = {avoided.name: avoided.instead for avoided in PROSE} | {"semicolon": "it in two sentences"}
    more = [
        f"{word}: {number} in {place}, at most {most}; say {said.get(word, 'its type or its role')}"
        for word, number in counted()[place].items()
        if number > (most := AT_MOST[place].get(word, 0))
    ]
    assert not more, "\n".join(more)


def test_terms_of_the_glossary_stand_once():
    text = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
    terms = [row.split("|")[1].strip() for row in text.partition("## Letters")[0].splitlines() if row.startswith("| ")]
    terms = [term for term in terms if term not in {"term", "---"}]
    assert len(terms) >= 60
    assert [term for term, times in Counter(terms).items() if times > 1] == []


if __name__ == "__main__":
    import pprint

    pprint.pp(counted(), width=120)
