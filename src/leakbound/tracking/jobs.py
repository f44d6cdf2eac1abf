"""From the files of a finished job to the record of its MLflow run: pure functions, no clock and no store."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from leakbound.storage import read_arrays_and_metadata
from leakbound.tracking.records import Artifact, Point, RunRecord

_OVER_UNITS = {"model_inversion": "median"}  # over classes, as the paper's metric; all others are means over units
_SCORE_STEP = 0  # a metric without other steps is drawn as bars over runs, not as a curve of one point
_EVENT_PARAMS = ("capacity", "noise", "noise_multiplier", "max_grad_norm", "sampling", "population")
_UNITS = {
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
    """What a run is called and belongs to.

    Attributes:
        preset: Name of the configuration.
        slug: Name of the run, e.g. ``digits/lenet/natural-4/n600-b64``.
        level: As the defense means it, e.g. capacity κ in nats; or none.
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
        return f"Runs on {self.dataset} under preset {self.preset}: means over seeds, with a child run for each seed"

    @property
    def name(self) -> str:
        """Defense first, so that a list sorted by name has its levels together."""
        level = "" if self.level is None else " " + _UNITS.get(self.mechanism, "{}").format(f"{self.level:g}")
        return f"{self.defense}{level}, {self.model}, n{self.rounds} b{self.batch_size}"


@dataclass(frozen=True)
class _Span:
    """Time that a job took, in milliseconds since 1970, spread evenly over its steps."""

    start: int
    end: int
    rounds: int

    def at(self, step: int) -> int:
        """Time of ``step``."""
        share = min(step / self.rounds, 1.0) if self.rounds else 1.0
        return self.start + round(share * (self.end - self.start))


