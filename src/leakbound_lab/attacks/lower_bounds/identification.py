"""Identification: which one of M candidates is the record whose noisy version or gradient was released?

Success is the plainest proof of leakage: how often the true one is identified demonstrates nats, by whatever
means (:mod:`leakbound.accounting.risk`). Each trial draws its record, the other candidates and the noise
again, so that trials of a replica are independent. Different numbers of uses and candidates share them. The
lists of a replica are drawn from one sample of the pool.

Where noise is on gradients, or nowhere, the nearest clean upload is the most likely one. Under a channel the
noisy image is solved for where equations lead to it
(:mod:`leakbound_lab.attacks.gradient_inversion.closed_form`). For other networks no likelihood of gradients is
tractable. The attacker computes gradients of noisy versions of each candidate, and assumes that they are
Gaussian in a random sketch. Those candidates have one class, because channels leave labels clean.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import linalg
from scipy.special import logsumexp
from torch import Tensor, nn

from leakbound.accounting.dp import record_information
from leakbound.accounting.gaussian import gaussian_capacity
from leakbound.accounting.reconstruction import whiten
from leakbound.accounting.risk import (
    demonstrated_information,
    dp_naming_bound,
    gained_information,
    naming_bound,
    stated_gains,
)
from leakbound.channels.channel import signal_to_noise
from leakbound.channels.covariance import estimate_moments
from leakbound.randomness.sources import NoiseSource
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, in_full_precision, joined
from leakbound_lab.attacks.gradient_inversion.closed_form import solvable, solved_images
from leakbound_lab.attacks.metrics import proportion_interval
from leakbound_lab.attacks.rows import row, table_of
from leakbound_lab.config.attacks import NamingConfig
from leakbound_lab.datasets import Split
from leakbound_lab.models.gradients import Gradients
from leakbound_lab.training.client_steps import ClientStep, client_step

_SPARE = 2  # records that lists are drawn from, for each candidate of the longest one
_ROUNDING = 1e-10  # part of the mean square of uploads: less is no noise
_SKETCH = 512  # numbers that stand for a gradient where its distribution is learned from draws
_PURPOSE = "naming"  # of random draws

Kind = Literal["exact", "approximate", "nearest"]
"""Scores are log-likelihoods, those of an approximate distribution, or distances, which can only be compared."""
Lists = Mapping[int, Int[np.ndarray, "trials candidates"]]


@in_full_precision
def identify_records(request: AttackRequest[NamingConfig]) -> Attacked:
    """Identify the true one of M records of the private pool from k uploads, for all M and k of the settings.

    Variants: ``images`` sees the k noisy images themselves and decides by their exact likelihood.
    ``gradients`` sees those of an untrained network and knows all but the record. ``exact_images`` and
    ``exact_gradients`` are, where the likelihood is exact, the probability of success, the mean of the
    largest posterior probability, and the information. ``bound`` is the most that the accountant allows: nats
    of k uses (:mod:`leakbound.accounting.leakage`, or ``record_information`` of k steps), and the probability
    of identification that they allow, for DP that of Hayes et al.

    Args:
        request: Arguments of the attack. Moments are those of the client's records, for a defense that needs
            them. Bounds of a channel are computed from the pool, as candidates come from there, and
            capacities hold for distributions that have the covariance they are made from. The batch size is
            one, as other records of a batch would have to be known as well.

    Returns:
        Rows ``rate_<k>``, the unit being M, with 95 % intervals, and ``gain_<k>`` and ``gain_variance_<k>``,
        mean and variance over trials of the nats that stated probabilities gain. Rows ``nats_<k>`` with unit
        -1 are for attackers the lower limit that choices or stated probabilities demonstrate for the best M,
        corrected for these choices. Row ``trials``. And hits by variant (replicas, M, k).

    Raises:
        ValueError: If the step has no known upload, a batch holds several records, or the pool has too few
            records.

    Source:
        Hayes, Mahloujifar and Balle 2023, "Bounding training data reconstruction in DP-SGD".
    """
    config = request.config
    client = request.client(_problems(request))
    allowed = list(_allowed(client, request.dataset.pool, config))
    results = []
    for replica in request.replicas:
        attacker = _Replica(request, replica, request.untrained(_PURPOSE, replica), client)
        outcomes = {"gradients": attacker.identified_by_gradients()}
        if request.channel is not None:
            outcomes["images"] = attacker.identified_by_images()
        hits = {variant: outcome.hits for variant, outcome in outcomes.items()}
        results.append((table_of(replica, [*_rows(outcomes, config), *allowed]), hits))
    return joined(results)


def _of_one_class(rows: np.ndarray, labels: np.ndarray, config: NamingConfig) -> Int[np.ndarray, " m"]:
    """Choose the first class with as many candidates as any, so that all replicas have equally many."""
    sizes = np.bincount(labels)
    fitting = [count for count in config.candidates if count <= min(config.gradients, sizes.max())]
    return rows[labels == labels[sizes[labels] >= max(fitting, default=0)][0]]


@dataclass(frozen=True)
class _Outcome:
    """Results of the trials of one variant.

    Attributes:
        candidates: Numbers of candidates M.
        hits: (M, k) trials in which the true one was identified.
        rates: (M, k) mean of the largest posterior probability, or None where no likelihood is known.
        information: (k,) exact nats about the index for the largest M, or None likewise.
        gains: (2, M, k) mean and variance over trials of the nats that stated probabilities gain, or None
            where no probabilities are stated, as of uploads without noise.
    """

    candidates: Sequence[int]
    hits: Int[np.ndarray, "candidates uses"]
    rates: Float[np.ndarray, "candidates uses"] | None = None
    information: Float[np.ndarray, " uses"] | None = None
    gains: Float[np.ndarray, "2 candidates uses"] | None = None

    def limits(self, trials: int, confidence: float) -> Float[np.ndarray, " uses"]:
        """Compute lower limits in nats for each number of uses, for the best M and way to answer."""
        each = 1.0 - (1.0 - confidence) / (len(self.candidates) * (1 if self.gains is None else 2))
        limits = []
        for place, count in enumerate(self.candidates):
            hits = self.hits[place].tolist()
            limits.append([demonstrated_information(right, trials, count, each) for right in hits])
            if self.gains is not None:
                pairs = self.gains[:, place].T.tolist()
                limits.append([gained_information(m, v, trials, count, each) for m, v in pairs])
        return np.max(limits, axis=0)


@dataclass(frozen=True)
class _Replica:
    """Attacker on the client of one replica.

    Attributes:
        request: Arguments of the attack.
        replica: Number of the replica.
        network: Its untrained network.
        client: Step that the uploads come from.
    """

    request: AttackRequest[NamingConfig]
    replica: int
    network: nn.Module
    client: ClientStep

    def generator(self, name: str) -> np.random.Generator:
        """Return the generator of the attacker's own draws for a purpose."""
        return self.request.generators(_PURPOSE, self.replica)(name)

    def noise(self, name: str) -> NoiseSource:
        """Return the source of the client's noise for a purpose."""
        return self.request.noise(_PURPOSE, self.replica)(name)

    def identified_by_images(self) -> _Outcome:
        """Run the trials of an attacker who sees the noisy images."""
        pool = self.request.dataset.pool
        count = min(_SPARE * max(self.request.config.candidates), len(pool))
        records = pool.take(self.generator("images").permutation(len(pool))[:count])
        truth, lists = self.drawn_trials("lists", count, self.request.config.candidates)
        score = self.image_scores(records)
        source = self.noise("images")
        images = torch.from_numpy(records.images[truth]).to(self.request.device)
        return self.judged(lambda: score(self.client.released(images, source)), truth, lists, kind="exact")

    def image_scores(self, records: Split) -> Callable[[Tensor], np.ndarray]:
        """Return a function that computes log-likelihoods of candidates given noisy images."""
        channel = self.client.channel
        gain = np.ones(channel.dimension) if channel.gain is None else channel.gain
        centre = 0.0 if channel.mean is None else channel.mean
        means = whiten(_flat(records.images) - centre, channel.variances, channel.basis, gain)
        half = 0.5 * (means**2).sum(axis=1)

        def scores(seen: Tensor) -> Float[np.ndarray, "n records"]:
            """Score the candidates by one use. Values that are not finite count as 0."""
            flat = np.nan_to_num(_flat(seen.cpu().numpy()) - centre, nan=0.0, posinf=0.0, neginf=0.0)
            return whiten(flat, channel.variances, channel.basis, np.sign(gain)) @ means.T - half

        return scores

    def identified_by_gradients(self) -> _Outcome:
        """Run the trials of an attacker who sees gradients."""
        pool = self.request.dataset.pool
        order = self.generator("gradients").permutation(len(pool))
        if self.client.channel is not None:
            order = _of_one_class(order, pool.labels[order], self.request.config)
        records = pool.take(order[: self.request.config.gradients])
        fitting = [count for count in self.request.config.candidates if count <= len(records)]
        truth, lists = self.drawn_trials("gradient lists", len(records), fitting)
        kind: Kind = "approximate"
        if self.client.channel is None:
            score, kind = self.clean_scores(records)
        elif solvable(self.network, self.request.image_shape):
            score = self.solved_scores(records)
        else:
            score = self.noisy_scores(records)
        source = self.noise("gradients")
        true_records = records.take(truth)
        return self.judged(
            lambda: score(self.upload(self.client, true_records, source)), truth, lists, kind=kind
        )

    def solved_scores(self, records: Split) -> Callable[[Gradients], np.ndarray]:
        """Return a function that computes log-likelihoods from gradients, by solving for noisy images."""
        score = self.image_scores(records)
        return lambda seen: score(solved_images(self.network, seen, self.request.image_shape))

    def judged(
        self,
        scores: Callable[[], Float[np.ndarray, "trials known"]],
        truth: np.ndarray,
        lists: Lists,
        *,
        kind: Kind,
    ) -> _Outcome:
        """Score the trials at each number of uses. Scores of uses with independent noise add up."""
        # Frozen noise is the same at all uses.
        uses = [1 if self.client.keeps_copies else uses for uses in self.request.config.uses]
        rows = np.arange(len(truth))[:, None]
        shape = (len(lists), len(uses))
        hits = np.zeros(shape, np.int64)
        rates = np.zeros(shape)
        information = np.zeros(len(uses))
        gains = np.zeros((2, *shape))
        total = np.zeros(())
        for number in range(1, max(uses) + 1):
            total = total + scores()
            # Choices, posterior probabilities and the nats that these gain, where the settings ask for them.
            for column in np.flatnonzero(np.equal(uses, number)):
                for place, (count, listed) in enumerate(lists.items()):
                    of_candidates = total[rows, listed]  # the true one is the first
                    hits[place, column] = int((of_candidates[:, 1:].max(axis=1) < of_candidates[:, 0]).sum())
                    logs = of_candidates - logsumexp(of_candidates, axis=1, keepdims=True)
                    rates[place, column] = np.exp(logs.max(axis=1)).mean()
                    information[column] = math.log(count) + float((np.exp(logs) * logs).sum(axis=1).mean())
                    gained = stated_gains(np.exp(logs[:, 0]), count)
                    gains[:, place, column] = gained.mean(), gained.var(ddof=1)
        return _Outcome(
            [*lists],
            hits,
            rates if kind == "exact" else None,
            information if kind == "exact" else None,
            gains if kind != "nearest" else None,
        )

    def drawn_trials(self, purpose: str, count: int, candidates: Sequence[int]) -> tuple[np.ndarray, Lists]:
        """Draw the true record of each trial, and for each M a list of candidates that begins with it."""
        generator = self.generator(purpose)
        trials = self.request.config.trials
        truth = generator.integers(count, size=trials)
        lists = {}
        for number in candidates:
            distractors = np.stack([generator.permutation(count - 1)[: number - 1] for _ in range(trials)])
            lists[number] = np.column_stack([truth, distractors + (distractors >= truth[:, None])])
        return truth, lists

    def clean_scores(self, records: Split) -> tuple[Callable[[Gradients], np.ndarray], Kind]:
        """Return a function that scores candidates by the distance to their uploads without noise.

        Noise is the same on all coordinates, so the nearest one is the most likely one. Its variance is that
        of the attacker's own uploads.
        """
        quiet = self.client
        if quiet.defense.changes_gradients and quiet.defense.draws_noise:
            quiet = client_step(quiet.defense, 0.0)
        source = self.noise("clean")
        means = _rows_of(self.upload(quiet, records, source)).double()
        half = 0.5 * means.square().sum(1)
        noisy_rows = _rows_of(self.upload(self.client, records, source))
        variance = float((noisy_rows - means).square().mean())
        noisy = variance > _ROUNDING * float(means.square().mean())
        scale = 1.0 / variance if noisy else 1.0
        return (
            lambda seen: ((_rows_of(seen).double() @ means.T - half) * scale).cpu().numpy(),
            "exact" if noisy else "nearest",
        )

    def noisy_scores(self, records: Split) -> Callable[[Gradients], np.ndarray]:
        """Return a function that scores candidates by Gaussian distributions of their gradients.

        They have a covariance in common, and are learned from draws.
        """
        source = self.noise("draws")
        draws = self.request.config.draws
        # A random sketch of gradients whose coordinates are scaled alike.
        first = _rows_of(self.upload(self.client, records, source))
        scale = first.std(0)
        factor = torch.where(scale > 0, 1.0 / scale, torch.zeros_like(scale))
        generator = self.generator("sketch")
        buckets = torch.from_numpy(generator.integers(_SKETCH, size=first.shape[1])).to(self.request.device)
        signs = generator.choice([-1.0, 1.0], first.shape[1]).astype(np.float32)
        factor *= torch.from_numpy(signs).to(self.request.device)

        def sketched(gradients: Tensor) -> Float[np.ndarray, "n sketch"]:
            """Sum over random sets of coordinates with random signs. It keeps inner products on average."""
            sketch = torch.zeros(len(gradients), _SKETCH, dtype=gradients.dtype, device=gradients.device)
            return sketch.index_add_(1, buckets, gradients * factor).double().cpu().numpy()

        pieces = [sketched(first)]
        pieces += [sketched(_rows_of(self.upload(self.client, records, source))) for _ in range(draws - 1)]
        scores = gaussian_scores(np.stack(pieces))
        return lambda seen: scores(sketched(_rows_of(seen)))

    def upload(self, client: ClientStep, records: Split, source: NoiseSource) -> Gradients:
        """Upload a step on each record alone."""
        images = torch.from_numpy(records.images).to(self.request.device)
        labels = torch.from_numpy(records.labels).to(self.request.device)
        return client.upload(self.network, images[:, None], labels[:, None], source).gradients


