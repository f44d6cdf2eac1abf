"""Everyday situations, what they truly reveal about one person, and how a front end ends in each.

The truth is ½ ln det(I + Σ Σ_j A_jᵀ P_j A_j): Σ is the covariance that the values of one person were drawn from, A_j
takes them to the row that release j shows, and P_j is the precision of its noise. The entropy of labels is added. A
front end states at least that, or warns, or refuses, or says in the line of the bound what it does not know.
"""

import math
import os
import re
import shutil
import warnings
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gaussians import MIXING, gaussian, made

from leakbound import GuaranteeError

COVARIANCE = MIXING.T @ MIXING
PEOPLE, PHOTOS, CLASSES = 20, 10, 10
PUBLIC = gaussian(4000)
ROWS = gaussian(PEOPLE, 1)
ALL = (np.eye(4),)  # a release that shows all four values of a person
WIDE = (-1e3, 1e3)
CHANCE = 0.97  # of the truth, for the moments of 4,000 public records
WARNINGS = {"CapacityWarning", "UncountedWarning", "UserWarning"}

# A line that states a bound.
BOUND = r"smallest valid bound|bound without labels|reveals? .*at most .*nats|leakage-nats|leakage_nats"
# What a line may say of what its bound does not know.
VIEWS = r"taken as independent of each other, and views of one .*are not known"
LABELS = r"plus labels, not counted|plus.labels.not.counted"
RUNS = r"uses in other runs, processes and engines are not known|other runs are not known"
SINCE = r"since \d{4}-\d\d-\d\d, \d+ runs?, \d+ records?"
CLEAN = r"all that is released is computed from what the protected loader gave out|passes around the channel"


@dataclass(frozen=True)
class Situation:
    """What people do, with what a bound may leave unsaid in it.

    Attributes:
        play: Releases through a front end, and returns what states the bound and the true nats.
        said: Pattern of the line of the bound that says what it does not know, None if nothing excuses it.
        needs: What a front end needs for it: ``owners``, ``labels``, ``uncounted`` ones, ``file``, ``loaders`` or
            ``states``.
    """

    play: object
    said: str | None = None
    needs: frozenset = frozenset()


class Front:
    """A front end, with what one person's values went through in it.

    Attributes:
        name: Its row in the table of the product.
        has: What it has of the needs of situations.
    """

    name = ""
    has: frozenset = frozenset()

    def __init__(self, folder: Path):
        self.folder, self.seen, self.clean = folder, 0.0, False

    @property
    def file(self) -> Path | None:
        """Path of a ledger that was made, None where the front end has none."""
        self.once(lambda: made(self.folder / "uses.db") if "file" in self.has else None)
        return self.folder / "uses.db" if "file" in self.has else None

    def once(self, work) -> None:
        """Do something with files, in one of the processes that play together."""
        work()

    def note(self, precision: np.ndarray, views) -> None:
        """Note that one person's values were released through these views."""
        self.seen = self.seen + sum(view.T @ precision @ view for view in views)

    def truth(self, covariance=COVARIANCE, labels: float = 0.0) -> float:
        """Nats about one person that all releases give together."""
        return 0.5 * float(np.linalg.slogdet(np.eye(len(covariance)) + covariance @ self.seen)[1]) + labels

    def make(self, target=None, public=PUBLIC, *, ledger="", **options):
        """What releases records."""
        raise NotImplementedError

    def release(self, made, rows=ROWS, views=ALL, *, owners=None, labels=None, name=None) -> None:
        """Release rows once each, of which each person has ``len(views)`` next to each other."""
        raise NotImplementedError

    def stated(self, made) -> float:
        """Nats that it states."""
        raise NotImplementedError

    def line(self, made) -> str:
        """The text that states them."""
        raise NotImplementedError


def says(text: str, what: str) -> bool:
    """Whether a text says it: what a bound takes for granted or leaves out in each line that states one."""
    if what not in (VIEWS, LABELS):
        return re.search(what, text) is not None
    bounds = [line for line in text.splitlines() if re.search(BOUND, line)]
    if what == VIEWS:  # the name of a metric says what of labels it holds
        bounds = [line for line in bounds if not re.search("leakage.nats", line)]
    return len(bounds) > 0 and all(re.search(what, line) for line in bounds)


