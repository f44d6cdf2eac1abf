"""What the page and the README show runs as written, and refusals say what the page says."""

import re
from pathlib import Path

import numpy as np
import pytest
import test_refusals
import torch
from gaussians import batches, gaussian, private

from leakbound import GuaranteeError
from leakbound.channels import Natural, White, population_moments

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/your_loop.md").read_text(encoding="utf-8")


def blocks(text: str) -> list[str]:
    return re.findall(r"```py\n(.*?)```", text, re.S)


SHOWN = [PAGE, *((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/start.md"))]


@pytest.mark.parametrize("block", [block for page in SHOWN for block in blocks(page)])
def test_blocks_run_as_written(block, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # a ledger is made there
    moments = population_moments(gaussian(400))
    rows = gaussian(60, 3)
    names = {
        **{"public": gaussian(400), "loader": batches(private()), "epochs": 2, "moments": moments},
        "train_step": lambda images, labels: torch.isfinite(images).all(),
        **{"channel": Natural.calibrate(Natural.decompose(moments), 2.0), "counts": np.arange(500) % 3},
        "other": White.calibrate(White.decompose(moments), 1.0),
        **{"public_rows": gaussian(400), "rows": rows, "classes": rows[:, 0] > 1},
        **{"private": rows, "encode": lambda records: records @ np.eye(rows.shape[1])},
    }
    exec(compile(block, "page", "exec"), names)
    if "print" in block:
        assert capsys.readouterr().out


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
