"""Membership scores by reference networks: how much surer a network is of a record than those without it.

Scores are pure functions of confidences ln p/(1 − p) of the tested class, which are roughly normal over
networks.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.polynomial import Polynomial
from scipy.special import expit, log_expit
from torch import nn

from leakbound_lab.attacks.attack_request import Networks, load_weights
from leakbound_lab.attacks.membership.signals import Queries, read_confidences
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.datasets.splits import reference_dataset

PerRecord = Float[np.ndarray, " n"]
_LEAST = 2  # references that an attacker compares with
_PRIOR_MODELS = 10.0  # references inside that weigh as much as the curve through those of all records
_PRIOR_DEGREES = 16.0  # degrees of freedom of the variance of all records, against those of a record's own
_FLOOR = 1e-6  # of variances


@dataclass(frozen=True)
class Confidences:
    """Confidences of reference networks in some records.

    Attributes:
        confidence: ln p/(1 − p) of the tested class.
        inside: Whether a reference was trained on the record with this class.
        outside: Whether it was not trained on the record at all, which holds for at least one for each
            record.
    """

    confidence: Float[np.ndarray, "references n"]
    inside: Bool[np.ndarray, "references n"]
    outside: Bool[np.ndarray, "references n"]

    @cached_property
    def mean(self) -> PerRecord:
        """Mean over the references outside."""
        return np.average(self.confidence, axis=0, weights=self.outside)

    @cached_property
    def squares(self) -> PerRecord:
        """Sum of squared distances from this mean over the references outside."""
        return (self.outside * (self.confidence - self.mean) ** 2).sum(0)

    @cached_property
    def probability(self) -> PerRecord:
        """Mean probability of the class over the references outside."""
        return np.average(expit(self.confidence), axis=0, weights=self.outside)

    @cached_property
    def laws(self) -> "Laws":
        """What :func:`shared_laws` fits."""
        return shared_laws(self)

    def probability_inside(self, guess: PerRecord) -> PerRecord:
        """Average the probability over references inside and a guess, which stands alone without any."""
        return (guess + (self.inside * expit(self.confidence)).sum(0)) / (1 + self.inside.sum(0))


@dataclass(frozen=True)
class Laws:
    """Normal distributions of the confidence over networks, shared by records with few references.

    Attributes:
        variance: Variance around a record's mean outside, over references outside.
        curve: Mean inside as a function of the mean outside, or None where too few references are inside.
        spread: Standard deviation around that, over references inside.
    """

    variance: float
    curve: Polynomial | None
    spread: float

    def deviation(self, references: Confidences) -> PerRecord:
        """Compute each record's standard deviation outside, with its variance drawn towards that of all."""
        degrees = references.outside.sum(0) - 1
        return np.sqrt((_PRIOR_DEGREES * self.variance + references.squares) / (_PRIOR_DEGREES + degrees))


def shared_laws(references: Confidences) -> Laws:
    """Fit the distributions of some records under their true classes."""
    degrees = (references.outside.sum(0) - 1).sum()
    variance = float(references.squares.sum() / max(degrees, 1)) + _FLOOR
    outside = np.broadcast_to(references.mean, references.inside.shape)[references.inside]
    inside = references.confidence[references.inside]
    if len(np.unique(outside)) <= 3:  # a parabola goes through all
        return Laws(variance, None, float(np.sqrt(variance)))
    curve = Polynomial.fit(outside, inside, deg=2)
    return Laws(variance, curve, float(np.sqrt(np.mean((inside - curve(outside)) ** 2) + _FLOOR)))


def lira_offline(confidence: PerRecord, references: Confidences, laws: Laws) -> PerRecord:
    """Compute by how many standard deviations a network is surer of a record than references without it.

    Source:
        Carlini et al. 2022, Sec. V, offline. This is a monotone function of their test. Variances are shared
        between records as far as their references are few.
    """
    return (confidence - references.mean) / laws.deviation(references)


def lira_online(confidence: PerRecord, references: Confidences, laws: Laws) -> PerRecord:
    """Compute the log-likelihood ratio of membership, from normal confidences inside and outside.

    The mean inside is that of the references inside, drawn towards the curve of all records. A record that no
    reference was trained on, or not with this class, has the curve alone. Where there is no curve, it is the
    offline score.

    Source:
        Carlini et al. 2022, Algorithm 1, with the curve in place of means over too few networks.
    """
    if laws.curve is None:
        return lira_offline(confidence, references, laws)
    total = (references.inside * references.confidence).sum(0)
    count = references.inside.sum(0)
    mean = (_PRIOR_MODELS * laws.curve(references.mean) + total) / (_PRIOR_MODELS + count)
    outside = _log_density(confidence, references.mean, laws.deviation(references))
    return _log_density(confidence, mean, laws.spread) - outside


