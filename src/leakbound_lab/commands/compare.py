"""Command: which protection is worth its cost on one's own records, by the whole workflow."""

import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer
import yaml
from jaxtyping import Float

from leakbound import storage
from leakbound.accounting.sheet import Release, StatedData
from leakbound.channels.calibration import water_filling
from leakbound.channels.covariance import population_moments
from leakbound.channels.randomized_response import RandomizedResponse
from leakbound.channels.shapes import Natural
from leakbound.commands import own_records, owners, record_options, sheets
from leakbound.commands.files import refusing
from leakbound.commands.option_groups import Offered
from leakbound.records.records import first_copies
from leakbound_lab.config import comparing
from leakbound_lab.config.comparing import OwnImages
from leakbound_lab.config.data import ORIGINALS, DatasetConfig
from leakbound_lab.config.defenses import NOISE_BATCHES, Undefended
from leakbound_lab.config.reading import config_of, load
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.config.whole import Config
from leakbound_lab.datasets import Drawing, ImageDataset, Split, prepare
from leakbound_lab.datasets.records import join_groups, number_owners
from leakbound_lab.jobs.job_costs import job_cost, wall_seconds
from leakbound_lab.jobs.paths import output
from leakbound_lab.jobs.unit_costs import PACKAGED, STEP_RECORDS, UnitCosts, read_costs
from leakbound_lab.steps.inputs import read_dataset
from leakbound_lab.steps.job_list import job_list
from leakbound_lab.steps.results import read_usage

if TYPE_CHECKING:
    from leakbound_lab.figures.report.decision import Decision

_EMBEDDED = "digits"
_DATA = "LEAKBOUND_DATA"
_ROOT = Path(__file__).parents[3]  # clone of the repository that holds the workflow
_READING = Offered(("label", "resize", "color", "span", "image", "exclude", "categories", "missing", "owner"))


@dataclass(frozen=True)
class _ReadingOptions(record_options.ReadingOptions):
    """How records are read that the workflow prepares. No public records give medians for missing values."""

    missing: Annotated[
        Literal["drop", "keep"] | None,
        typer.Option(
            help="Missing values of a table, and numbers such as -999 in their place. drop: leave out the record. "
            "keep: such numbers are measurements. Default: refuse them."
        ),
    ] = None


