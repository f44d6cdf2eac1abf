"""Tidy tables of studies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from leakbound import storage
from leakbound.storage.tables import CURVES, RATES, SCORES, read_record, read_table
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.paths import output
from leakbound_lab.jobs.runs import Run

if TYPE_CHECKING:
    import numpy as np

    from leakbound_lab.claims.tabulation import RunResults

MEMBERSHIP = ("membership", "membership_uploads")
"""Attacks on membership: from the last weights, and from the uploads."""


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each study."""
    stated = table.config.stated_strength()
    for study, settings in table.config.studies.items():
        slugs = dict.fromkeys(slug for name in (study, *settings.also) for slug in table.studies[name])
        runs = {slug: (table.runs[slug], table.attacks[slug]) for slug in slugs}
        arguments: dict[str, Any] = {
            "rates": settings.rates,
            **({"lengths": "all"} if settings.lengths == "all" else {}),
            "runs": runs,
            "over_units": table.over_units({name for _, attacks in runs.values() for name in attacks}),
            **({"stronger_with": stated} if stated else {}),
        }
        plain = {slug: {**run.coordinates(), "attacks": attacks} for slug, (run, attacks) in runs.items()}
        yield new_job(
            table.config,
            "tabulate",
            study,
            {"study": study, **arguments, "runs": plain},
            arguments=arguments,
            inputs={"runs": [path for slug in slugs for path in table.records(slug).values()]},
            purpose=study,
        )


def tabulate(
    runs: Mapping[str, tuple[Run, Sequence[str]]],
    rates: Literal["chosen", "all"],
    over_units: Mapping[str, str],
    root: Path,
    out: Path,
    lengths: Literal["full", "all"] = "full",
    stronger_with: Mapping[str, str] | None = None,
) -> None:
    """Collect the results of a study's runs in one tidy table.

    Args:
        runs: Name of each run to the run and the names of its attacks.
        rates: Whether the table has rows of chosen learning rates only, or of all.
        over_units: Attack to its summary over units, ``mean`` or ``median``.
        root: Folder of the results, whose files of runs and attacks are read.
        out: Table to write.
        lengths: Whether the table has rows of full lengths only, or of all.
        stronger_with: Defense to whether its ``larger level`` or its ``smaller level`` is the stronger one.
    """
    from leakbound_lab.claims.tabulation import tabulate as gather

    results = (_results_of(root, slug, run, attacks) for slug, (run, attacks) in runs.items())
    rows = gather(results, over_units, stronger_with)
    if lengths == "full" and "length" in rows:  # another study asks for them
        rows = rows[rows["length"] == "full"].drop(columns="length")
    storage.write_rows(out, rows if rates == "all" else rows[rows["chosen"]])


def _results_of(root: Path, slug: str, run: Run, attacks: Sequence[str]) -> RunResults:
    """Read the results of one run and of its attacks."""
    from leakbound.accounting.lower_limits import evidence, evidence_rows
    from leakbound_lab.claims.tabulation import RunResults, accounting_rows

    trained = run.rounds > 0
    record = read_record(output(root, "train", slug, "provenance"), "train") if trained else {}
    paths = {name: output(root, "attack", f"{slug}/{name}", "rows") for name in attacks}
    rows = {name: read_table(path, SCORES, "attack") for name, path in paths.items()}
    leakage = record.get("leakage")
    scores, uploads = (membership_scores(root, slug, attacks, name) for name in MEMBERSHIP)
    return RunResults(
        run=slug,
        **run.coordinates(),
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


STEP = Step(tabulate, jobs, final=True)
