"""From the files of a finished job to the record of its MLflow run: pure functions, no clock and no store."""

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pandas as pd

from leakbound.storage import read_arrays_and_metadata
from leakbound.tracking.records import Artifact, DataInput, Point, RunRecord, RunStatus
from leakbound.tracking.summary import BRIEF, headlines, summary

_EVENT_PARAMS = ("capacity", "noise", "noise_multiplier", "max_grad_norm", "sampling", "population")
_DIGEST = 16  # hexadecimal digits, as in the report
_SO_FAR = {"leakage": "so_far", "epsilon": "epsilon_so_far"}
"""Curves of the accountant, which stand with its bounds."""
_ACCOUNTED = {f"leakage/{name}" for name in _SO_FAR.values()}
_LEVELS = {
    "channel": "{} nats",
    "dpsgd": "noise {}",
    "dppsac": "noise {}",
    "parameter_noise": "std {}",
    "gradient_compression": "fraction {}",
    "large_batch": "factor {}",
    "compression": "direction {}",
}


@dataclass(frozen=True)
class RunFacts:
    """Name of a run, and all that it is found by.

    Attributes:
        preset: Name of the configuration.
        slug: Name of the run, e.g. ``digits/lenet/natural-4/n600-b64``.
        level: As the defense means it, e.g. capacity κ in nats; or none.
        rounds: Training steps, or communication rounds of a federated run.
        replicas: Number of seeds.
        mechanism: What the defense does, e.g. ``none``, ``channel``, ``dpsgd`` or ``custom``.
        papers: Papers whose figures show the run.
        figures: Those figures, ``paper/id``.
    """

    preset: str
    slug: str
    dataset: str
    model: str
    defense: str
    level: float | None
    rounds: int
    batch_size: int
    replicas: int
    mechanism: str
    papers: tuple[str, ...] = ()
    figures: tuple[str, ...] = ()

    @property
    def experiment(self) -> str:
        """Experiment that holds the run: one for each preset and dataset."""
        return f"{self.preset}/{self.dataset}"

    @property
    def about(self) -> str:
        """Description of that experiment."""
        return f"Runs on {self.dataset} under preset {self.preset}: means over replicas, with a child run for each"

    @property
    def name(self) -> str:
        """Defense first, so that a list sorted by name has its levels together."""
        level = "" if self.level is None else " " + _LEVELS.get(self.mechanism, "{}").format(f"{self.level:g}")
        return f"{self.defense}{level}, {self.model}, n{self.rounds} b{self.batch_size}"


class _Value(NamedTuple):
    """One value of one replica; -1 stands for all replicas."""

    kind: Literal["curve", "score", "interval"]
    replica: int
    point: Point

    @property
    def finite(self) -> bool:
        """True for a measurement."""
        return math.isfinite(self.point.value)

    @property
    def diverged(self) -> bool:
        """True of a training that went astray; a bound is infinite without noise, however training goes."""
        return self.kind == "curve" and not self.finite and self.point.key not in _ACCOUNTED


def describe(
    facts: RunFacts,
    curves: pd.DataFrame | None,
    scores: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Any],
    *,
    channel: Mapping[str, float | str] | None = None,
    files: Sequence[Path] = (),
    over_units: Mapping[str, str] | None = None,
) -> RunRecord:
    """The MLflow run of a finished job, federated or not: means and spread over replicas, and one child per replica.

    A value that is not finite is no measurement and is left out. If a replica diverged, the run is FAILED and shows
    curves as far as all replicas have them, but no mean of its scores: it is never mixed into a result.

    Args:
        facts: Name of the run, and all that it is found by.
        curves: Rows (replica, step, metric, value) of its training; None for an untrained network.
        scores: Source (``membership``, ``leakage``, ``federated``, ...) to rows (replica, variant, unit, metric,
            value, and optionally low, high); unit -1 stands for all units, replica -1 for all replicas.
        provenance: Record of the job, with ``started`` (seconds since 1970, or ISO 8601), ``seconds``, and if known
            ``rates`` (a record for each replica and candidate learning rate), ``events`` (privacy events) and
            ``diverged`` (one flag for each replica).
        channel: Facts about the channel, as :func:`channel_facts` gives them.
        files: Artifacts.
        over_units: Source to the summary of its rows over units, by pandas' name for it; all others have their mean.

    Raises:
        ValueError: If the provenance does not say when the job ran.
    """
    start, end = _times(provenance)
    values = [
        *_curve_values(curves, start, end, facts.rounds),
        *(one for source in sorted(scores) for one in _score_values(source, scores[source], end, over_units or {})),
    ]
    diverged = {replica for replica, flag in enumerate(provenance.get("diverged") or []) if flag}
    diverged |= {one.replica for one in values if one.diverged}
    replicas = sorted({one.replica for one in values} - {-1}) or list(range(facts.replicas))
    rates = {one["replica"]: one["learning_rate"] for one in provenance.get("rates", ()) if one["chosen"]}

    def record(key: str, name: str, failed: bool, points: Sequence[Point], **content: Any) -> RunRecord:
        metrics = (*(() if failed else headlines(points)), *points)
        status: RunStatus = "FAILED" if failed else "FINISHED"
        return RunRecord(key, facts.experiment, name, start, end, status=status, metrics=metrics, **content)

    children = tuple(
        record(
            f"{facts.slug}#{replica}",
            f"replica {replica}",
            replica in diverged,
            [
                one.point
                for one in values
                if one.replica == replica and (one.kind == "curve" or replica not in diverged) and one.finite
            ],
            params=_texts({"replica": replica, "learning_rate": rates.get(replica)}),
            tags={"replica": str(replica), "slug": facts.slug, "mlflow.source.name": "leakbound"},
        )
        for replica in replicas
    )
    means = tuple(sorted(_means(values, len(replicas), bool(diverged)), key=lambda point: (point.key, point.step)))
    return record(
        *(facts.slug, facts.name, bool(diverged), means),
        about=facts.about,
        params=_params(facts, provenance, channel or {}),
        tags=_tags(facts, provenance, diverged) | _told(facts, provenance, means, failed=bool(diverged)),
        artifacts=tuple(map(Artifact.of, files)),
        data=tuple(_data(facts, provenance)),
        children=children,
    )