def compare(
    records: Annotated[
        str,
        typer.Argument(
            help="Records with labels: folder with a subfolder of images for each class, images or a table of numbers "
            "as .parquet, in shards or as datasets.save_to_disk writes them, table .csv, .tsv or .gz, or arrays .npz, "
            ".mat or IDX; or the word digits for the images in the package."
        ),
    ],
    *,
    name: Annotated[
        str | None, typer.Option(help="Name of the results' folder. Default: compare_ and the file's name.")
    ] = None,
    minutes: Annotated[
        float, typer.Option(min=1, max=100_000, help="Time on an idle machine. More allow more replicas.")
    ] = 10,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, max=10_000, help="Jobs at the same time.")] = 2,
    members: Annotated[
        int | None,
        typer.Option(min=30, max=100_000, help="Records that one client trains on. Default: as many as fit."),
    ] = None,
    sees: Annotated[
        Literal["uploads", "weights"],
        typer.Option(help="What the attacker sees: each upload, as a server, or the last weights alone."),
    ] = "uploads",
    reading: Annotated[_ReadingOptions, _READING],
    standardize: Annotated[
        bool, typer.Option(help="Standardize by the attacker's records. Otherwise values must be in -1 to 1.")
    ] = True,
    label_nats: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="Most nats that a label reveals, by one randomized response, the same for all defenses. "
            "Default: labels are kept, and reveal up to the logarithm of the number of classes.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of splits, networks and noise.")] = 0,
    profile: Annotated[str | None, typer.Option(help="Snakemake profile, e.g. profiles/slurm.")] = None,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Run, or only write the configuration.")] = True,
) -> None:
    """Compare defenses on your own records. Write one page on which is worth its cost and what is undecided.

    The same small network is trained on the same records with each defense: plain SGD at all its learning
    rates and stopping times, clipping, three shapes of channel at three targets, and DP-SGD at three noise
    levels. The strongest attacks are run on each, also that of a server that sees every upload. The same
    command resumes an interrupted comparison. You can change the configuration that it writes and run it by
    snakemake.

    Example: leakbound compare photos --minutes 30

    Example: leakbound compare patients.csv --label diagnosis --exclude patient_id
    """
    if not (_ROOT / "workflow" / "Snakefile").is_file():
        raise typer.BadParameter(
            "compare runs the workflow, which the installed package does not hold: clone the repository, and "
            "call leakbound from its environment (README)"
        )
    preset = _preset(name, records)
    home = _ROOT / "results" / preset
    target = home / "compare.yaml"
    attacked = {"members": members, "seed": seed, "sees": sees}
    of = records if records == _EMBEDDED else os.path.realpath(records)
    inputs = _inputs(of, reading, standardize=standardize, **attacked, **{"label-nats": label_nats})
    if target.is_file():
        made = re.search(r"^# Inputs: (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
        if made and (other := [text for text in made[1].split("; ") if text not in inputs]):
            raise typer.BadParameter(
                f"{target.relative_to(_ROOT)} is for {'; '.join(other)}: give the same, or another --name"
            )
        sys.stderr.write(
            "leakbound: resuming the existing configuration; give another --name for a new one\n"
        )
    else:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)  # copies of private records, and a page with some
        try:
            images, folder = _records_of(records, home, reading, standardize, seed)
            dataset = replace(images, label_nats=label_nats), folder
            _store(
                target,
                _new_configuration(records, preset, dataset, minutes, jobs, **attacked),
                folder,
                inputs,
            )
        except BaseException:
            shutil.rmtree(home / "records", ignore_errors=True)
            with suppress(OSError):  # nothing was written, unless the folder was there before
                home.rmdir()
            raise
    data = {_DATA: str(home / "records")} if (home / "records").is_dir() else {}
    config = load(target)
    said = f"{target}: the configuration of this comparison\n"
    sys.stdout.write("\n".join([*comparing.shares(config), said]))
    if not run:
        return
    words = f"-m snakemake -j {jobs} --configfile {target.relative_to(_ROOT)}".split()
    words = [sys.executable, *words, *(["--profile", profile] if profile else [])]
    running = subprocess.Popen(words, cwd=_ROOT, env={**os.environ, **data})
    began = time.monotonic()
    before = _planned_left(config, jobs)
    try:
        while running.poll() is None:
            try:
                running.wait(60 * minutes)
            except subprocess.TimeoutExpired:
                passed = (time.monotonic() - began) / 60
                sys.stderr.write(_overdue(minutes, passed, before, _planned_left(config, jobs)))
    finally:
        running.wait()  # Ctrl-C reaches Snakemake too, which ends its jobs
    if running.returncode:
        raise typer.Exit(running.returncode)
    _write_page(config, home)


def _inputs(records: str, reading: _ReadingOptions, *, standardize: bool, **further: object) -> list[str]:
    """List the options that a configuration is for, as its head names them."""
    form = {"resize": reading.resize, "color": reading.color, "range": reading.span}
    columns = {"label": reading.label, "image": reading.image, "exclude": reading.exclude or ()}
    options = {"records": records, **form, "standardize": standardize, **columns, **further}
    # Later options are named if they are given, so that what was written before they came is resumed.
    later = {"categories": reading.categories, "missing": reading.missing, "owner": reading.owner}
    options |= {name: value for name, value in later.items() if value}
    return [f"{name} {json.dumps(value)}" for name, value in options.items()]


def _preset(name: str | None, records: str) -> str:
    """Return the name of the configuration.

    Raises:
        BadParameter: If it is no name of a folder.
    """
    plain = unicodedata.normalize("NFKD", Path(records).stem).encode("ascii", "ignore").decode()
    preset = name or "compare_" + (re.sub(r"\W+", "_", plain).strip("_").lower()[:50] or "records")
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,60}", preset):
        raise typer.BadParameter(
            f"--name {preset!r}: give lower-case letters, digits, _ and -, e.g. compare_photos"
        )
    return preset


