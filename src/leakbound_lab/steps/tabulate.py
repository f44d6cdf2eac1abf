"""Tidy tables of studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from leakbound import storage
from leakbound.storage.tables import CURVES, RATES, SCORES, read_record, read_table
from leakbound_lab.config.settings import Level, Line, Name, Names, Records, Settings
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.paths import output
from leakbound_lab.steps.job_settings import JobSettings

if TYPE_CHECKING:
    import numpy as np

    from leakbound_lab.claims.tabulation import RunResults

MEMBERSHIP = ("membership", "membership_uploads")
"""Attacks on membership: from the last weights, and from the uploads."""


class TabulatedRun(Settings):
    """A run with its attacks."""

    dataset: Name
    model: Name
    defense: Name
    level: Level | None
    rounds: Annotated[int, Field(ge=0)]
    batch_size: Records
    attacks: Names


class TabulateSettings(JobSettings):
    """Runs of a study, each with its attacks, by their names."""

    study: Name
    runs: dict[Line, TabulatedRun]
    rates: Literal["chosen", "all"] = "chosen"
    lengths: Literal["full", "all"] = "full"
    over_units: dict[Name, Literal["mean", "median"]] = Field(default_factory=dict)
    stronger_with: dict[Name, Literal["larger level", "smaller level"]] = Field(default_factory=dict)


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each study."""
    stated = table.config.stated_strength()
    for study, settings in table.config.studies.items():
        slugs = dict.fromkeys(slug for name in (study, *settings.also) for slug in table.studies[name])
        yield new_job(
            table.config,
            "tabulate",
            study,
            {
                "study": study,
                "rates": settings.rates,
                **({"lengths": "all"} if settings.lengths == "all" else {}),
                "runs": {
                    slug: {**table.runs[slug].coordinates(), "attacks": table.attacks[slug]} for slug in slugs
                },
                "over_units": table.over_units({name for slug in slugs for name in table.attacks[slug]}),
                **({"stronger_with": stated} if stated else {}),
            },
            inputs={"runs": [path for slug in slugs for path in table.records(slug).values()]},
            purpose=study,
        )


def tabulate(settings: TabulateSettings, root: Path, out: Path) -> None:
    """Collect the results of a study's runs in one tidy table."""
    from leakbound_lab.claims.tabulation import tabulate as gather

    runs = (_finished(root, slug, run) for slug, run in settings.runs.items())
    rows = gather(runs, settings.over_units, settings.stronger_with)
    if settings.lengths == "full" and "length" in rows:  # another study asks for them
        rows = rows[rows["length"] == "full"].drop(columns="length")
    storage.write_rows(out, rows if settings.rates == "all" else rows[rows["chosen"]])


def _finished(root: Path, slug: str, run: TabulatedRun) -> RunResults:
    """Read the results of one run."""
    from leakbound.accounting.lower_limits import evidence, evidence_rows
    from leakbound_lab.claims.tabulation import RunResults, accounting_rows

    attacks, trained = run.attacks, run.rounds > 0
    record = read_record(output(root, "train", slug, "provenance"), "train") if trained else {}
    paths = {name: output(root, "attack", f"{slug}/{name}", "rows") for name in attacks}
    rows = {name: read_table(path, SCORES, "attack") for name, path in paths.items()}
    leakage = record.get("leakage")
    scores, uploads = (membership_scores(root, slug, attacks, name) for name in MEMBERSHIP)
    return RunResults(
        run=slug,
        dataset=run.dataset,
        model=run.model,
        defense=run.defense,
        level=run.level,
        rounds=run.rounds,
        batch_size=run.batch_size,
        rates=read_table(output(root, "train", slug, "rates"), RATES, "train") if trained else None,
        curves=read_table(output(root, "train", slug, "rows"), CURVES, "train") if trained else None,
        attacks={
            **rows,
            "accounting": accounting_rows(leakage),
            "evidence": evidence_rows(evidence(rows, scores, leakage, uploads=uploads)),
        },
    )


def membership_scores(
    root: Path, slug: str, attacks: Sequence[str], attack: str
) -> dict[str, np.ndarray] | None:
    """Read the scores of a membership attack on a run.

    Args:
        root: Folder of the configuration's results.
        slug: Name of the run.
        attacks: Names of the attacks on the run.
        attack: One of ``MEMBERSHIP``.

    Returns:
        The scores, None without the attack.
    """
    path = output(root, "attack", f"{slug}/{attack}", "arrays")
    return storage.read_arrays(path) if attack in attacks else None


STEP = Step(TabulateSettings, tabulate, jobs, final=True)
