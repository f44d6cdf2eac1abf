"""Verdicts on the claims of a run and of its repeat with another seed, whose blocks are added once.

Two analyses of the same claim give chance two occasions. Each therefore has half of the level.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from leakbound_lab.claims.evaluation import GeneratorOf, evaluate
from leakbound_lab.config.catalogue import FigureConfig
from leakbound_lab.config.whole import Config

_CLAIM = ["paper", "figure", "claim", "dataset", "model"]
_UNDECIDED = "undecided"
_SHARED = ("privacy_noise", "covariance", "alpha", "training")
"""Settings that a run and its repeat must share."""


def differences(first: Config, repeat: Config, earlier: Sequence[Config] = ()) -> Iterator[str]:
    """Yield the settings by which a run is no repeat of another.

    A repeat has another seed. It may have other replicas, fewer studies, fewer datasets or networks of a study, and
    defenses or levels in addition.

    Args:
        first: Configuration of the first run.
        repeat: Configuration of the run that may repeat it.
        earlier: Configurations of its repeats whose blocks it has already.
    """
    if first.seed == repeat.seed:
        yield f"seed = {repeat.seed} in both, so the replicas are the same"
    for name in _SHARED:
        if getattr(first, name) != getattr(repeat, name):
            yield f"{name} differs"
    repeated = {name for config in earlier for name in config.studies}
    for name in repeat.studies:
        if name in repeated:
            yield f"studies.{name} has a repeat already"
        elif name not in first.studies:
            yield f"studies.{name} is not in the first run"
        else:
            yield from _study_differences(name, first, repeat)


def _study_differences(name: str, first: Config, repeat: Config) -> Iterator[str]:
    """Yield the settings by which a study is no repeat of that of the first run."""
    before, study = first.studies[name], repeat.studies[name]
    free = {"replicas", "defenses", "datasets", "models"}
    if before.model_dump(exclude=free) != study.model_dump(exclude=free):
        yield f"studies.{name} differs"
    for words in ("datasets", "models"):
        if added := {*getattr(study, words)} - {*getattr(before, words)}:
            yield f"studies.{name}.{words} has {', '.join(sorted(added))}, which the first run lacks"
    for defense, levels in before.defenses.items():
        if not {*levels} <= {*study.defenses.get(defense, ())} or defense not in study.defenses:
            yield f"studies.{name}.defenses lacks levels of {defense} of the first run"
        if first.defense(defense) != repeat.defense(defense):
            yield f"defenses.{defense} differs"
    for attack in study.attacks:
        if getattr(first.attacks, attack, None) != getattr(repeat.attacks, attack, None):
            yield f"attacks.{attack} differs"
    for dataset in sorted({*study.datasets} & {*before.datasets}):
        if first.datasets[dataset] != repeat.datasets[dataset]:
            yield f"datasets.{dataset} differs"


def pooled_rows(first: pd.DataFrame, repeat: pd.DataFrame) -> pd.DataFrame:
    """Append the rows of a repeat, whose replicas are numbered after those of the first run.

    Rows about all replicas of the first run have number −1, those about all replicas of the repeat −2.

    Args:
        first: Rows of a table of the first run, with the column replica.
        repeat: Rows of the same table of the repeat.

    Returns:
        Rows of both, with the columns of the first run and then those that only the repeat has.
    """
    later = repeat["replica"].add(int(first["replica"].max()) + 1).where(repeat["replica"] >= 0, -2)
    return pd.concat([first, repeat.assign(replica=later)], ignore_index=True)


def evaluate_twice(
    figure: FigureConfig, first: pd.DataFrame, repeat: pd.DataFrame, alpha: float, generator_of: GeneratorOf
) -> pd.DataFrame:
    """Test the claims of a figure on the rows of a run, then on those of the run and its repeat together.

    Each analysis tests at half of the level, so that both together err in at most a share ``alpha`` of cases.
    A claim has the verdict of the first analysis, or that of both runs together if the first analysis left it
    undecided, or if one of them finds that the datasets differ. A claim *flips* if both analyses decide it
    otherwise differently, or if one run reproduces and the other contradicts it. It is undecided then.

    Args:
        figure: Entry of the catalogue.
        first: Rows of the first run.
        repeat: Rows of its repeat, with the replicas numbered from 0.
        alpha: Level of the verdicts, in (0, 0.5). If one of the runs has no block of any claim of the figure,
            there is one analysis only, at the full level.
        generator_of: As for :func:`leakbound_lab.claims.evaluation.evaluate`.

    Returns:
        Table as of :func:`~leakbound_lab.claims.evaluation.evaluate`, whose numbers are those of all blocks. It
        has the further columns ``first``, the verdict of the first analysis, and ``repeat``, that of the
        repeat alone at the full level. Either is empty for a setting that its run lacks.

    Raises:
        ConfigError: If a claim's options are wrong, or it lacks delta.
        SelectionError: If a claim's condition names an unknown column.
    """
    alone = {
        "first": evaluate(figure, first, alpha / 2, generator_of),
        "repeat": evaluate(figure, repeat, alpha, generator_of),
    }
    analysed = alone["first"]["exact"] | (alone["first"]["blocks"] > 0)
    if not (alone["repeat"]["exact"] | (alone["repeat"]["blocks"] > 0)).any():
        once = evaluate(figure, first, alpha, generator_of)
        return once.assign(first=once["verdict"], repeat="")
    level = alpha / 2 if analysed.any() else alpha
    verdicts = evaluate(figure, pooled_rows(first, repeat), level, generator_of)
    for name, table in alone.items():
        reached = table[[*_CLAIM, "verdict"]].rename(columns={"verdict": name})
        verdicts = verdicts.merge(reached, on=_CLAIM, how="left")
    verdicts[list(alone)] = verdicts[list(alone)].fillna("")
    if not analysed.any():
        verdicts["first"] = ""
    settled = [_settled(*each) for each in verdicts[["verdict", *alone]].itertuples(index=False)]
    verdicts["verdict"] = [verdict for verdict, _ in settled]
    notes = [f"; {note}" if note else "" for _, note in settled]
    verdicts["detail"] += pd.Series(notes, index=verdicts.index, dtype=object)
    return verdicts


def _settled(both: str, first: str, repeat: str) -> tuple[str, str]:
    """Return the verdict that follows from the two analyses and from the repeat alone, and a note if it needs one."""
    opposite = {first, repeat} == {"reproduced", "contradicted"}
    if first in ("", _UNDECIDED) or (both != _UNDECIDED and "mixed" in (first, both) and not opposite):
        return both, ""
    if both not in (first, _UNDECIDED) or opposite:
        return _UNDECIDED, f"flips: {first} by the first run, {repeat} by its repeat, {both} by both"
    return first, "decided by the first run" if both == _UNDECIDED else ""
