"""Mistakes of claims in the catalogue of figures, found before a run."""

from collections.abc import Iterator
from typing import Any

from leakbound import registry
from leakbound.config.catalogue import ClaimConfig, FigureConfig, admitted, plain_values
from leakbound.config.messages import shown
from leakbound.config.whole import Config


def claim_mistakes(where: str, claim: ClaimConfig, figure: FigureConfig, config: Config) -> Iterator[str]:
    """Yield mistakes of a claim whose options its test knows."""
    tests = registry.CLAIM_TESTS
    check = getattr(tests.get(claim.test), "check", None) if claim.test in tests.names() else None
    if check is None:  # a test from outside raises when it runs
        return
    options = check(claim.options)
    yield from _delta_mistakes(where, claim, getattr(options, "exact", False))
    yield from _match_mistakes(f"{where}.options.match", options, figure, config)
    for part in ("where", "a", "b"):
        yield from excluded_mistakes(f"{where}.options.{part}", getattr(options, part, None), figure)


def excluded_mistakes(where: str, conditions: Any, figure: FigureConfig) -> Iterator[str]:
    """Yield conditions on the rows of a figure that its own ``select`` contradicts.

    Args:
        where: Key of the conditions.
        conditions: Column to what rows must have, or None.
        figure: Entry of the catalogue.
    """
    for column, wanted in (conditions or {}).items():
        values = plain_values(wanted)
        if column in figure.select and values and not figure.admitted(column, values):
            yield (
                f"{where}.{column} = {shown(wanted)}: the figure's select.{column} = "
                f"{shown(figure.select[column])} leaves no such row"
            )


def _match_mistakes(where: str, options: Any, figure: FigureConfig, config: Config) -> Iterator[str]:
    """Yield a claim that matches two series by their levels, of which only one has levels."""
    study = config.studies.get(figure.study or "")
    match = getattr(options, "match", ())
    if study is None or not {"level", "strength"} & {*match}:
        return
    declared = config.known_defenses()
    with_levels: dict[bool, str] = {}
    for side in getattr(options, "series", None) or (options.a, options.b):
        wanted = {**figure.select, **options.where, **(side or {})}.get("defense")
        names = admitted(wanted, declared.keys() & study.defenses.keys()) if side is not None else ()
        kinds = {declared[name].has_level for name in names}
        if len(kinds) == 1:
            with_levels |= {kinds.pop(): ", ".join(sorted(names))}
    if len(with_levels) == 2:
        rest = [column for column in match if column not in ("level", "strength")]
        yield (
            f"{where} = {shown(match)}: {with_levels[False]}, without a level, and {with_levels[True]} share "
            f"no level, so nothing matches and the claim stays undecided; write match: {shown(rest)}"
        )


def _delta_mistakes(where: str, claim: ClaimConfig, exact: bool) -> Iterator[str]:
    """Yield a smallest effect of interest that is missing, or one given for a closed form."""
    if exact and claim.delta is not None:
        yield f"{where}.delta = {claim.delta:g}: closed forms hold or fail without chance; leave out delta and unit"
    elif not exact:
        try:
            claim.smallest_effect()
        except ValueError as error:
            yield f"{where}: {error}"