def _new_configuration(
    records: str, preset: str, copy: tuple[OwnImages, Path | None], minutes: float, jobs: int, **attacked: Any
) -> dict[str, Any]:
    """Return the values of a new configuration, with as many replicas as the time allows.

    Raises:
        BadParameter: If there are too few records, or not enough time for a comparison that can decide
            anything.
    """
    images, folder = copy
    if images.count < comparing.LEAST_RECORDS:
        count = images.count + images.test
        raise typer.BadParameter(
            f"{records}: holds {count} records; a comparison needs {comparing.LEAST_RECORDS} besides those for "
            f"tests, {math.ceil(comparing.LEAST_RECORDS * count / images.count)} in all"
        )
    _check_owners(records, images)
    prepared = _prepare_copy(images, folder, attacked["seed"])
    if images.label_nats is not None:
        with refusing("--label-nats"):
            RandomizedResponse.calibrate(len(prepared.classes), images.label_nats)
    capacities = comparing.targets(_eigenvalues(prepared))
    pace = _pace()
    shortest = 0.0
    for replicas in range(comparing.MOST_REPLICAS, comparing.FEWEST_REPLICAS - 1, -1):
        values = comparing.comparison(images, preset, capacities, replicas=replicas, **attacked)
        shortest = pace * _planned_minutes(values, jobs)
        # Starts and the page take the rest.
        if shortest <= 0.85 * minutes or replicas == comparing.FEWEST_REPLICAS:
            break
    fit = values["datasets"][images.name]["members"]
    if fit < (attacked["members"] or 0):
        raise typer.BadParameter(
            f"--members {attacked['members']}: {records} leaves at most {fit} for one client"
        )
    if shortest > minutes:
        sys.stderr.write(
            f"leakbound: warning: --minutes {minutes:g}: {comparing.FEWEST_REPLICAS} replicas, the fewest that "
            f"can decide anything, take about {math.ceil(shortest)} minutes with -j {jobs}; interrupt it "
            "whenever you like, the same command resumes it\n"
        )
    return values


def _check_owners(records: str, images: OwnImages) -> None:
    """Refuse owners of so many records that parts of whole owners leave none to train on.

    Raises:
        BadParameter: If there is one.
    """

    def room(most: int) -> int:
        return comparing.sizes(images.count, most)[-1]

    if room(images.most) < comparing.LEAST_MEMBERS:
        fit = next(most for most in range(images.most, 0, -1) if room(most) >= comparing.LEAST_MEMBERS)
        raise typer.BadParameter(
            f"--owner: {images.most} of the {images.count} records of {records} that are not for tests are of one "
            f"owner, or of owners who share equal records. No owner is in two parts, so at most {fit} may be: leave "
            "some of these out, or give records of more people"
        )


def _records_of(
    records: str, home: Path, reading: _ReadingOptions, standardize: bool, seed: int
) -> tuple[OwnImages, Path | None]:
    """Copy the records, and return facts about them with the folder, None for those of the package.

    Raises:
        BadParameter: If the options do not fit the records.
    """
    from leakbound.records.tables import is_table

    folder = home / "records"
    if is_table(record_options.path_of(records)):
        return _copy_table(records, folder, reading, standardize), folder
    if reading.resize not in (None, *comparing.SIDES):
        raise typer.BadParameter(
            f"--resize {reading.resize}: a comparison computes covariances of all values, so give one of "
            f"{', '.join(map(str, comparing.SIDES))}; without the option all sizes are brought to one of "
            "these"
        )
    if records != _EMBEDDED:
        return _copy_images(records, folder, reading, seed), folder
    if reading.owner is not None:
        raise typer.BadParameter(f"--owner {reading.owner}: nobody knows whose the {_EMBEDDED} are")
    digits = ORIGINALS[_EMBEDDED]
    return OwnImages(_EMBEDDED, _EMBEDDED, digits.train, digits.test, 8, 8), None


def _copy_table(records: str, folder: Path, reading: _ReadingOptions, standardize: bool) -> OwnImages:
    """Copy a table, and return facts about its records."""
    from leakbound.records.tables import load_table
    from leakbound_lab.datasets.own import copy_table

    path = record_options.path_of(records)
    owner = reading.owner
    if reading.resize or reading.color or reading.span:
        raise typer.BadParameter(f"{records}: a table; --resize, --color and --range are of images")
    exclude = owners.without_owner_column(path, reading).exclude or ()
    table = load_table(
        path, reading.label, exclude, categories=reading.categories or (), missing=reading.missing
    )
    changed = bool(reading.exclude or reading.categories or reading.missing)
    owner_columns = {}
    if owner is not None:
        owner_columns = {owner: owners.owners_at(path, owner, len(table.values), rows=table.rows)}
    name, train, test = copy_table(folder, table, changed=changed, owners=owner_columns)
    columns = dict(zip(table.columns, table.values.reshape(len(table.values), -1).T, strict=True))
    own_records.say_classes(path, table.classes, table.labels, columns)
    if table.left_out:
        sys.stderr.write(f"leakbound: {path}: {table.left_out} records lack something and are left out\n")
    if advice := table.advice():
        sys.stderr.write(f"leakbound: {advice}\n")
    settings = {"path": name, "label": reading.label, "standardize": standardize}
    settings |= {} if owner is None else {"owner": owner}
    rows, columns = table.values.shape[1:]
    most = _most_records(table.values, owner_columns[owner]) if owner is not None else 1
    return OwnImages("own", "table_shown", train, test, rows, columns, settings, most=most)