def outcome(front: Front, situation: Situation) -> str:
    """Play a situation, and say how it ended. Fails if it is false in silence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made, true = situation.play(front)
            stated, line = front.stated(made), front.line(made)
        except GuaranteeError as error:
            return f"refused: {str(error)[:70]}"
        except SystemExit as error:  # a command
            return f"refused: {error}"
    if stated >= CHANCE * true:
        return f"{stated:.3g} / {true:.3g}"
    said = situation.said is not None and says(line, situation.said)
    warned = [one for one in caught if one.category.__name__ in WARNINGS]
    assert said or warned, f"{front.name}: {stated:.3g} stated, {true:.3g} true, and nobody says so: {line}"
    return f"{stated:.3g} / {true:.3g}, " + ("warned" if warned else "said in the line")


# -- one person's records depend on each other -------------------------------------------------------------------------
def photos(front, owned):
    """Ten photos of each person, whose values agree up to a tenth of their variance."""
    draws = np.random.default_rng(5).normal(size=(PEOPLE, 1 + PHOTOS, 4))
    rows = (np.sqrt(0.9) * draws[:, :1] + np.sqrt(0.1) * draws[:, 1:]) @ MIXING + 1.0
    made = front.make()
    views = [np.kron(np.eye(PHOTOS)[photo], np.eye(4)) for photo in range(PHOTOS)]
    whose = np.repeat(np.arange(PEOPLE), PHOTOS) if owned else None
    front.release(made, rows.reshape(-1, 4).astype(np.float32), views, owners=whose)
    return made, front.truth(np.kron(0.9 * np.ones((PHOTOS, PHOTOS)) + 0.1 * np.eye(PHOTOS), COVARIANCE))


def windows(front, owned):
    """Windows of four steps of a signal of twelve, at every step."""
    lags = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))
    covariance = 0.9**lags
    draw = np.random.default_rng(6).multivariate_normal(np.zeros(12), covariance, size=PEOPLE + 500)
    parts = [np.eye(12)[start : start + 4] for start in range(9)]
    public = np.concatenate([draw[PEOPLE:] @ part.T for part in parts]).astype(np.float32)
    made = front.make(public=public)
    rows = np.stack([draw[:PEOPLE] @ part.T for part in parts], axis=1).reshape(-1, 4)
    whose = np.repeat(np.arange(PEOPLE), len(parts)) if owned else None
    front.release(made, rows.astype(np.float32), parts, owners=whose)
    return made, front.truth(covariance)


def folds(front, owned):
    """Rows that each of five folds scales by its own deviations."""
    made = None
    for fold in range(5):
        scale = 1.0 / (1.0 + 0.01 * np.random.default_rng(fold).normal(size=4))
        made = front.make() if made is None else made
        rows = (ROWS * scale).astype(np.float32)
        front.release(made, rows, [np.diag(scale)], owners=np.arange(PEOPLE) if owned else None, name=f"fold{fold}")
    return made, front.truth()


def columns(front, owned):
    """Two channels on overlapping columns of one row, in one ledger."""
    whose, used = np.arange(PEOPLE) if owned else None, []
    for chosen in ([0, 1, 2], [1, 2, 3]):
        used.append(front.make(public=PUBLIC[:, chosen]))
        front.release(used[-1], ROWS[:, chosen], [np.eye(4)[chosen]], owners=whose, name=str(chosen))
    return used, front.truth()


def arrangement(front, owned):
    """The same columns in another order."""
    whose, made = np.arange(PEOPLE) if owned else None, None
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        made = front.make(public=PUBLIC[:, order])
        front.release(made, ROWS[:, order], [np.eye(4)[order]], owners=whose, name=str(order))
    return made, front.truth()


def precisions(front, owned):
    """A column of unix times as float64, then all as float32."""
    times, whose = np.array([0, 0, 0, 1.7e9]), np.arange(PEOPLE) if owned else None
    for kind in (np.float64, np.float32):
        rows, public = ((part.astype(np.float64) + times).astype(kind) for part in (ROWS, PUBLIC))
        made = front.make(public=public, value_range=(-1e3, 1.8e9))
        front.release(made, rows, owners=whose, name=kind.__name__)
    return made, front.truth()


def owner_forms(front):
    """The same columns in another order, and numbers of people that another table holds as text."""
    forms = (np.arange(PEOPLE), [f" {owner:05d}" for owner in range(PEOPLE)])
    made = None
    for order, whose in zip(([0, 1, 2, 3], [3, 2, 1, 0]), forms, strict=True):
        made = front.make(public=PUBLIC[:, order])
        front.release(made, ROWS[:, order], [np.eye(4)[order]], owners=whose, name=str(order))
    return made, front.truth()


# -- what else is released, and who counts -----------------------------------------------------------------------------
def uncounted_labels(front):
    """Labels that nobody counts, and then a run that counts them."""
    labels = np.arange(PEOPLE) % CLASSES
    front.release(front.make(), labels=labels, name="first")
    made = front.make(classes=CLASSES)
    front.release(made, labels=labels, name="second")
    return made, math.inf  # a row of uncounted labels has no bound


def labels_in_the_clear(front):
    """Labels next to the input, which nobody counts."""
    made = front.make()
    front.release(made, labels=np.arange(PEOPLE) % CLASSES)
    return made, front.truth(labels=math.log(CLASSES))


def labels_of_copies(front):
    """Each row stands there twice, with two labels."""
    made = front.make(classes=CLASSES)
    front.release(made, np.repeat(ROWS, 2, axis=0), [np.eye(4)] * 2, labels=np.arange(2 * PEOPLE) % CLASSES)
    return made, front.truth(labels=2 * math.log(CLASSES))


def corrected_labels(front):
    """Labels that are others in the second round."""
    made = front.make(classes=CLASSES)
    for shift in range(2):
        front.release(made, labels=(np.arange(PEOPLE) + shift) % CLASSES, name=f"round{shift}")
    return made, front.truth(labels=2 * math.log(CLASSES))


def copies_of_rows(front):
    """Each row stands there twice."""
    made = front.make()
    front.release(made, np.repeat(ROWS, 2, axis=0), [np.eye(4)] * 2)
    return made, front.truth()


def copied_ledger(front):
    """A ledger copied to an array job, which uses the copy."""
    made = front.make()
    front.release(made, name="here")
    copy = front.folder / "job" / "uses.db"
    front.once(copy.parent.mkdir)
    file = front.file
    front.once(lambda: shutil.copy2(file, copy))
    made = front.make(ledger=copy)
    front.release(made, name="there")
    made = front.make()
    front.release(made, name="again")
    return made, front.truth()


def another_folder(front):
    """A ledger that is named relative to the folder of each run."""
    made = None
    for run in ("one", "two"):
        front.once((front.folder / run).mkdir)
        with chdir(front.folder / run):
            if run == "one":
                file = front.file
                front.once(lambda file=file: os.replace(file, "uses.db"))
            made = front.make(ledger="uses.db")
            front.release(made, name=run)
    return made, front.truth()


def grown_data(front):
    """More records in the next round."""
    made = front.make()
    front.release(made)
    more = np.concatenate([ROWS, gaussian(5, 9)])
    front.release(made, more)
    return made, front.truth()


def rebuilt_data(front):
    """An equal dataset, made again, as in a cell of a notebook."""
    made = front.make()
    for _ in range(2):
        front.release(made, ROWS.copy())
    return made, front.truth()


def without_counts(front):
    """A run that goes on from weights, without its counts or a ledger."""
    front.release(front.make(ledger=None), name="first")
    made = front.restarted(front.make(ledger=None))
    front.release(made, name="second")
    return made, front.truth()


def clean_validation(front):
    """A validation on the records of the training as they are."""
    front.clean = True
    made = front.make()
    front.release(made)
    return made, math.inf


def owned(play, *, owner):
    """A situation with and without the owner of each row."""
    return lambda front: play(front, owner)


DEPENDENT = {
    "correlated owners": photos,
    "windows": windows,
    "scaled by fold": folds,
    "subset of columns": columns,
    "another arrangement": arrangement,
    "second precision": precisions,
}
SITUATIONS = {
    **{name: Situation(owned(play, owner=False), VIEWS) for name, play in DEPENDENT.items()},
    **{
        f"{name}, owners given": Situation(owned(play, owner=True), RUNS, frozenset({"owners"}))
        for name, play in DEPENDENT.items()
    },
    "another arrangement, owners in another form": Situation(owner_forms, RUNS, frozenset({"owners"})),
    "labels uncounted": Situation(labels_in_the_clear, LABELS, frozenset({"labels"})),
    "labels uncounted, then counted": Situation(uncounted_labels, LABELS, frozenset({"uncounted", "file"})),
    "two labels of equal rows": Situation(labels_of_copies, None, frozenset({"labels"})),
    "corrected labels": Situation(corrected_labels, None, frozenset({"labels"})),
    "copies of rows": Situation(copies_of_rows),
    "copied ledger": Situation(copied_ledger, SINCE, frozenset({"file"})),
    "another folder": Situation(another_folder, None, frozenset({"file"})),
    "grown data": Situation(grown_data),
    "rebuilt data": Situation(rebuilt_data),
    "clean validation loader": Situation(clean_validation, CLEAN, frozenset({"loaders"})),
    "resumed without counts": Situation(without_counts, RUNS, frozenset({"states"})),
}
