"""What the pages refer to exists: links and their sections, names in the package, files, make targets, commands."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "leakbound"
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md")),
    *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.name != "changelog.md"),
]
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
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return [*re.findall(r"`([^`\n]+)`", rest), *(line for block in blocks for line in block.splitlines())]


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


@cache
def bound(path: Path) -> frozenset[str]:
    """Names that a module binds anywhere: functions, classes, attributes, imports, and what it lists to export."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path.name == "__init__.py":
            names.add(node.value)
    return frozenset(names)


def defined(path: Path) -> frozenset[str]:
    """Names that a module defines itself; a package also those that it passes on."""
    if path.name == "__init__.py":
        return bound(path)
    body = ast.parse(path.read_text(encoding="utf-8")).body
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return functions | {n.id for node in body for n in ast.walk(node) if isinstance(n, ast.Name) and is_set(n)}


def is_set(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def missing(dotted: str) -> str | None:
    """First part of a dotted name below the package that is not there; None if all is."""
    folder, words = PACKAGE, dotted.split(".")[1:]
    while words and (folder / words[0]).is_dir():
        folder /= words.pop(0)
    module = folder / "__init__.py"
    if words and (folder / f"{words[0]}.py").is_file():
        module = folder / f"{words.pop(0)}.py"
    if words and words[0] not in defined(module):
        return words[0]
    everywhere = [bound(path) for path in PACKAGE.rglob("*.py")]  # attributes may be inherited
    return next((word for word in words[1:] if not any(word in names for names in everywhere)), None)


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=named)
def test_names_in_the_package_exist(path):
    found = {
        name for piece in code(path.read_text(encoding="utf-8")) for name in re.findall(r"leakbound(?:\.\w+)+", piece)
    }
    files = {name for name in found if re.search(r"\.(?:model|toml|txt|whl|db)$", name)}  # an entry point, a file
    wrong = {name: missing(name) for name in found - files}
    assert {name: part for name, part in wrong.items() if part is not None} == {}


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=named)
def test_files_that_are_named_exist(path):
    words = {
        word.rstrip(".,:;)").partition("::")[0]
        for piece in code(path.read_text(encoding="utf-8"))
        for word in re.findall(r"(?<![\w<>*{}$/.-])[\w.][\w./-]*(?:::\w+)?(?![\w<>*{}$/-])", piece)
    }
    files = {word for word in words if "/" in word and (word.endswith(SUFFIXES) or word.startswith(FOLDERS))}
    places = (ROOT, PACKAGE, ROOT / "docs", path.parent)
    assert sorted(word for word in files - MADE if not any((place / word).exists() for place in places)) == []


@pytest.mark.parametrize("path", [path for path in PAGES if path.name != "CHANGELOG.md"], ids=named)
def test_make_targets_and_commands_exist(path):
    pieces = code(path.read_text(encoding="utf-8"))
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    asked = {name for piece in pieces for name in re.findall(r"(?:^|&& |-- )make ([a-z][a-z-]*)", piece)}
    assert asked - targets == set()
    steps = {file.stem.replace("_", "-") for file in (PACKAGE / "cli" / "steps").glob("*.py")}
    commands = bound_texts(PACKAGE / "cli" / "command_table.py") | {"step"}
    called = {words for piece in pieces for words in re.findall(r"(?:^|\$ )leakbound (step )?([a-z][a-z-]*)", piece)}
    assert {name for step, name in called if name not in (steps if step else commands)} == set()


def bound_texts(path: Path) -> set[str]:
    """Texts of a module that are one word."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_each_walk_has_ten_lines():
    text = (ROOT / "docs" / "development.md").read_text(encoding="utf-8")
    walks = re.findall(r"^\*\*(An? [^\n*]+)\*\*[^\n]*:\n\n((?:\d+\. [^\n]+\n)+)\n", text, re.MULTILINE)
    numbers = {name: re.findall(r"^(\d+)\.", lines, re.MULTILINE) for name, lines in walks}
    names = ("An image", "A level", "A seed", "A row of an attack")
    assert numbers == {name: [*map(str, range(1, 11))] for name in names}