def _copy_images(records: str, folder: Path, reading: _ReadingOptions, seed: int) -> OwnImages:
    """Copy images or arrays, and return facts about them."""
    from leakbound.records.collection import OWNER
    from leakbound_lab.datasets.own import write_dataset

    path = record_options.path_of(records)
    owner = reading.owner
    collection, _ = own_records.read_both(path, None, reading, labelled=True)
    if owner is not None:
        collection = replace(collection, owners=owners.owners_of(collection, owner))
    folder.mkdir(parents=True, exist_ok=True)
    train, test = write_dataset(folder, "own", collection, seed)
    height, width = collection.values.shape[2:]
    most = 1 if collection.owners is None else _most_records(collection.values, collection.owners)
    column = None if owner is None else OWNER
    return OwnImages("own", "parquet_shown", train, test, height, width, owner=column, most=most)


def _most_records(values: np.ndarray, owner_names: Sequence[str]) -> int:
    """Count the most records that are of one owner, or that share owners through equal records."""
    groups = join_groups(first_copies(values), number_owners(owner_names)[0])
    return int(np.bincount(groups).max())


def _prepare_copy(images: OwnImages, folder: Path | None, seed: int) -> ImageDataset:
    """Prepare the records as the workflow does from the folder of their copy, with their true labels."""
    before = dict(os.environ)
    os.environ.update({_DATA: str(folder)} if folder else {})
    try:
        return prepare(images.name, DatasetConfig(**images.settings), seed)
    finally:
        os.environ.clear()
        os.environ.update(before)


def _eigenvalues(dataset: ImageDataset) -> Float[np.ndarray, " d"]:
    """Compute the eigenvalues of the covariance of the attacker's records."""
    aux = dataset.aux.images
    return Natural.decompose(population_moments(aux.reshape(len(aux), -1))).eigenvalues


def _recoverable(eigenvalues: Float[np.ndarray, " d"]) -> Callable[[float], float]:
    """Return the function from nats to the share of the variance of Gaussian records that they can reveal."""
    return lambda nats: 1.0 - water_filling(eigenvalues, nats).distortion / float(eigenvalues.sum())


def _pace() -> float:
    """Time training steps for about a second, and return the ratio to their time in the packaged table."""
    from leakbound_lab.training.efficiency import measure_steps
    from leakbound_lab.training.request import TrainingRequest

    images = np.random.default_rng(0).uniform(-1, 1, (640, 1, 32, 32)).astype(np.float32)
    split = Split(images, np.arange(640) % 10)
    request = TrainingRequest(
        dataset=ImageDataset("random", tuple("0123456789"), split, split, split, Drawing(280, 80, 0)),
        model="mlp",
        defense=Undefended(),
        level=None,
        rounds=1,
        batch_size=STEP_RECORDS,
        learning_rates=(1e-4,),
        config=TrainingConfig(),
        seed=0,
        slug="pace",
    )
    times = measure_steps({"none": request}, steps=64 * NOISE_BATCHES, repeats=2, max_seconds=0.4)
    costs = UnitCosts(read_costs(PACKAGED), "cpu")
    return float(times["seconds"].min()) / costs.on_cpu("step_none", "mlp", 1)


def _planned_left(config: Config, jobs: int) -> float:
    """Plan the minutes of the jobs whose files are not all there, as :func:`_planned_minutes` does."""
    costs = UnitCosts(read_costs(PACKAGED), "cpu")
    left = [
        job
        for job in job_list(config, checked=True)
        if not all((_ROOT / Path(path)).exists() for path in job.outputs.values())
    ]
    return (wall_seconds([job_cost(job, costs) for job in left], jobs) or 0.0) / 60


def _overdue(minutes: float, passed: float, before: float, left: float) -> str:
    """Say that the time is over that was planned, and how long the rest takes at the pace so far.

    Args:
        minutes: Time that was asked for.
        passed: Minutes since the start.
        before: Planned minutes of all jobs at the start.
        left: Planned minutes of the jobs that are left.
    """
    rest = "it is not known how long the rest takes, because no planned job is done yet"
    if before > left:
        rest = f"at the pace so far about {math.ceil(left * passed / (before - left))} minutes are left"
    return (
        f"leakbound: warning: --minutes {minutes:g}: {passed:.0f} have passed, {rest}; interrupt it whenever you like, "
        "the same command resumes it\n"
    )


