"""Additions inside the package touch the files that docs/contributing.md lists: four of them, made in a copy of it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from leakbound_lab.figures import style
from leakbound_lab.registries import MECHANISMS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
TABLE = TEXT.split("<!-- additions -->")[1].split("<!-- end of additions -->")[0]
ROWS = {name: (touched, files) for name, touched, files in re.findall(r"^\| (.+?) \| (.+) \| (.+?) \|$", TABLE, re.M)}

ADDITIONS = {
    "a dataset with a reader of its own": {
        "datasets/blobs.py": "def read(name, config): ...\n",
        "registries.py": (
            '        "digits": "leakbound_lab',
            '        "blobs": "leakbound_lab.datasets.blobs:read",\n',
        ),
        "config/data.py": (
            '    "cifar10": Original(',
            '    "blobs": Original("blobs", colors=1, classes=2, train=1600, test=400, has_test=False),\n',
        ),
    },
    "a defense with a setting of its own": {
        "config/defenses.py": (
            "class GradientCompression(Defense):",
            """class Boxes(Defense):
    client_step: ClassVar[str] = f"{_STEPS}:BoxesStep"
    styles: ClassVar[Styles] = {"boxes": SeriesStyle("values in a box", "#117733", "H")}

    mechanism: Literal["boxes"] = "boxes"
    half_width: float = 0.5


""",
        ),
        "training/client_steps.py": (
            "class UnknownStep(ClientStep):",
            """class BoxesStep(ClientStep):
    def released(self, images, source):
        width = self.defense.half_width
        return images.clamp(-width, width) + self.level * source.normal(images.shape)


""",
        ),
        "registries.py": ('        "none": "leakbound', '        "boxes": "leakbound_lab.config.defenses:Boxes",\n'),
    },
    "an attack": {
        "config/attacks.py": (
            "class AttackConfig(Settings):",
            """class EntropyConfig(Attack):
    function: ClassVar[str] = "leakbound_lab.attacks.membership.entropy:attack"

    def work(self, run: AttackedRun) -> Iterator[Amount]:
        yield run.single("predict", 2 * run.size.members)


""",
            "    custom: dict[Name",
            "    entropy: EntropyConfig = EntropyConfig()\n",
        ),
        "attacks/membership/entropy.py": "def attack(request): ...\n",
        "registries.py": (
            '        "membership": "leakbound',
            '        "entropy": "leakbound_lab.config.attacks:EntropyConfig",\n',
        ),
    },
    "a kind of job": {
        "steps/balance.py": """
from pathlib import Path
from leakbound_lab.jobs.job import Step, new_job


def jobs(table):
    for name, section, _ in table.section("balance"):
        read = {"prepared": {dataset: table.file("prepare", dataset) for dataset in section.datasets}}
        arguments = {"table": name}
        yield new_job(table.config, "balance", name, {}, arguments=arguments, inputs=read, purpose="balance")


def balance(table: str, prepared: dict[str, Path], rows: Path) -> None:
    ...


STEP = Step(balance, jobs, final=True)
""",
        "workflow/rules/balance.smk": """
rule balance:
    input:
        reads("balance", "{table}", "prepare"),
    output:
        RESULTS / "tables/balance/{table}.parquet",
    params:
        settings=str(CONFIGURATION),
        results=results_hash("balance", "{table}"),
    shell:
        "leakbound step balance {wildcards.table} --configfile {params.settings}"
""",
        "jobs/paths.py": (
            '        "consensus": {"rows"',
            '        "balance": {"rows": "tables/balance/{name}.parquet"},\n',
        ),
        "config/whole.py": (
            "class Config(Settings):",
            """class BalanceConfig(TableSection):
    TABLES = ("classes",)
    datasets: list[Name]


""",
            "    tracking: TrackingConfig = TrackingConfig()\n",
            "    balance: BalanceConfig | None = None\n",
        ),
    },
}
CONFIG = """
preset: added
catalogue: figures.yaml
datasets:
  blobs: {members: 100, validation: 50, test: 100, aux: 300, side: 8}
balance: {datasets: [blobs]}
studies:
  tried:
    datasets: [blobs]
    models: [mlp]
    defenses: {none: [], boxes: [0.5, 2]}
    rounds: [100]
    batch_sizes: [32]
    attacks: [entropy]
"""
FIGURES = """
figures:
- {id: entropy, paper: beyond, title: Members, study: tried, select: {source: entropy}, plot: levels, caption: AUC.}
- {id: uses, paper: beyond, title: Uses, study: tried, select: {source: uses}, plot: levels, caption: Uses.}
- id: balance
  paper: beyond
  title: Classes
  table: balance/classes
  plot: table
  options: {cells: [{}], rows: [dataset], columns: [metric]}
  caption: Classes.
  claims: [{id: all, text: All., test: within, delta: 0.1, unit: records, options: {a: {metric: share}, value: 0.5}}]