def describe_figures(
    preset: str, files: Sequence[Path], root: Path, claims: Mapping[str, int], tags: Mapping[str, str] | None = None
) -> RunRecord:
    """The MLflow run that keeps all figures, tables and verdicts of a configuration.

    Args:
        preset: Name of the configuration.
        files: Artifacts; the newest one's time of change dates the run.
        root: Folder that holds them; their folders below it are kept.
        claims: Verdict to number of claims.
        tags: Further tags, e.g. the commit.

    Raises:
        ValueError: If there are no files.
    """
    if not files:
        raise ValueError(f"{root}: there are no figures to log; draw them first")
    end = max(int(path.stat().st_mtime * 1000) for path in files)
    return RunRecord(
        key="figures",
        experiment=f"{preset}/figures",
        name="figures, tables, claims",
        start=end,
        end=end,
        about=f"Figures, tables and verdicts on claims under preset {preset}",
        tags={"preset": preset, "mlflow.source.name": "leakbound", **(tags or {})},
        metrics=tuple(Point(metric_name("claims", verdict), 0, end, float(n)) for verdict, n in sorted(claims.items())),
        artifacts=tuple(
            Artifact.of(path, path.parent.relative_to(root).as_posix().removeprefix(".")) for path in files
        ),
    )


def channel_facts(path: Path) -> dict[str, float | str]:
    """Shape, capacity in nats per use, and noise variances in squared pixel units of a stored channel.

    Raises:
        DamagedFileError: If the file cannot be read.
    """
    arrays, metadata = read_arrays_and_metadata(path)
    variances = arrays["variances"]
    return {
        "shape": metadata["shape"],
        "capacity": float(metadata["capacity"]),
        "noise_variance_min": float(variances.min()),
        "noise_variance_mean": float(variances.mean()),
        "noise_variance_max": float(variances.max()),
    }


def metric_name(*words: str) -> str:
    """Words joined by slashes, each in the characters that every MLflow store allows."""
    return "/".join(re.sub(r"[^A-Za-z0-9_. -]", "_", word).strip(".") or "_" for word in words if word)[:250]


def curve_name(metric: str, *slot: str) -> str:
    """Name of a curve, in the group of its ``slot`` if it has one, else ``curves``; the accountant's in ``leakage``."""
    if metric in _SO_FAR:
        return metric_name("leakage", _SO_FAR[metric], *slot)
    return metric_name(*(slot or ("curves",)), metric)


def _times(provenance: Mapping[str, Any]) -> tuple[int, int]:
    """Start and end of the job, in milliseconds since 1970."""
    started = provenance.get("started")
    if started is None:
        raise ValueError("provenance.started is missing: MLflow's times come from files; run the job again")
    if isinstance(started, str):
        moment = datetime.fromisoformat(started)
        started = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    start = round(float(started) * 1000)
    return start, start + round(float(provenance.get("seconds", 0.0)) * 1000)


def _curve_values(curves: pd.DataFrame | None, start: int, end: int, rounds: int) -> Iterator[_Value]:
    """Values of curves; the time that the job took is spread evenly over its steps."""
    for row in () if curves is None else curves.itertuples():
        time = start + round((min(row.step / rounds, 1.0) if rounds else 1.0) * (end - start))
        point = Point(curve_name(str(row.metric)), int(row.step), time, float(row.value))
        yield _Value("curve", int(row.replica), point)


def _score_values(source: str, rows: pd.DataFrame, end: int, over_units: Mapping[str, str]) -> Iterator[_Value]:
    """One value for each metric, the one for all units or the summary over them, and its interval if known."""
    for (replica, variant, metric), group in rows.groupby(["replica", "variant", "metric"], sort=True):
        whole = group[group["unit"] == -1]
        summed = group if whole.empty else whole
        for column, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
            if column in summed and (column == "value" or not whole.empty):
                above = "spread" if suffix else "scores" if source < BRIEF else ""  # which is the first group
                value = float(summed[column].agg(over_units.get(source, "mean"), skipna=False))
                # A metric without other steps than 0 is drawn as bars over runs, not as a curve of one point.
                point = Point(metric_name(above, source, str(variant), f"{metric}{suffix}"), 0, end, value)
                yield _Value("interval" if suffix else "score", int(replica), point)