def _planned_minutes(values: Mapping[str, Any], jobs: int) -> float:
    """Plan the minutes of a configuration on the machine that the packaged costs were measured on."""
    costs = UnitCosts(read_costs(PACKAGED), "cpu")
    config = config_of({**values, "catalogue": str(_ROOT / "config" / "figures")}, "comparison")
    made = job_list(config, checked=True)  # the workflow checks the catalogue when it begins
    estimates = [job_cost(job, costs) for job in made]
    return (wall_seconds(estimates, jobs) or 0.0) / 60


def _store(target: Path, values: Mapping[str, Any], folder: Path | None, inputs: list[str]) -> None:
    """Write the configuration, headed by the command that runs it, and by the records and options that it is for."""
    setting = f"LEAKBOUND_DATA={folder.relative_to(_ROOT)} " if folder else ""
    head = [
        "# Protections compared on one's own records, as `leakbound compare` wrote it. Change it and run it",
        "# in the root of the checkout by",
        f"#   {setting}snakemake -j 2 --configfile {target.relative_to(_ROOT)}",
        f"# Inputs: {'; '.join(inputs)}",
    ]
    plain = json.loads(json.dumps(values))  # equal lists would be written as references to one
    text = yaml.safe_dump(plain, sort_keys=False, width=110)
    storage.write_text(target, "\n".join([*head, text]), sealed=False)


def _write_page(config: Config, home: Path) -> None:
    """Write the page of a finished comparison, and print its first sentences and its path."""
    from leakbound_lab.figures.report.decision import Decision, decision_page  # slow import

    tables = {path.stem: storage.read_rows(path) for path in sorted((home / "tables").glob("*.parquet"))}
    dataset = read_dataset(output(home, "prepare", next(iter(config.datasets)), "out"))
    drawings = {}
    for path in sorted((home / "figures").rglob("*.svg")):
        name = path.relative_to(home / "figures").with_suffix("").as_posix()
        drawings[name] = storage.read_bytes(path, most=storage.limits.TEXT)
    decision = Decision(
        config=config,
        claims=storage.read_rows(home / "claims.parquet"),
        tables=tables,
        drawings=drawings,
        seconds=sum(read_usage(path).cpu_seconds for path in sorted((home / "benchmarks").rglob("*.tsv"))),
        trainings={
            run: storage.read_json(output(home, "train", run, "provenance"))
            for run in tables["comparison"]["run"].unique()
        },
        recoverable=_recoverable(_eigenvalues(dataset)),
        classes=len(dataset.classes),
        majority=float(np.bincount(dataset.test.labels).max()) / len(dataset.test.labels),
        columns=dataset.scale.get("columns", ()),
    )
    page = home / "decision.html"
    storage.write_text(page, decision_page(decision), sealed=False)
    _write_sheet(decision, home)
    size = f"{page}: {page.stat().st_size / 1e3:.0f} kB"
    choice, *applied = decision.next_step
    sys.stdout.write("\n".join([choice, *decision.sentences, *applied, size, ""]))


def _write_sheet(decision: "Decision", home: Path) -> None:
    """Write the statement on paper of a comparison: its networks as they are, first the arm that the page chooses."""
    arm = decision.winner if decision.winner is not None else decision.nearest
    arms = list(decision.arms.itertuples())
    arms.sort(key=lambda row: arm is None or row.Index != arm.name)
    bounds = {f"{row.label} {row.level}".strip(): row.statement for row in arms}
    name, dataset = next(iter(decision.config.datasets.items()))
    prepared = storage.read_json(output(home, "prepare", name, "provenance"))
    members = int(arms[0].event.population)
    release = Release(
        "the networks of a comparison, with noise from a seed",
        str(home),
        sees=(
            (
                "Whoever has a network or its uploads",
                "what the table above says of it; the noise can be subtracted",
            ),
            ("You alone", "this folder: records, networks, attacks, pages"),
        ),
        limit="identification of at most 50 %",
    )
    sheets.of_networks(
        home / "statement.html",
        bounds,
        StatedData(
            f"{dataset.path or name} (members of one network)",
            members,
            None,
            prepared["content"],
            "the prepared records",
        ),
        release,
        ("the attacker's records are public, and the records have the covariance of these",),
        replace=True,
    )
