"""A statement on paper: one page for whoever answers for a release, and the same as plain values.

All bounds on it are those of a :class:`~leakbound.accounting.statement.Statement`. The page shows the plain
values and nothing else, so that equal values give the same bytes.
"""

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from leakbound.accounting.risk import bound_text, membership_bound, naming_bound
from leakbound.accounting.statement import INDEPENDENT, Statement

FORM = 1
"""Version of the plain values."""
_NO_LIMIT = 0.995  # probability or area from which a bound limits nothing
_SECRET = "secret: drawn from the operating system's generator, without a seed that repeats it"
_SEEDED = "from a seed, which whoever knows or tries it subtracts"
_LABELS = {
    "counted": "their nats are part of the bound",
    "covered": "covered by the bound",
    "uncounted": "released, and not part of the bound",
    "none": "none is released",
}


@dataclass(frozen=True)
class StatedData:
    """The records that a release is computed from.

    Attributes:
        name: File, folder or name of the data.
        records: Number of records.
        owners: Number of people that they are about, None where nobody has said it.
        digest: SHA-256 of the data in hexadecimal digits, None where the page leaves room for it.
        digest_of: What the digest is of, e.g. ``the file``.
    """

    name: str
    records: int
    owners: int | None = None
    digest: str | None = None
    digest_of: str = ""


@dataclass(frozen=True)
class Release:
    """Release to be signed: the item that is given away, and who sees what of it.

    Attributes:
        what: Name of the release, e.g. ``noisy copies of the records``.
        place: Where it lies, or empty.
        digest: SHA-256 of its files in hexadecimal digits, None where the page leaves room for it.
        sees: Who, and what they see, in pairs.
        limit: Limit that was asked for, in words, or empty.
    """

    what: str
    place: str = ""
    digest: str | None = None
    sees: Sequence[tuple[str, str]] = ()
    limit: str = ""


def sheet(
    bounds: Mapping[str, Statement],
    data: StatedData,
    release: Release,
    *,
    version: str,
    date: datetime.date,
    assumptions: Sequence[str] = (),
    candidates: int | None = None,
) -> dict[str, Any]:
    """Collect what the page says, as plain values for JSON.

    Args:
        bounds: Name of a release to its statement. Risks, coverage and noise are those of the first.
        data: The records.
        release: The release.
        version: Version of the program.
        date: Date of the statement.
        assumptions: What else the bounds rest on, one sentence each.
        candidates: Number of records or owners that an attacker looks for the true one among. Default: as many as
            there are at least, 2 or more.

    Returns:
        Plain values: ``form``, ``version``, ``date``, ``data``, ``release``, ``bounds`` (``of`` with the numbers
        of each statement), ``noise``, ``labels``, ``adjacency``, ``covered``, ``not_covered``, ``assumptions``,
        ``risks`` (``risk``, ``at_most`` or None without a limit, ``guessing``) and ``nats``, which they follow from.

    Raises:
        ValueError: If there is no bound.
    """
    if not bounds:
        raise ValueError("bounds: give at least one statement")
    first = next(iter(bounds.values()))
    # There are at least so many units, and fewer candidates are named more easily.
    count = candidates or max(2, data.owners or data.records // first.group)
    return {
        "form": FORM,
        "version": version,
        "date": date.isoformat(),
        "data": asdict(data),
        "release": asdict(release) | {"sees": [list(pair) for pair in release.sees]},
        "bounds": [{"of": name, **statement.numbers()} for name, statement in bounds.items()],
        "noise": _SECRET if first.secure else _SEEDED,
        "labels": _LABELS[first.label_kind],
        "adjacency": _adjacency(first),
        "covered": first.bounded,
        "not_covered": list(first.uncovered),
        "assumptions": [INDEPENDENT[first.unit], *first.assumptions, *assumptions],
        "nats": first.nats if first.bounded and first.nats < float("inf") else None,
        "risks": list(_risks(first, count)),
    }


def sheet_page(facts: Mapping[str, Any]) -> str:
    """Write the values of :func:`sheet` as one page of A4, self-contained HTML. Values are text, never markup."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("sheet.html").render(facts=facts, percent=_percent)


def _adjacency(statement: Statement) -> str:
    """Say what a bound compares, and for whom it holds."""
    nats = (
        f"nats: about one {statement.unit} if all others are known, whatever replaces it, {statement.holds}"
    )
    return nats if statement.epsilon is None else f"ε: {statement.adjacency} {statement.unit}; {nats}"


def _risks(statement: Statement, count: int) -> Iterator[dict[str, Any]]:
    """Yield the risks that the nats of a bound allow, empty without a bound."""
    if not statement.bounded or statement.nats == float("inf"):
        return
    whom = "owner" if statement.unit == "owner" else "record"
    left_out = ", labels left out" if statement.label_kind == "uncounted" else ""
    advantage, area = membership_bound(statement.nats)
    yield {
        "risk": f"an attacker who holds {count} candidates identifies the right {whom}{left_out}",
        "at_most": _limited(naming_bound(statement.nats, count)),
        "guessing": 1.0 / count,
    }
    yield {
        "risk": f"an attacker recognises whether one {whom} was used, right minus wrong suspicions{left_out}",
        "at_most": _limited(advantage),
        "guessing": 0.0,
    }
    yield {
        "risk": f"the same, the chance to put a used {whom} above an unused one{left_out}",
        "at_most": _limited(area),
        "guessing": 0.5,
    }


def _limited(share: float) -> float | None:
    """Return a bound on a probability or an area, None where it limits nothing."""
    return share if share < _NO_LIMIT else None


def _percent(share: float | None) -> str:
    """Write a bound on a share in percent, rounded up."""
    return "no limit" if share is None else f"{bound_text(100 * share)} %"
