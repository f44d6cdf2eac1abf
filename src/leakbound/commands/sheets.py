"""Statements on paper of commands: what is released, who sees what, and the digest of the user's data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from leakbound import __version__
from leakbound.accounting.sheet import Release, StatedData, sheet
from leakbound.accounting.statement import Statement
from leakbound.commands.files import check_outputs, refusing
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.sheets import check_sheet, digest, today, write_sheet
from leakbound.engine.targets import Capacity, Identification, Leakage, Target
from leakbound.words import in_nats


def check(page: Path, out: Path) -> None:
    """Refuse a page that is there already, has another name, or would lie in what is given away.

    Raises:
        BadParameter: If it does.
    """
    if page.resolve().is_relative_to(out.resolve()):
        raise typer.BadParameter(
            f"--statement {page}: lies in {out}, which is given away, and names the records by their digest; name a "
            "file elsewhere"
        )
    with refusing("--statement", GuaranteeError):
        check_sheet(page)
    check_outputs(page, page.with_suffix(".json"))


def limit_of(target: Target, *, owned: bool = False) -> str:
    """Write a target as a limit, in words.

    Args:
        target: The target.
        owned: Whether all records of an owner together meet it, as they do one with ``records``.
    """
    of = "one copy" if target.uses in (None, 1) else f"{target.uses} copies together"
    if isinstance(target, Capacity):
        return f"at most {in_nats(f'{target.nats:g}')} by each copy of a record"
    owned = owned or target.records > 1
    subject, of_each = ("all records of one owner together", " of each") if owned else ("one record", "")
    if isinstance(target, Leakage):
        return f"at most {in_nats(f'{target.nats:g}')} about {subject} by {of}{of_each}"
    if isinstance(target, Identification):
        whom = "an owner, by all records together," if owned else "a record"
        return (
            f"{whom} identified among {target.among} with a probability of at most {target.probability:g} by "
            f"{of}{of_each}"
        )
    return f"the best linear estimate from {of} errs by at least {target.mse:g} squared per value"  # type: ignore[attr-defined]


def of_copies(
    page: Path, written: Mapping[str, Any], path: Path, out: Path, people: int | None, limit: str
) -> None:
    """Write the statement of noisy copies.

    Args:
        page: The page.
        written: Plain values of ``protection.json``.
        path: The user's records.
        out: Folder of the copies.
        people: Number of owners, None if they are not known.
        limit: Limit that was asked for.
    """
    labels = f", and the labels of {written['classes']} classes as they are" if written["classes"] else ""
    statement = Statement.from_numbers(written["statement"])
    different = written["records"] - written["repeated"]
    facts = sheet(
        {"the noisy copies": statement},
        StatedData(str(path), written["records"], people, *digest(path)),
        Release(
            "noisy copies of the records",
            str(out),
            written["digest"],
            (
                (
                    "Whoever has the copies",
                    f"one noisy copy of each record, their number, order and size{labels}",
                ),
                ("You alone", "the records, a ledger, and this page"),
            ),
            limit,
        ),
        version=__version__,
        date=today(),
        assumptions=written["assumed"],
        candidates=max(2, people or different // statement.group),
    )
    write_sheet(page, facts)


def of_networks(
    page: Path,
    bounds: Mapping[str, Statement],
    data: StatedData,
    release: Release,
    assumptions: tuple[str, ...],
    *,
    replace: bool = False,
) -> None:
    """Write the statement of trained networks. Arguments are those of :func:`leakbound.accounting.sheet.sheet`."""
    facts = sheet(bounds, data, release, version=__version__, date=today(), assumptions=assumptions)
    write_sheet(page, facts, replace=replace)
