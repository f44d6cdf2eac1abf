"""The one statement of a bound: what is bounded, for whom, with which labels, under which noise, in numbers and words.

Every place that states a bound makes it by :func:`state` and writes one of its forms: the sentence, the
short form, the numbers, tags or metrics. Each form names in itself what the number leaves out.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from leakbound.accounting.dp import Accountant, composed_epsilon, private_nats
from leakbound.accounting.leakage import PrivacyEvent, Schedule, composed_leakage, composed_nats, repeated
from leakbound.accounting.risk import bound_text
from leakbound.words import in_nats

Unit = Literal["record", "owner", "client"]
LabelKind = Literal["counted", "covered", "uncounted", "none"]
NO_BOUND = "no bound"
SEEDED = "noise from a seed"
_DIGITS = 4
STATED_BOUND = "stated_bound"
"""Group of metrics that bound a release."""
IF_SECRET = "if_noise_were_secret"
"""Group of metrics that would bound a release if its noise were secret, and end of their names elsewhere."""
KINDS = (STATED_BOUND, IF_SECRET)
"""Groups of metrics."""
LABEL_WORDS = {
    "counted": "with_labels",
    "covered": "with_labels",
    "uncounted": "plus_labels_not_counted",
    "none": "no_labels_released",
}
_LABEL_SCOPES = {
    "counted": "labels included",
    "covered": "labels included",
    "uncounted": "plus labels, not counted",
    "none": "no label is released",
}
EQUAL_LABELS = "a label of another column where it equals the counted one of its record"
OTHER_VALUES = "values besides inputs and labels that were released as they are"
EQUAL_RECORDS = "which records are equal"
PUBLIC_ARE_OTHERS = (
    "are others than the protected ones: equal ones, of which there are many among them, cannot show it"
)
EARLIER_SEEDS = "uses that an earlier version counted, if a seed repeats their noise"
OWN_NOISE = "the noise itself, a statistic of these records"
INDEPENDENT = {
    "record": "records are taken as independent of each other, and views of one record are not known",
    "owner": "records of one owner may depend on each other; owners are taken as independent",
    "client": "clients are taken as independent of each other",
}


@dataclass(frozen=True)
class Statement:
    """A bound on what a release reveals about one record, or about all records of one owner together.

    Attributes:
        release: What is bounded, e.g. ``the weights of one replica``.
        unit: Whose values are bounded: a ``record`` with all its copies, all records of an ``owner`` together,
            or a ``client``.
        group: Most rows that are of one unit: copies of a record, or records of an owner. They are added,
            removed or replaced together.
        values: Nats about the values of the unit, with its labels if those are ``covered``. ∞ if none was
            derived.
        labels: Nats that labels reveal in addition, if they are ``counted``.
        label_kind: ``counted`` in ``labels``, ``covered`` by ``values`` (DP), ``uncounted``, or ``none``
            released.
        every: Whether the nats hold for every unit, and not on average over units like the calibration's.
        secure: Whether all noise is secret. With noise from a seed there is no bound.
        epsilon: ε of differential privacy for the whole unit and its labels, for every unit, or None.
        delta: δ, or None.
        accountant: Accountant of ε, or None.
        adjacency: Neighbours of ε: one unit is added or removed, or one is replaced, or, in fixed batches, the
            gradients of one are 0.
        parts: For DP behind a channel, nats of its bounds: ``gradients``, and ``images`` with ``labels``.
        uncovered: What of the release the bound does not cover, with the reason.
        why_not: Reason why no bound was derived, empty if one was.
        assumptions: What else the bound rests on, one sentence each.
    """

    release: str
    unit: Unit
    group: int
    values: float
    labels: float
    label_kind: LabelKind
    every: bool
    secure: bool
    epsilon: float | None = None
    delta: float | None = None
    accountant: Accountant | None = None
    adjacency: Literal["add or remove one", "replace one", "zero out one"] = "add or remove one"
    parts: Mapping[str, float] = field(default_factory=dict)
    uncovered: tuple[str, ...] = ()
    why_not: str = ""
    assumptions: tuple[str, ...] = ()

    @property
    def nats(self) -> float:
        """Nats about the unit with its labels, as far as they are counted. They are ∞ without a derived bound."""
        return self.values + self.labels

    @property
    def derived(self) -> bool:
        """True if there is a finite number, nats or ε alone, which bounds the release if the noise is secret."""
        finite = math.isfinite(self.nats) or (self.epsilon is not None and math.isfinite(self.epsilon))
        return not self.why_not and finite

    @property
    def bounded(self) -> bool:
        """True if the release has a bound: one was derived, and the noise is secret."""
        return self.derived and self.secure

    @property
    def if_secret(self) -> "Statement":
        """The statement of the same release, had its noise been drawn in secret."""
        return replace(self, secure=True)

    @property
    def amount(self) -> str:
        """The number alone, for whom it holds and what of labels it holds, of a bound that was derived."""
        return self._amount() if self.derived else NO_BOUND

    @property
    def subject(self) -> str:
        """Record, client or owner that the bound is about, with copies or records that count as one."""
        if self.unit == "owner":
            return f"all records of one owner together (at most {self.group})"
        if self.group > 1:
            return f"one {self.unit} with all its copies (at most {self.group})"
        return f"one {self.unit}"

    @property
    def holds(self) -> str:
        """For whom the nats hold."""
        return f"for every {self.unit}" if self.every else f"on average over {self.unit}s"

    @property
    def scope(self) -> str:
        """For whom the nats hold, and what of labels they hold, without a number."""
        return f"{self.holds}, {_LABEL_SCOPES[self.label_kind]}"

    @property
    def short(self) -> str:
        """The bound for a cell of a table, or that there is none and what secret noise would give."""
        if not self.derived:
            return NO_BOUND
        return (
            self._amount() if self.secure else f"{NO_BOUND}: {SEEDED} (if it were secret: {self._amount()})"
        )

    @property
    def sentence(self) -> str:
        """The bound in one line, with all that the number leaves out."""
        subject = f"{self.release[:1].upper()}{self.release[1:]}"
        if not self.derived:
            return f"{subject}: {NO_BOUND}{f': {self.why_not}' if self.why_not else ''}."
        if not self.secure:
            return f"{subject}: {NO_BOUND}: {SEEDED}, which whoever knows or tries it subtracts."
        clauses = [
            f"{subject} reveal about {self.subject} at most {self._amount()}",
            INDEPENDENT[self.unit],
            "secure noise",
        ]
        if self.uncovered:
            clauses.append(f"not covered: {', '.join(self.uncovered)}")
        return f"{'; '.join(clauses)}."

    def _amount(self) -> str:
        """Write ε and nats, for whom they hold, and what of labels they hold."""
        nats = f"{in_nats(upper_bound(self.nats))} {self.holds}"
        labels = f", {_LABEL_SCOPES[self.label_kind]}"
        if self.label_kind == "counted":
            labels = f", {upper_bound(self.labels)} of them by labels"
        if "images" in self.parts:
            labels += f" (a channel lets {upper_bound(self.parts['images'])} of the values through)"
        if self.epsilon is None:
            return nats + labels
        delta = "" if self.delta is None else f" at δ = {self.delta:g}"
        nats = nats if math.isfinite(self.nats) else f"for every {self.unit}"
        return f"ε = {upper_bound(self.epsilon)}{delta} ({self.adjacency} {self.unit}), {nats}{labels}"

    def numbers(self) -> dict[str, Any]:
        """Return plain values for JSON: all attributes, ``bounded``, ``nats``, ``sentence`` and ``short``.

        Numbers that are not finite are None.
        """
        values = {**asdict(self), "nats": self.nats, "bounded": self.bounded}
        plain = {name: _finite(value) for name, value in values.items()}
        words = {"sentence": self.sentence, "short": self.short}
        return {**plain, "parts": {name: _finite(value) for name, value in self.parts.items()}, **words}

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, Any]) -> "Statement":
        """Make the statement whose :meth:`numbers` were stored.

        Raises:
            KeyError: If a number is missing.
            TypeError: If one is of another type.
        """
        values = {each.name: numbers[each.name] for each in fields(cls)}
        values["values"] = math.inf if values["values"] is None else float(values["values"])
        for name in ("uncovered", "assumptions"):
            values[name] = tuple(map(str, values[name]))
        return cls(**values)

    def metrics(self) -> dict[str, float]:
        """Return the derived numbers by names for a chart, empty if none was derived.

        A name says whether the number is a bound or would be one with secret noise, of what unit, for each
        unit or on average, and what of labels it holds, so that numbers of one name mean the same.
        """
        if not self.derived:
            return {}
        kind = STATED_BOUND if self.secure else IF_SECRET
        whose = self.unit if self.unit != "record" or self.group == 1 else "record_with_copies"
        labels = LABEL_WORDS[self.label_kind]
        values = {}
        if math.isfinite(self.nats):
            values[f"nats_per_{whose}_{'each' if self.every else 'average'}_{labels}"] = self.nats
        if self.epsilon is not None and math.isfinite(self.epsilon):
            values[f"epsilon_per_{whose}_each_with_labels"] = self.epsilon
        return {f"{kind}/{name}": value for name, value in values.items()}

    def tags(self, name: str) -> dict[str, str]:
        """Return the sentence and what it rests on as tags of a run, each beginning with a name."""
        return {
            name: self.sentence,
            f"{name}_short": self.short,
            f"{name}_noise": "secure" if self.secure else "seeded",
            f"{name}_labels": self.label_kind,
        }


def state(
    release: str,
    *,
    secure: bool,
    labels: float | Literal["covered", "uncounted", "none"],
    uses: Iterable[Schedule] = (),
    events: Sequence[PrivacyEvent] = (),
    ratios: Float[np.ndarray, " d"] | None = None,
    delta: float | None = None,
    accountant: Accountant = "rdp",
    added: float = 0.0,
    unit: Unit = "record",
    group: int = 1,
    determinant: Callable[[Schedule], float] | None = None,
    uncovered: Sequence[str] = (),
    why_not: str = "",
    assumptions: Sequence[str] = (),
) -> Statement:
    """State what a release reveals, from the uses of records or owners, or from events of trainings.

    Uses are composed by :func:`~leakbound.accounting.leakage.composed_nats`, of an owner by adding every use,
    because each may be of another of its records, which depend on each other in any way. Nats of events of
    channels are those of :func:`~leakbound.accounting.leakage.composed_leakage`, of DP those of
    :func:`~leakbound.accounting.dp.private_nats`, with ε.

    Args:
        release: What is bounded, e.g. ``the weights of one replica``.
        secure: Whether all noise is secret.
        labels: Nats that the labels of a unit reveal, or ``covered`` if ``added`` holds them, ``uncounted`` if
            some are released without being counted, ``none`` if none is released. Those of DP are covered by
            ε, also if nats are given.
        uses: Schedule of each record or owner, or only of those that can leak most.
        events: Events of trainings on the same records, all behind one channel, all of DP, or all of noise on
            uploads whose nats are about the client.
        ratios: (d,) variance ratios of one use of the channel of the events.
        delta: δ of DP events.
        accountant: Accountant of ε.
        added: Nats that other releases reveal about the same unit, >= 0, e.g. of earlier ledgers.
        unit: Whose uses they are. Events say it themselves.
        group: Most rows of one unit. Events say it themselves.
        determinant: Function from a schedule to the nats of its determinant, where all axes are known.
        uncovered: What of the release the bound does not cover.
        why_not: Reason why no bound was derived.
        assumptions: What else the bound rests on.

    Raises:
        ValueError: If labels or added nats are negative, or events cannot be composed.
    """
    counted = 0.0 if isinstance(labels, str) else float(labels)
    if not (counted >= 0 and added >= 0):
        raise ValueError(f"labels = {labels}, added = {added}: nats are >= 0")
    if events:
        unit = events[0].unit
        group = max(event.rows for event in events)
    facts: dict[str, Any] = {
        "release": release,
        "unit": unit,
        "group": group,
        "secure": secure,
        "uncovered": tuple(uncovered),
        "why_not": why_not,
        "assumptions": tuple(assumptions),
    }
    kind: LabelKind = labels if isinstance(labels, str) else "counted"
    if why_not:
        return Statement(**facts, values=math.inf, labels=0.0, label_kind=kind, every=False)
    if events and events[0].bound == "epsilon":
        budget = {} if delta is None else _budget(events, delta, accountant, group)
        return _stated_by_epsilon(facts | budget, events, ratios, counted, added)
    if events and events[0].bound == "client":
        return _stated_of_client(facts, events, added)
    if events:
        values = math.inf if ratios is None else composed_leakage(events, ratios).record
    else:
        values = _most_nats(uses, unit, determinant)
    return Statement(**facts, values=values + added, labels=counted, label_kind=kind, every=False)


def _stated_by_epsilon(
    facts: Mapping[str, Any],
    events: Sequence[PrivacyEvent],
    ratios: Float[np.ndarray, " d"] | None,
    labels: float,
    added: float,
) -> Statement:
    """State what DP events reveal, whose nats cover the labels.

    Args:
        facts: What the statement says besides.
        events: Events of the trainings.
        ratios: (d,) variance ratios of one use of their channel, if they have one.
        labels: Nats that the labels of a unit reveal.
        added: Nats that other releases reveal about the same unit.
    """
    nats = private_nats(events, ratios, labels)
    # The bound through the images is an average over records, that of the gradients is not.
    return Statement(
        **facts,
        parts={name: value for name, value in nats.items() if name != "record"},
        values=nats["record"] + added,
        labels=0.0,
        label_kind="covered",
        every=nats["record"] == nats.get("gradients", nats["record"]),
    )


def _stated_of_client(facts: Mapping[str, Any], events: Sequence[PrivacyEvent], added: float) -> Statement:
    """State what events of noise on uploads reveal about the client, labels and all else included."""
    # An upload is bounded after any earlier ones, so that uploads add up.
    nats = sum(repeated(event.steps, event.capacity or math.inf) for event in events)
    about = {**facts, "unit": "client", "group": 1}
    return Statement(**about, values=nats + added, labels=0.0, label_kind="covered", every=True)


def _budget(
    events: Sequence[PrivacyEvent], delta: float, accountant: Accountant, group: int
) -> dict[str, Any]:
    """Return ε of DP events at δ, its accountant, and the neighbouring data where they are not the usual ones."""
    # Groups are composed by Rényi orders, whatever the accountant of single records.
    budget: dict[str, Any] = {
        "epsilon": composed_epsilon(events, delta, accountant),
        "delta": delta,
        "accountant": "rdp" if group > 1 else accountant,
    }
    cyclic = any(event.sampling == "cyclic" for event in events)
    return budget | ({"adjacency": "zero out one"} if cyclic else {})


def _most_nats(
    uses: Iterable[Schedule], unit: Unit, determinant: Callable[[Schedule], float] | None
) -> float:
    """Compute the nats of the record or owner whose uses reveal most, 0 without any."""
    if unit == "owner":
        return max(
            (sum(repeated(k, mechanism.nats(1)) for mechanism, k in each) for each in uses), default=0.0
        )
    return max((composed_nats(each, determinant) for each in uses), default=0.0)


def upper_bound(value: float, digits: int = _DIGITS) -> str:
    """Write a number that bounds something from above with few digits, rounded up."""
    return "∞" if math.isinf(value) else bound_text(value, digits=digits)


def _finite(value: Any) -> Any:
    """Replace a number that is not finite by None, and a tuple by a list."""
    if isinstance(value, tuple):
        return list(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