def gaussian_scores(
    draws: Float[np.ndarray, "draws n d"],
) -> Callable[[Float[np.ndarray, "k d"]], Float[np.ndarray, "k n"]]:
    """Return the function that scores candidates by Gaussian densities of one covariance, learned from draws.

    The covariance is that of the draws around the mean of their candidate, shrunk as Ledoit and Wolf do, with one
    degree of freedom less for each mean. Scores are logarithms of densities, up to what all candidates have in common.

    Args:
        draws: Draws of each of n candidates, at least two.
    """
    from sklearn.covariance import ledoit_wolf

    means = draws.mean(axis=0)
    covariance, _ = ledoit_wolf((draws - means).reshape(-1, draws.shape[2]), assume_centered=True)
    covariance *= len(draws) / (len(draws) - 1)
    solved = linalg.cho_solve(linalg.cho_factor(covariance), means.T)
    half = 0.5 * (means.T * solved).sum(axis=0)
    return lambda seen: seen @ solved - half


def _rows_of(gradients: Gradients) -> Float[Tensor, "n parameters"]:
    """Join gradients to one row for each upload."""
    return torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1)


def _problems(request: AttackRequest[NamingConfig]) -> Iterator[str]:
    """Yield reasons why there is nothing to identify."""
    config = request.config
    dataset = request.dataset
    if (size := request.defense.records_in_step(request.level, request.batch_size)) != 1:
        yield f"batch_size = {size}: identification takes uploads of single records; set batch_sizes: [1]"
    if (most := max(config.candidates)) > len(dataset.pool):
        yield f"attacks.naming.candidates = {most}: the pool of {dataset.name} has only {len(dataset.pool)} records"
    least = min(np.bincount(dataset.pool.labels))
    if min(config.candidates) > min(least, config.gradients):
        yield (
            f"attacks.naming.candidates = {min(config.candidates)}: gradients of candidates of one class are compared, "
            f"at most {config.gradients}, and a class of {dataset.name} has only {least} records; give a smaller one"
        )