def _log_density(values: np.ndarray, mean: np.ndarray, deviation: np.ndarray | float) -> np.ndarray:
    """Compute the logarithm of a normal density, without scipy.stats, which takes 0.3 s to load."""
    return -(((values - mean) / deviation) ** 2) / 2.0 - np.log(np.sqrt(2 * np.pi)) - np.log(deviation)


def rmia(confidence: PerRecord, references: Confidences, offline: float) -> PerRecord:
    """Compute ln p(x|θ)/p(x), the network's probability of a record's class over that of all networks.

    RMIA scores a record by the part of a population that it surpasses in this ratio by a factor γ. For one
    network that part grows with the ratio, so both order records alike, except for the ties that a finite
    population makes.

    Args:
        confidence: Confidence of the attacked network.
        references: Confidences of the references, from which p(x) = ½(p_out(x) + p_in(x)). The guess a
            p_out(x) + 1 − a counts as one more reference inside, as few draws of the pool hold a record, and
            often none.
        offline: a, in [0, 1], or 1 where training on a record hardly changes its probability.

    Source:
        Zarifzadeh, Liu and Shokri 2024, Eq. 4 and Appendix B.2.2.
    """
    outside = references.probability
    expected = 0.5 * (outside + references.probability_inside(offline * outside + 1 - offline))
    return log_expit(confidence) - np.log(np.maximum(expected, np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class _Answers:
    """Confidences of the sound references of a recipe in every class of every record, and who was trained on it."""

    confidence: Float[np.ndarray, "references pool classes"]
    trained: Bool[np.ndarray, "references pool"]


@dataclass(frozen=True)
class References:
    """Reference networks of a run, which are shown every record of the pool. Their answers are kept.

    Attributes:
        networks: Weights. ``replica`` is the number of a reference. A column ``target`` is the replica whose
            candidates it was trained on. Without it references are draws from the pool and serve all.
        network: The architecture, whose parameters are replaced, on the device.
        dataset: Records of the run.
    """

    networks: Networks
    network: nn.Module
    dataset: ImageDataset
    _answers: dict[tuple[int, float, str, int], _Answers] = field(default_factory=dict)

    def compared(
        self,
        learning_rate: float,
        queries: Queries,
        rows: Int[np.ndarray, " n"],
        labels: Int[np.ndarray, " n"],
        length: str = "full",
        replica: int = 0,
    ) -> Confidences | None:
        """Return confidences of the references of a recipe, None if fewer than two of them trained soundly.

        For a record that all of them were trained on, all count as outside, as no other estimate of its
        distribution is left.

        Args:
            learning_rate: Learning rate of the network that they are compared with.
            queries: How each record is shown.
            rows: Rows of the pool.
            labels: Class to test for each.
            length: Length of the training of the network that they are compared with.
            replica: Replica of the network that they are compared with.
        """
        target = replica if "target" in self.networks.rates else 0
        key = target, learning_rate, length, queries.count
        if key not in self._answers:
            for other in [other for other in self._answers if other[0] != target]:
                del self._answers[other]  # one network is attacked after the other
            self._answers[key] = self._answered(target, learning_rate, length, queries)
        answers = self._answers[key]
        if len(answers.confidence) < _LEAST:
            return None
        confidence = answers.confidence[:, rows, labels].astype(np.float64)
        trained = answers.trained[:, rows]
        trained &= ~trained.all(0)
        return Confidences(confidence, trained & (labels == self.dataset.pool.labels[rows]), ~trained)

    def _answered(self, target: int, learning_rate: float, length: str, queries: Queries) -> _Answers:
        """Show the pool to the references of a recipe, and keep the answers of those that are sound."""
        rates = self.networks.rates
        alike = rates["length"] == length if "length" in rates else length == "full"
        alike &= rates.get("target", 0) == target
        recipe = rates[(rates["learning_rate"] == learning_rate) & alike]
        confidence = self._confidences(recipe.index.tolist(), queries)
        sound = np.isfinite(confidence).all((1, 2))
        trained = np.zeros((int(sound.sum()), len(self.dataset.pool.labels)), dtype=bool)
        for records, number in zip(trained, recipe["replica"][sound], strict=True):
            records[self._reference_records.parts(number).members] = True
        return _Answers(confidence if sound.all() else confidence[sound], trained)

    @cached_property
    def _reference_records(self) -> ImageDataset:
        """Dataset whose members are drawn as the reference networks drew theirs."""
        return reference_dataset(self.dataset, of_candidates="target" in self.networks.rates)

    def _confidences(
        self, networks: list[int], queries: Queries
    ) -> Float[np.ndarray, "references pool classes"]:
        """Read confidences of some networks in every class of every record of the pool."""
        images = torch.from_numpy(self.dataset.pool.images).to(next(self.network.parameters()).device)
        confidences = np.empty((len(networks), len(images), len(self.dataset.classes)), np.float32)
        for answers, number in zip(confidences, networks, strict=True):
            weights = {name: values[number] for name, values in self.networks.weights.items()}
            load_weights(self.network, weights)
            answers[:] = read_confidences(self.network, images, queries).cpu().numpy()
        return confidences
