"""What the pages refer to exists: links and their sections, names in the package, files, make targets."""

import importlib.util
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "src" / "leakbound", ROOT / "src" / "leakbound_lab")
PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "changelog.md"),
]
NOW = [path for path in PAGES if path.name != "CHANGELOG.md"]
BY_HAND = [path for path in NOW if path.name != "figures.md" and path.parent.name != "figures"]
SUFFIXES = (".py", ".csv", ".smk", ".sh", ".cff", ".lock", ".yaml", ".yml", ".toml", ".css")
FOLDERS = (
    *("src/", "tests/", "tools/", "docs/", "config/", "examples/", "workflow/", "profiles/"),
    *("results/reference/", ".ci/"),
)
# What a command of the page makes, and what its reader writes.
MADE = {
    "results/reference/gpu",
    "results/compare_mine/compare.yaml",
    "results/compare_mine/decision.html",
    "mine/config.yaml",
    "mine/figures/mine.yaml",
}


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def code(text: str) -> list[str]:
    """Pieces of a page that are set as code: words in backquotes and lines of blocks."""
    text = re.sub(r" *\\\n *", " ", text)  # a command may go on in the next line
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    words = (" ".join(piece.split()) for piece in re.findall(r"`([^`]+)`", rest))
    return [*words, *(line for block in blocks for line in block.splitlines())]


@cache
def sections(path: Path) -> frozenset[str]:
    """Names by which links reach the sections of a page, as GitHub and MyST make them of headings."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#{1,6} +(.+?) *$", text, re.MULTILINE)
    plain = [re.sub(r"`|\*|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    slugs = [re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain]
    return frozenset([*slugs, *re.findall(r'<a id="([^"]+)"></a>', text)])


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_to_files_and_sections_that_are_there(path):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, section = target.partition("#")
        goal = (path.parent / file).resolve() if file else path
        if not goal.exists():
            wrong.append(f"{target}: no such file")
        elif section and goal.suffix == ".md" and section not in sections(goal):
            wrong.append(f"{target}: no such section")
    assert not wrong, "\n".join(wrong)


def missing(dotted: str) -> str | None:
    """First part of a dotted name in the package that is not there; None if all is."""
    place: Any = importlib.import_module(dotted.split(".")[0])
    for end, word in enumerate(dotted.split(".")[1:], 2):
        if hasattr(place, "__path__") and importlib.util.find_spec(name := ".".join(dotted.split(".")[:end])):
            try:
                importlib.import_module(name)  # which makes it an attribute
            except ModuleNotFoundError:
                return None  # of a framework that has an environment of its own
        if not hasattr(place, word):
            return None if word in getattr(place, "__annotations__", ()) else word
        place = getattr(place, word)
    return None


@pytest.mark.parametrize("path", NOW, ids=named)
def test_names_in_the_package_files_and_make_targets_exist(path):
    pieces = code(path.read_text(encoding="utf-8"))
    dotted = {name for piece in pieces for name in re.findall(r"leakbound(?:_lab)?(?:\.\w+)+", piece)}
    files = {name for name in dotted if re.search(r"\.(?:model|toml|txt|whl|db)$", name)}  # an entry point, a file
    assert {name: part for name in dotted - files if (part := missing(name)) is not None} == {}
    words = {
        word.rstrip(".,:;)").partition("::")[0]
        for piece in pieces
        for word in re.findall(r"(?<![\w<>*{}$/.-])[\w.][\w./-]*(?:::\w+)?(?![\w<>*{}$/-])", piece)
    }
    files = {word for word in words if "/" in word and (word.endswith(SUFFIXES) or word.startswith(FOLDERS))}
    places = (ROOT, *PACKAGES, ROOT / "docs", path.parent)
    assert sorted(word for word in files - MADE if not any((place / word).exists() for place in places)) == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {name for piece in pieces for name in re.findall(r"(?:^|&& |-- )make ([a-z][a-z-]*)", piece)}
    assert asked - targets == set()


NATS = r"\b(?:nats|capacity|leakage|κ)\b[^.|]{0,100}\b(?:about|per)\W+(?:a|one|each|any|that)\W+record\b"


@pytest.mark.parametrize("path", BY_HAND, ids=named)
def test_a_paragraph_with_nats_about_a_record_says_that_they_are_an_average(path):
    paragraphs = re.split(r"\n\n|\n(?=(?:\* |- |\d+\. |\| ))", path.read_text(encoding="utf-8"))
    stated = [text for text in map(" ".join, map(str.split, paragraphs)) if re.search(NATS, text)]
    assert [text for text in stated if not re.search(r"\baverages?\b|\bmean\b|\bDP\b", text)] == []


def test_navigation_is_by_need_and_holds_every_page():
    index = (ROOT / "docs/index.md").read_text("utf-8")
    assert re.findall(r"^:caption: (.*)$", index, re.MULTILINE) == ["Tutorial", "How to", "Explanation", "Reference"]
    listed = {name for block in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL) for name in block.split("\n")}
    pages = {str(path.relative_to(ROOT / "docs").with_suffix("")) for path in (ROOT / "docs").glob("*.md")}
    assert pages - {"index"} <= listed