def _allowed(client: ClientStep, pool: Split, config: NamingConfig) -> Iterator[dict[str, object]]:
    """Yield rows of what the accountant allows, none for a defense without a bound."""
    channel = client.channel
    ratios = None if channel is None else signal_to_noise(channel, estimate_moments([pool.images]))
    if ratios is None and not (client.defense.clips and client.level):
        return
    for uses in config.uses:
        if ratios is not None:
            nats = gaussian_capacity(ratios, 1.0, 1.0 if client.keeps_copies else float(uses))
            rates = [naming_bound(nats, count) for count in config.candidates]
        else:
            event = client.event(sampling="poisson", population=1, batch_size=1, steps=uses, uses=uses)
            nats = record_information(event)
            rates = [dp_naming_bound(client.level, 1.0, uses, count) for count in config.candidates]
        yield row("bound", f"nats_{uses}", nats)
        for count, rate in zip(config.candidates, rates, strict=True):
            yield row("bound", f"rate_{uses}", rate, unit=count)


def _rows(outcomes: Mapping[str, _Outcome], config: NamingConfig) -> Iterator[dict[str, object]]:
    """Yield rows of all variants of one replica."""
    for variant, outcome in outcomes.items():
        yield row(variant, "trials", float(config.trials))
        limits = outcome.limits(config.trials, config.confidence)
        for column, uses in enumerate(config.uses):
            yield row(variant, f"nats_{uses}", float(limits[column]))
            for place, count in enumerate(outcome.candidates):
                rate = proportion_interval(int(outcome.hits[place, column]), config.trials)
                yield row(variant, f"rate_{uses}", rate.value, unit=count, low=rate.low, high=rate.high)
                if outcome.gains is not None:
                    mean, variance = outcome.gains[:, place, column].tolist()
                    yield row(variant, f"gain_{uses}", mean, unit=count)
                    yield row(variant, f"gain_variance_{uses}", variance, unit=count)
                if outcome.rates is not None:
                    exact = float(outcome.rates[place, column])
                    yield row(f"exact_{variant}", f"rate_{uses}", exact, unit=count)
            if outcome.information is not None:
                yield row(f"exact_{variant}", f"nats_{uses}", float(outcome.information[column]))


def _flat(images: np.ndarray) -> Float[np.ndarray, "n d"]:
    """Flatten images to rows, in float64."""
    return images.reshape(len(images), -1).astype(np.float64)