def describe(
    facts: RunFacts,
    curves: pd.DataFrame | None,
    attacks: Mapping[str, pd.DataFrame],
    provenance: Mapping[str, Any],
    *,
    channel: Mapping[str, float | str] | None = None,
    files: Sequence[Path] = (),
) -> RunRecord:
    """The MLflow run of a finished job: means and spread over replicas, and one child per replica.

    A value that is not finite is no measurement and is left out. If a replica diverged, the run is FAILED and shows
    curves as far as all replicas have them, but no mean of its attacks: it is never mixed into a result.

    Args:
        facts: What the run is called and belongs to.
        curves: Rows (replica, step, metric, value) of its training; None for an untrained network.
        attacks: Source (``membership``, ..., ``accounting``) to rows (replica, variant, unit, metric, value, and
            optionally low, high); unit -1 stands for all units, replica -1 for all replicas.
        provenance: Record of the job, with ``started`` (seconds since 1970, or ISO 8601), ``seconds``, and if known
            ``learning_rate``, ``events`` (privacy events) and ``diverged`` (one flag for each replica).
        channel: Facts about the channel, as :func:`channel_facts` gives them.
        files: Artifacts.

    Raises:
        ValueError: If the provenance does not say when the job ran.
    """
    span = _span(provenance, facts.rounds)
    curves = pd.DataFrame(columns=["replica", "step", "metric", "value"]) if curves is None else curves
    scores = pd.concat([_scores(source, rows) for source, rows in sorted(attacks.items())] or [_scores("", None)])
    diverged = _diverged(curves, provenance)
    replicas = sorted({*map(int, curves["replica"]), *map(int, scores["replica"])} - {-1}) or list(
        range(facts.replicas)
    )
    children = tuple(_child(facts, span, replica, curves, scores, replica in diverged) for replica in replicas)
    return RunRecord(
        key=facts.slug,
        experiment=facts.experiment,
        name=facts.name,
        start=span.start,
        end=span.end,
        about=facts.about,
        status="FAILED" if diverged else "FINISHED",
        params=_params(facts, provenance, channel or {}),
        tags=_tags(facts, provenance, diverged),
        metrics=tuple(_means(span, curves, scores, len(replicas), bool(diverged))),
        artifacts=tuple(Artifact.of(path) for path in files),
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
    folders = [path.relative_to(root).parent.as_posix().removeprefix(".") for path in files]  # "." is the top
    artifacts = [Artifact.of(path, folder) for path, folder in zip(files, folders, strict=True)]
    return RunRecord(
        key="figures",
        experiment=f"{preset}/figures",
        name="figures, tables, claims",
        start=end,
        end=end,
        about=f"Figures, tables and verdicts on claims under preset {preset}",
        tags={"preset": preset, "mlflow.source.name": "leakbound", **(tags or {})},
        metrics=tuple(Point(metric_name("claims", verdict), 0, end, float(n)) for verdict, n in sorted(claims.items())),
        artifacts=tuple(artifacts),
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


def metric_name(*parts: str) -> str:
    """Parts joined by slashes, each in the characters that every MLflow store allows."""
    return "/".join(re.sub(r"[^A-Za-z0-9_. -]", "_", part).strip(".") or "_" for part in parts if part)[:250]


def _span(provenance: Mapping[str, Any], rounds: int) -> _Span:
    """When the job ran."""
    started = provenance.get("started")
    if started is None:
        raise ValueError("provenance.started is missing: MLflow's times come from files; run the job again")
    if isinstance(started, str):
        moment = datetime.fromisoformat(started)
        started = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    start = round(float(started) * 1000)
    return _Span(start, start + round(float(provenance.get("seconds", 0.0)) * 1000), rounds)


def _diverged(curves: pd.DataFrame, provenance: Mapping[str, Any]) -> set[int]:
    """Replicas that the job calls diverged, or whose curves hold a value that is not finite."""
    named = {replica for replica, flag in enumerate(provenance.get("diverged") or []) if flag}
    return named | {int(row.replica) for row in curves.itertuples() if not math.isfinite(row.value)}


def _scores(source: str, rows: pd.DataFrame | None) -> pd.DataFrame:
    """One value for each metric of a source, the one for all units or their mean or median, and its interval if known.

    Columns: replica, key, value, interval (whether the value is an end of an interval).
    """
    found: list[tuple[int, str, float, bool]] = []
    if rows is not None:
        for (replica, variant, metric), group in rows.groupby(["replica", "variant", "metric"], sort=True):
            whole = group[group["unit"] == -1]
            how = _OVER_UNITS.get(source, "mean")
            part = group if whole.empty else whole
            for column, suffix in (("value", ""), ("low", "_low"), ("high", "_high")):
                if column in part and (column == "value" or not whole.empty):
                    key = metric_name(source, str(variant), f"{metric}{suffix}")
                    value = float(part[column].agg(how, skipna=False))
                    found.append((int(replica), key, value, column != "value"))
    frame = pd.DataFrame(found, columns=["replica", "key", "value", "interval"])
    return frame.astype({"interval": bool})


def _child(
    facts: RunFacts, span: _Span, replica: int, curves: pd.DataFrame, scores: pd.DataFrame, diverged: bool
) -> RunRecord:
    """The run of one replica: its own curves and, unless it diverged, its own scores."""
    points = [
        Point(metric_name(str(row.metric)), int(row.step), span.at(int(row.step)), float(row.value))
        for row in curves[curves["replica"] == replica].itertuples()
    ]
    if not diverged:
        own = scores[scores["replica"] == replica]
        points += [Point(str(row.key), _SCORE_STEP, span.end, float(row.value)) for row in own.itertuples()]
    return RunRecord(
        key=f"{facts.slug}#{replica}",
        experiment=facts.experiment,
        name=f"replica {replica}",
        start=span.start,
        end=span.end,
        status="FAILED" if diverged else "FINISHED",
        params={"replica": str(replica)},
        tags={"replica": str(replica), "slug": facts.slug, "mlflow.source.name": "leakbound"},
        metrics=tuple(point for point in points if math.isfinite(point.value)),
    )


def _means(span: _Span, curves: pd.DataFrame, scores: pd.DataFrame, replicas: int, diverged: bool) -> Iterator[Point]:
    """Mean and standard deviation over replicas of every curve and, unless one diverged, of every score."""
    for (metric, step), group in curves.groupby(["metric", "step"], sort=True):
        if len(group) == replicas:
            yield from _mean(metric_name(str(metric)), int(step), span.at(int(step)), group["value"])
    for key, group in scores[~scores["interval"]].groupby("key", sort=True):
        whole = group[group["replica"] == -1]
        if not whole.empty or not diverged:
            yield from _mean(str(key), _SCORE_STEP, span.end, (group if whole.empty else whole)["value"])


def _mean(key: str, step: int, timestamp: int, values: pd.Series) -> Iterator[Point]:
    """Mean, and standard deviation if there are several values; nothing if one is not finite."""
    if not all(map(math.isfinite, values)):
        return
    yield Point(key, step, timestamp, float(values.mean()))
    if len(values) > 1:
        yield Point(f"{key}_std", step, timestamp, float(values.std()))


def _params(facts: RunFacts, provenance: Mapping[str, Any], channel: Mapping[str, float | str]) -> dict[str, str]:
    """What was set, as text; what a run does not have is left out."""
    events = provenance.get("events") or [{}]
    found = {
        **{name: getattr(facts, name) for name in ("dataset", "model", "defense", "level", "rounds", "batch_size")},
        "replicas": facts.replicas,
        "learning_rate": provenance.get("learning_rate"),
        "privacy_noise": provenance.get("settings", {}).get("privacy_noise"),
        **{name: events[0].get(name) for name in _EVENT_PARAMS},
        "uses": max((event.get("uses", 0) for event in events), default=0) or None,
        **channel,
    }
    return {name: _text(value) for name, value in found.items() if value is not None}


def _text(value: object) -> str:
    """Shortest text of a value; whole floats have no point."""
    return repr(value).removesuffix(".0") if isinstance(value, float) else str(value)


def _tags(facts: RunFacts, provenance: Mapping[str, Any], diverged: set[int]) -> dict[str, str]:
    """What a run is found by."""
    found = {
        "slug": facts.slug,
        "preset": facts.preset,
        "dataset": facts.dataset,
        "model": facts.model,
        "defense": facts.defense,
        "level": facts.level,
        "paper": ",".join(facts.papers),
        "figures": ",".join(facts.figures),
        "diverged_replicas": ",".join(map(str, sorted(diverged))),
        **{name: provenance.get(name) for name in ("commit", "dirty", "settings_hash", "device")},
        "mlflow.source.name": "leakbound",
        "mlflow.source.git.commit": provenance.get("commit"),
    }
    return {name: _text(value) for name, value in found.items() if value not in (None, "")}
