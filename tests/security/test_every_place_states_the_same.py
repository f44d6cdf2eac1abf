"""Every place that prints a bound of a run prints that run's statement: MLflow, report, commands, published pages."""

import ast
import html
import json
import math
import re
from pathlib import Path

import pytest
from chain import ROOT, run_jobs, small_study
from mlflow import MlflowClient

from calling import called, succeeded
from leakbound import storage
from leakbound.accounting.risk import bound_text
from leakbound.accounting.statement import KINDS, Statement, state
from leakbound_lab.figures.report.overview import bounds_of_runs, bounds_table
from leakbound_lab.jobs.paths import output
from leakbound_lab.steps.results import composed
from leakbound_lab.tracking.measurements import BRIEF

ARMS = {"none": [], "natural": [4.0], "natural_frozen": [4.0], "dpsgd": [1.0]}
STEPS = {"prepare", "covariance", "spectrum", "calibrate", "train", "log"}
NOISE = ("seeded", "secure")
BOUNDED = ("natural-4", "natural_frozen-4", "dpsgd-1")
OLD = re.compile(r"reveals? at most [\d.]+ nats")


@pytest.fixture(scope="module", params=NOISE)
def chain(request, tmp_path_factory):
    """Root, jobs and runs in MLflow by slug, of one configuration with noise of each origin."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp(request.param)
        config = small_study(
            request.param, "mlp", ARMS, replicas=2, privacy_noise=request.param, tracking={"enabled": True}
        )
        root, made = run_jobs(folder, config, patch, STEPS)
        client = MlflowClient(f"sqlite:///{folder}/results/mlflow.db")
        (experiment,) = (one for one in client.search_experiments() if one.name.endswith("/digits"))
        runs = client.search_runs([experiment.experiment_id], "tags.replica IS NULL")
        yield request.param, root, made, {run.data.tags["slug"]: run.data for run in runs}


def provenance(root: Path, arm: str) -> dict:
    return storage.read_json(root / f"runs/digits/mlp/{arm}/n5-b16/provenance.json")


def statements(root: Path, arm: str) -> dict[str, Statement]:
    return {of: Statement.from_numbers(each) for of, each in provenance(root, arm)["statement"].items()}


@pytest.mark.slow
def test_tags_metrics_and_paragraphs_of_mlflow_are_those_of_the_statement(chain):
    noise, root, _, runs = chain
    for arm in ("none", *BOUNDED):
        said, run = statements(root, arm), runs[f"digits/mlp/{arm}/n5-b16"]
        for of, each in said.items():
            assert run.tags[f"bound_{of}"] == each.sentence
            assert each.sentence in run.tags["mlflow.note.content"]
            assert run.tags[f"bound_{of}_noise"] == ("secure" if noise == "secure" and arm != "none" else "seeded")
            expected = {name.replace("/", f"/{of}/"): value for name, value in each.metrics().items()}
            groups = tuple(f"{kind}/{of}/" for kind in KINDS)
            shown = {name: value for name, value in run.metrics.items() if name.startswith(groups)}
            assert shown == pytest.approx(expected)
        for name, value in said["replica"].metrics().items():
            assert run.metrics[f"{BRIEF}/{name.replace('/', '_')}"] == float(bound_text(value))
        # No number of a bound has a name that does not come from a statement.
        left = {name for name in run.metrics if re.search(r"nats|epsilon|leak|bound", name)}
        prefixes = (
            "stated_bound/",
            "if_noise_were_secret/",
            f"{BRIEF}/stated_bound_",
            f"{BRIEF}/if_noise_were_secret_",
        )
        assert [name for name in left if not name.startswith(prefixes)] == []
        if noise == "seeded":
            assert not any("stated_bound" in name for name in run.metrics)
            texts = [*run.tags.values(), *run.params.values()]
            assert not [text for text in texts if OLD.search(text)]


@pytest.mark.slow
def test_curves_end_at_the_bound_that_they_lead_to(chain):
    _, root, _, runs = chain
    for arm in BOUNDED:
        metrics = runs[f"digits/mlp/{arm}/n5-b16"].metrics
        (ends,) = {value for name, value in metrics.items() if "/so_far/nats" in name}
        assert ends <= statements(root, arm)["replica"].values * (1 + 1e-9)


@pytest.mark.slow
def test_account_prints_the_statement_as_text_and_as_json(chain):
    noise, root, _, _ = chain
    for arm in BOUNDED:
        file, said = root / f"runs/digits/mlp/{arm}/n5-b16/provenance.json", statements(root, arm)
        text = succeeded("account", file).out
        assert [each.sentence for each in said.values()] == text.splitlines()[:2]
        assert ("would hold if the noise were secret" in text) == (noise == "seeded")
        numbers = json.loads(succeeded("account", file, "--json").out)
        assert numbers["statement"] == provenance(root, arm)["statement"]
        assert [row["joint"] for row in numbers["replay"]] == [each.values for each in said.values()]
        assert [row["record"] for row in numbers["replay"]] == pytest.approx([each.nats for each in said.values()])


@pytest.mark.slow
def test_report_has_the_short_form_of_each_run_and_of_all_of_a_dataset(chain):
    noise, root, made, _ = chain
    told = composed(root, made)
    lines = {line[0]: line[2:] for line in bounds_of_runs({"leakage": told})}
    for arm in ("none", *BOUNDED):
        assert lines[f"digits/mlp/{arm}/n5-b16"] == [each.short for each in statements(root, arm).values()]
    (line,) = bounds_table({"leakage": told})
    assert line[3] == Statement.from_numbers(told["digits"]["dp"]).short
    assert line[3].startswith("no bound: noise from a seed") == (noise == "seeded")
    together = Statement.from_numbers(told["digits"]["statement"])
    assert not together.derived  # a run without a defense has no bound
    assert "1 jobs have no bound" in together.sentence


@pytest.mark.slow
def test_published_page_has_the_sentences_or_nothing_is_published(chain, tmp_path, monkeypatch):
    noise, root, _, _ = chain
    monkeypatch.chdir(root.parents[1])
    for arm in BOUNDED:
        out = tmp_path / f"{noise}-{arm}"
        sheet = tmp_path / f"{noise}-{arm}.html"
        done = called("publish", f"digits/mlp/{arm}/n5-b16", "--out", out, "--statement", sheet)
        if noise == "seeded":
            assert done.code == 2
            assert not out.exists()
            assert not sheet.exists()
            continue
        page, published = (out / "README.md").read_text(), json.loads((out / "statement.json").read_text())
        said = statements(root, arm)
        assert said["replica"].sentence in page
        assert published["statement"] == said["replica"].numbers()
        assert Statement.from_numbers(published["statements"][-1]).sentence in page
        facts = json.loads(sheet.with_suffix(".json").read_text())
        assert [Statement.from_numbers(bound) for bound in facts["bounds"]] == [
            Statement.from_numbers(each) for each in (published["statement"], published["statements"][-1])
        ]
        assert facts["data"]["records"] == provenance(root, arm)["events"][0]["population"]
        assert facts["data"]["digest"] == storage.read_json(output(root, "prepare", "digits", "provenance"))["content"]
        assert html.escape(said["replica"].sentence) in sheet.read_text()


@pytest.mark.parametrize("options", [(), ("--seed", 1)], ids=["secure", "seeded"])
def test_protect_prints_and_writes_one_statement(options, tmp_path):
    import numpy as np

    values = np.random.default_rng(0).normal(size=(2, 80, 6)).astype(np.float32)
    for name, records in zip(("mine", "others"), values, strict=True):
        np.save(tmp_path / f"{name}.npy", records)
    words = (tmp_path / "mine.npy", "--public", tmp_path / "others.npy", "--kappa", 2, "--out", tmp_path / "out")
    done = succeeded("protect", *words, *options)
    written = json.loads((tmp_path / "out/protection.json").read_text())
    said = Statement.from_numbers(written["statement"])
    assert f"leakage          {said.sentence}" in done.out
    assert said.sentence == state("the noisy copies", added=said.values, secure=not options, labels="none").sentence
    assert said.nats == written["leakage"]["record"] == pytest.approx(2.0, rel=1e-6)
    assert said.bounded == (not options)


@pytest.mark.parametrize("owner", [(), ("--owner", "patient")], ids=["records", "owners"])
def test_calibrate_prints_for_each_shape_the_statement_of_its_json(owner, tmp_path):
    import numpy as np

    for name, seed in (("mine", 0), ("others", 1)):
        values = np.random.default_rng(seed).normal(size=(90, 6)).astype(np.float32)
        whose = np.repeat([f"{name}{number}" for number in range(30)], 3)
        np.savez(tmp_path / f"{name}.npz", records=values, labels=np.arange(90) % 3, patient=whose)
    words = ("calibrate", tmp_path / "mine.npz", "--public", tmp_path / "others.npz", "--kappa", 2, *owner)
    printed = succeeded(*words).out
    for row in json.loads(succeeded(*words, "--json").out)["shapes"]:
        said = Statement.from_numbers(row["statement"])
        assert f"leakage, {row['shape']}: {said.sentence}" in printed
        each = 3 if owner else 1
        assert (said.values, said.labels) == pytest.approx((2.0 * each, math.log(3) * each), rel=1e-6)
        assert (row["values"], row["record"]) == (said.values, said.nats)


NUMBERED = re.compile(
    r"at most [^.;]{0,60}#[^.;]{0,20}\bnats\b|# nats\b[^.;]{0,40}\b(about|of) (a|one|its|the|this) (record|owner)|"
    r"reveals?\b[^.;]{0,60}# nats\b|\bbound\b[^.;]{0,30}# nats\b|# nats [^.;]{0,30}revealed|ε = #",
    re.I,
)
"""A text with a number (#) that puts a bound into words."""
ELSEWHERE = {
    "statement.py": "the one place",
    "accountant.py": "what an engine plans and has counted, each with its average, labels and independence",
    "decision.txt": "nats of labels that were asked for, and what attacks have proven",
    "observed.py": "refusal: the own records' moments",
    "counting.py": "refusal: a plan that would be exceeded",
    "transformer.py": "refusal: a plan that would be exceeded",
    "ledger.py": "the noise that a file counts, with its nats for each use",
    "calibrate.py": "refusal: a channel that reveals more than was asked for, and the meaning of columns",
    "protect.py": "a number for the owner alone, which is no bound for others",
    "sheets.py": "the limit that was asked for",
    "analytic.py": "an axis of a closed form",
    "planes.py": "a mark of a figure",
    "series.py": "a mark of a figure",
    "opening.py": "what attacks have proven",
    "cases.py": "a closed form of a paper",
}
"""Files whose texts do, and why."""


def texts_with_numbers(path: Path) -> list[str]:
    """Texts of a file that people meet, with # for each value that is filled in."""
    if path.suffix != ".py":
        return [re.sub(r"\{\{.*?\}\}", "#", path.read_text(encoding="utf-8"))]

    def text(node: ast.expr) -> str:
        if isinstance(node, ast.JoinedStr):
            return "".join(map(text, node.values))
        if isinstance(node, ast.FormattedValue):
            return "# nats" if "in_nats(" in ast.unparse(node.value) else "#"
        return str(node.value)

    return [text(node) for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.JoinedStr)]