"""


@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_touches_what_the_page_lists(name):
    touched, files = ROWS[name]
    places = {place.rstrip("/") for place in re.findall(r"`([a-z_]+/[a-z_./]*|registries\.py)`", touched)}
    assert len(places) == int(files) == len(ADDITIONS[name])
    assert {next(place for place in places if file.startswith(place)) for file in ADDITIONS[name]} == places


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """Plan a configuration by a copy of the package with the additions."""
    folder = tmp_path_factory.mktemp("added")
    package = folder / "leakbound_lab"
    shutil.copytree(ROOT / "src" / "leakbound_lab", package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, added in [item for addition in ADDITIONS.values() for item in addition.items()]:
        whole = added if isinstance(added, str) else (package / file).read_text(encoding="utf-8")
        for place, text in () if isinstance(added, str) else zip(added[::2], added[1::2], strict=True):
            assert whole.count(place) == 1, f"{file}: {place}"
            whole = whole.replace(place, text + place)
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text(whole, encoding="utf-8")
    (folder / "figures.yaml").write_text(FIGURES, encoding="utf-8")

    def planned(config, *options, program=("-c", "from leakbound.commands.command_line import main; main()", "plan")):
        (folder / "added.yaml").write_text(config, encoding="utf-8")
        return subprocess.run(
            [sys.executable, *program, "--configfile", "added.yaml", *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            check=False,
        )

    return planned


def test_a_configuration_with_four_additions_is_planned(plan):
    done = plan(CONFIG)
    assert done.returncode == 0, done.stderr
    listed = re.search(r"^Jobs: (.*)", done.stdout, re.MULTILINE)
    assert {"3 train", "3 attack", "1 balance", "1 figures"} <= {*listed[1].split(", ")}
    notes = [line for line in done.stdout.splitlines() if line.startswith("* ")]
    assert notes == [
        "* dataset blobs: networks are taken to be those for images of side 32",
        "* figure beyond/uses is left out: study tried lacks what it selects",
        "* jobs of the step balance: their start is not measured, taken as 0.3 s",
    ]


def test_rules_that_are_added_are_jobs_of_snakemake(plan, tmp_path):
    shutil.copytree(ROOT / "workflow", tmp_path / "workflow")
    (example,) = re.findall(r"```text\n(rule .*?)```", TEXT, re.S)
    added = ADDITIONS["a kind of job"]["workflow/rules/balance.smk"]
    for name, rule in {"sizes": example, "balance": added}.items():
        (tmp_path / f"workflow/rules/{name}.smk").write_text(rule, encoding="utf-8")
        with (tmp_path / "workflow/Snakefile").open("a", encoding="utf-8") as file:
            file.write(f'\ninclude: "rules/{name}.smk"\n')
    targets = [
        f"results/added/{name}" for name in ("sizes/blobs/mlp/none/n100-b32.txt", "tables/balance/classes.parquet")
    ]
    words = ("-m", "snakemake", "-np", "-s", str(tmp_path / "workflow/Snakefile"), "--workflow-profile", "none")
    done = plan(CONFIG, "--", *targets, program=words)
    assert done.returncode == 0, done.stderr + done.stdout
    jobs = dict(re.findall(r"^(\w+) +(\d+)$", done.stdout, re.M))
    assert (jobs["sizes"], jobs["balance"], jobs["train"], jobs["prepare"]) == ("1",) * 4
    assert "leakbound step balance classes --configfile results/added/.configuration.json" in done.stdout
    no_step = example.replace("    log:", '    params:\n        results=results_hash("sizes", "{run}"),\n    log:')
    (tmp_path / "workflow/rules/sizes.smk").write_text(no_step, encoding="utf-8")
    refused = plan(CONFIG, "--", targets[0], program=words)
    assert "added has no job 'blobs/mlp/none/n100-b32' of the rule sizes" in refused.stderr + refused.stdout


def test_the_datasets_of_a_section_that_is_added_are_checked(plan):
    done = plan(CONFIG.replace("balance: {datasets: [blobs]}", "balance: {datasets: [blobz]}"))
    assert done.returncode == 2
    assert "balance.datasets[0] = 'blobz': unknown dataset; known: blobs; did you mean 'blobs'?" in done.stderr


def test_claims_on_a_section_that_is_added_have_a_block_for_each_dataset(plan):
    two = CONFIG.replace("  blobs: {", "  digits: {}\n  blobs: {").replace("[blobs]}", "[blobs, digits]}")
    photos = str(ROOT / "results" / "reference" / "photos")
    done = plan(two, "--variances", photos, program=(str(ROOT / "tools" / "power.py"),))
    assert done.returncode == 0, done.stderr
    assert "2 x 1" in next(line for line in done.stdout.splitlines() if line.startswith("beyond/balance/"))


def test_defenses_have_the_appearance_that_they_state():
    stated = [MECHANISMS.get(name).styles.items() for name in MECHANISMS.builtin]
    assert [name for styles in stated for name, look in styles if style.style_of(name) != look] == []
