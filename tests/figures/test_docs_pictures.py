"""What the opening pages show is what came out: drawn pictures of docs/concepts.md, and numbers of the README."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"


def texts(path: Path) -> list[str]:
    """All that a picture says: labels, and numbers beside curves."""
    return re.findall(r"<text [^>]*>([^<]+)</text>", path.read_text(encoding="utf-8"))


def test_pictures_of_the_concepts_say_what_their_script_computes(tmp_path):
    script = runpy.run_path(str(PICTURES / "draw.py"))
    script["draw"](tmp_path)
    names = sorted(path.name for path in PICTURES.glob("*.svg"))
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    for name in names:
        found = texts(tmp_path / name)
        assert found == texts(PICTURES / name)
        assert any(re.search(r"\d", text) for text in found)
    shown = (PICTURES.parent / "concepts.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"\(pictures/(\w+\.svg)\)", shown)) == names
    assert texts(PICTURES / "capacity_leakage_error.svg").count("56") == 1  # that page tells this number
    assert "average 4.06" in texts(PICTURES / "average_and_every_record.svg")