def test_no_other_place_puts_a_number_of_nats_or_epsilon_into_words_of_its_own():
    """A new place takes a form of the statement: ``sentence``, ``short`` or ``amount``."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("templates/*"), *(ROOT / "src").rglob("sheet.html")]
    found = {path.name for path in files for text in texts_with_numbers(path) if NUMBERED.search(text)}
    assert found == {*ELSEWHERE}
    for planted in ("it reveals at most # nats", "the bound is # nats", "# nats about one record", "ε = #"):
        assert NUMBERED.search(planted)


BARE = re.compile(
    r"leakage\(\)\.(record|joint|labels|average|dataset|linear|printed)\b|\{[^{}]*\bnats\b[^{}]*\}|\}[^{}]{0,12}\bnats\b"
)
"""A number of nats inside a text, or beside one."""
SAID = re.compile(r"average|label|statement\(|print\((engine|channel)|\.text\b|demonstrated")
"""What a line says with it: whom it is about, or that the statement says it."""


def printed_lines() -> list[tuple[str, int, str]]:
    """Lines that print, in examples, notebooks and the Python of pages, with file and number."""
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    sources: list[tuple[Path, list[tuple[int, str]]]] = [
        (path, [*enumerate(path.read_text(encoding="utf-8").splitlines(), 1)])
        for path in sorted((ROOT / "examples").rglob("*.py"))
    ]
    for page in pages:
        block, lines = False, []
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("```"):
                block = not block and re.match(r"```(\{code-cell\}|py|python)", line) is not None
            elif block:
                lines.append((number, line))
        sources.append((page, lines))
    for notebook in sorted((ROOT / "examples").rglob("*.ipynb")):
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        code = "".join("".join(cell["source"]) + "\n" for cell in cells if cell["cell_type"] == "code")
        sources.append((notebook, [*enumerate(code.splitlines(), 1)]))
    return [
        (path.name, number, line)
        for path, lines in sources
        for number, line in lines
        if re.search(r"print\(|\bsaid\b|log\(|add_scalar\(", line)
    ]


def test_examples_notebooks_and_pages_never_print_bare_nats():
    """A line that prints nats says whether they are an average, and what of labels they hold."""
    printed = printed_lines()
    assert {path.rsplit(".")[-1] for path, *_ in printed} == {"py", "md", "ipynb"}
    bare = [place for *place, line in printed if BARE.search(line) and not SAID.search(line)]
    rows = [place for *place, line in printed if "{nats:8}   {count / TRIALS:10.3f}" in line]
    assert [place for place in bare if place not in rows] == []
    for planted in ('print(f"{engine.leakage().joint:.1f} nats have leaked")', 'print(f"{leaked[-1]:.1f} nats")'):
        assert BARE.search(planted)
        assert not SAID.search(planted)
