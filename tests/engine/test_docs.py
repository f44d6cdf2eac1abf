"""What the pages show in Python runs as written, and refusals say what the page says."""

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import test_refusals
import torch
from gaussians import batches, gaussian, private

from leakbound import GuaranteeError
from leakbound.channels import Natural, White, population_moments
from leakbound.randomness.seeding import torch_generator
from leakbound.randomness.sources import SeededNoise
from test_docs_names import PAGES, named

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/your_loop.md").read_text(encoding="utf-8")
CODE = r"^```(?:py(?:thon)?\n|\{code-cell\}).*?^```"
SHOWN = {
    f"{named(path)} {number}": block
    for path in PAGES
    for number, block in enumerate(re.findall(CODE, path.read_text("utf-8"), re.M | re.S), 1)
}
# Blocks that need more than a namespace: a piece of theirs, and the test that runs them.
ELSEWHERE = {
    "dist.init_process_group": "engine/test_ranks.py::test_the_loop_of_several_processes_runs_as_its_page_shows_it",
    "load_run": "workflow/test_chain.py::test_a_finished_run_comes_back_to_python_as_the_networks_of_its_curves",
    "{code-cell}": "test_wheel.py::test_hosted_notebooks_run_with_the_wheel_alone",
}


@pytest.mark.parametrize(
    "place", [place for place, block in SHOWN.items() if not any(piece in block for piece in ELSEWHERE)]
)
def test_blocks_run_as_written(place, capsys, monkeypatch, tmp_path):
    """And a line whose comment begins with numbers has these values."""
    monkeypatch.chdir(tmp_path)  # a ledger is made there
    moments = population_moments(gaussian(400))
    rows = gaussian(60, 3)
    names = {
        **{"public": gaussian(400), "loader": batches(private()), "epochs": 2, "moments": moments},
        "patients": np.arange(20) % 7,
        "train_step": lambda images, labels: torch.isfinite(images).all(),
        **{"channel": Natural.calibrate(Natural.decompose(moments), 2.0), "counts": np.arange(500) % 3},
        "other": White.calibrate(White.decompose(moments), 1.0),
        **{"public_rows": gaussian(400), "rows": rows, "classes": rows[:, 0] > 1},
        **{"private": rows, "encode": lambda records: records @ np.eye(rows.shape[1])},
        **{"self": SimpleNamespace(level=0.1), "gradient": torch.zeros(6)},
        **{"source": SeededNoise(torch_generator(0, "page")), "__name__": "page"},
    }
    page, number = place.split()
    first = 1 if page == "docs/extending.md" else int(number)  # its blocks build on each other
    needed = [SHOWN[f"{page} {one}"].splitlines()[1:-1] for one in range(first, int(number) + 1)]
    block = "\n".join(line for lines in needed for line in lines)
    for node in ast.parse(block).body:
        if not isinstance(node, ast.Expr):
            exec(compile(ast.Module([node], []), place, "exec"), names)
            continue
        value = eval(compile(ast.Expression(node.value), place, "eval"), names)
        comment = block.splitlines()[node.end_lineno - 1].partition("  # ")[2]
        for one, said in zip(np.ravel(value), comment.split(", "), strict=False):
            if one is not None and (number := re.match(r"-?\d+(?:\.(\d+))?", said)):
                assert f"{one:.{len(number[1] or '')}f}" == number[0]
    if "print(" in block:
        assert capsys.readouterr().out


def test_blocks_that_are_not_run_here_are_run_by_the_tests_that_are_listed():
    for piece, test in ELSEWHERE.items():
        file, _, name = test.partition("::")
        assert any(piece in block for block in SHOWN.values())
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors")
def test_refusals_say_what_the_page_says():
    table = PAGE.partition("## Refused")[2].partition("## Accounts")[0]
    shown = [row.split(" | ")[1].removesuffix(" |") for row in table.splitlines() if row.startswith("| ")][2:]
    said = set()
    for wrong, _ in (*test_refusals.WRONG.values(), (spent, "")):
        with pytest.raises(GuaranteeError) as caught:
            wrong()
        said.add(str(caught.value))
    assert len(shown) >= 10
    assert set(shown) <= said


def spent() -> None:
    data = test_refusals.engine_of().protect(private())
    for _ in range(3):
        _ = data[0]