def _means(values: list[_Value], replicas: int, diverged: bool) -> Iterator[Point]:
    """Finite means and standard deviations over replicas of every curve and, unless one diverged, of every score."""
    groups: dict[tuple[str, str, int], list[_Value]] = defaultdict(list)
    for one in values:
        groups[one.kind, one.point.key, one.point.step].append(one)
    for (kind, key, step), group in sorted(groups.items()):
        whole = [one for one in group if one.replica == -1]
        complete = len(group) == replicas if kind == "curve" else kind == "score" and bool(whole or not diverged)
        if complete and all(one.finite for one in whole or group):
            known, time = pd.Series([one.point.value for one in whole or group]), group[0].point.timestamp
            yield Point(key, step, time, float(known.mean()))
            if len(known) > 1:
                yield Point(f"spread/{key}", step, time, float(known.std()))


def _params(facts: RunFacts, provenance: Mapping[str, Any], channel: Mapping[str, float | str]) -> dict[str, str]:
    """Settings as text, without what the run does not have."""
    events = provenance.get("events") or [{}]
    candidates = sorted({one["learning_rate"] for one in provenance.get("rates", ())})
    names = ("dataset", "model", "defense", "level", "rounds", "batch_size", "replicas")
    return _texts(
        {
            **{name: getattr(facts, name) for name in names},
            "learning_rate": provenance.get("learning_rate"),
            "learning_rates": ", ".join(f"{rate:g}" for rate in candidates),
            "privacy_noise": provenance.get("settings", {}).get("privacy_noise"),
            **{name: events[0].get(name) for name in _EVENT_PARAMS},
            "uses": max(event.get("uses", 0) for event in events) or None,
            **channel,
        }
    )


def _tags(facts: RunFacts, provenance: Mapping[str, Any], diverged: set[int]) -> dict[str, str]:
    """All that a run is found by."""
    return _texts(
        {
            **{name: getattr(facts, name) for name in ("slug", "preset", "dataset", "model", "defense", "level")},
            "paper": ",".join(facts.papers),
            "figures": ",".join(facts.figures),
            "diverged_replicas": ",".join(map(str, sorted(diverged))),
            **{name: provenance.get(name) for name in ("commit", "dirty", "settings_hash", "device")},
            "mlflow.source.name": "leakbound",
            "mlflow.source.git.commit": provenance.get("commit"),
        }
    )


def _data(facts: RunFacts, provenance: Mapping[str, Any]) -> Iterator[DataInput]:
    """The dataset, by the hash of the file that the job read."""
    digest = provenance.get("inputs", {}).get("dataset")
    if isinstance(digest, str):
        yield DataInput(facts.dataset, digest[:_DIGEST], "training" if facts.rounds else "attack")


def _told(facts: RunFacts, provenance: Mapping[str, Any], means: Sequence[Point], *, failed: bool) -> dict[str, str]:
    """Stated bounds of a training as tags, and the run's description."""
    bounds, sentence = _bounds(provenance)
    return {**bounds, "mlflow.note.content": summary(facts, means, sentence, failed=failed)}


def _bounds(provenance: Mapping[str, Any]) -> tuple[dict[str, str], str]:
    """Stated bounds of a training, of one replica and of all together, as tags and as a sentence."""
    if not {"released", "leakage"} <= provenance.keys():
        return {}, ""
    found, federated = provenance["leakage"], isinstance(provenance["leakage"], list)
    if federated:
        found = _federated_bounds(found, len(provenance["diverged"]))
    if found is None:
        return {"bound_replica": "none", "bound_replicas": "none"}, "It has no bound."
    one, together = (found[name]["stated"] for name in ("replica", "replicas"))
    told = "averages tell of one client" if federated else "weights tell of one record"
    sentence = f"Its {told} at most {one} by one replica, {together} by all {found['count']} together."
    return {"bound_replica": one, "bound_replicas": together}, sentence


def _federated_bounds(threats: Sequence[Mapping[str, Any]], replicas: int) -> dict[str, Any] | None:
    """Bounds of all rounds for the worst client, of one replica and of all; None if one has none."""
    totals = [float(threat["leak_total"]) for threat in threats if threat.get("leak_total") is not None]
    if len(totals) < replicas:
        return None
    figures = {"replica": max(totals), "replicas": sum(totals)}
    return {"count": replicas, **{name: {"stated": f"{nats:.4g} nats"} for name, nats in figures.items()}}


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    """Shortest texts of the values that are there and not empty; whole floats have no point."""
    return {
        name: repr(value).removesuffix(".0") if isinstance(value, float) else str(value)
        for name, value in values.items()
        if value is not None and value != ""
    }
