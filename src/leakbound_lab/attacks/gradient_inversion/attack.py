"""Gradient inversion: reconstruct the records that a client's gradients were computed on, as well as can be.

The network is untrained and labels are known, which is the attacker's best case. The best attack of a family
is reported, chosen on the attacker's own records. Its members recover what the gradient was computed on
(:mod:`leakbound_lab.attacks.gradient_inversion.map_estimate`), noise included, and estimate the records from it,
as an attacker can who knows the channel. The published attack
(:mod:`leakbound_lab.attacks.gradient_inversion.published`) belongs to the family, and is reported in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn

from leakbound.channels.channel import linear_estimate
from leakbound_lab.attacks import metrics
from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, in_full_precision, joined
from leakbound_lab.attacks.gradient_inversion.map_estimate import (
    Batches,
    Law,
    MapProblem,
    Method,
    Recovery,
    methods,
    recover_images,
)
from leakbound_lab.attacks.gradient_inversion.published import Attacker, Geiping, inverted
from leakbound_lab.attacks.rows import DIVERGED, GRID_EDGE, NO_RESULT, image_values, rows
from leakbound_lab.attacks.scheduling import side_by_side
from leakbound_lab.attacks.search_images import LARGEST_PIXEL
from leakbound_lab.config.attacks import GradientInversionConfig
from leakbound_lab.datasets import Split
from leakbound_lab.models import memory
from leakbound_lab.training.client_steps import ClientStep

_PURPOSE = "gradient_inversion"


@in_full_precision
def invert_gradients(request: AttackRequest[GradientInversionConfig]) -> Attacked:
    """Reconstruct members, or batches of them, from the gradients that a defended client uploads.

    Variants: ``attack`` knows the defense, and did best on auxiliary records under it. A channel's noise is
    removed by the learned estimate where there is one, else by the best linear one, which then is ``linear``.
    ``geiping`` is the published attack with the total-variation weight that was best on the same records, and
    ``untuned`` uses one weight. ``unstaged`` is what ``attack`` would be without the staged search, where the
    network has stages. Controls: ``prior`` is the mean auxiliary image. ``oracle`` is the best linear
    estimate of an attacker who knows what the gradient was computed on, absent where gradients of clean
    images are noisy or incomplete. ``learned_oracle`` is the learned estimate of this attacker.

    A replica is a network with its own random weights, members and auxiliary records, which depend on seed
    and dataset only, so all levels and defenses are compared on the same problems, with the same standard
    normal noise. A larger batch holds the smaller one, as long as there are records. Errors of mean images
    fall with the batch size whatever a defense does, and ``relative_mse`` corrects for that. ``attack``
    restores each record of a batch where it can.

    Args:
        request: Arguments of the attack. Weights, and what belongs to them, are not used.

    Returns:
        Rows as :func:`_table` makes them, and images (replicas, images, colors, 32, 32) by variant, with
        ``truth`` and ``released`` (what the client's gradient was computed on), both means over a batch.

    Raises:
        ValueError: If the defense names no client step, cannot have the level, or lacks the channel of its
            shape and level, or a batch is larger than the members or the auxiliary records.

    Source:
        Geiping et al. 2020, "Inverting gradients"; Zhu and Blaschko 2021, "R-GAP"; Tan et al. 2024, Sec. 6.1.
    """
    client = request.client()
    aux = request.dataset.aux.images
    prior = torch.from_numpy(aux.mean(axis=0)).to(request.device)
    law = cache(partial(Law.of, aux, request.channel))  # takes seconds, and not all methods need it

    def attacker(replica: int) -> Attacker[Attacked]:
        """Rows and pictures of a replica."""
        network = request.untrained(_PURPOSE, replica)
        table, pictures = yield from _Replica(request, replica, network, prior, client, law).reconstruct()
        return table.assign(replica=replica), pictures

    attackers = [attacker(replica) for replica in request.replicas]
    most = _replicas_at_once(request)
    groups = (attackers[first : first + most] for first in range(0, len(attackers), most))
    return joined(result for group in groups for result in side_by_side(group, inverted))


def _replicas_at_once(request: AttackRequest[GradientInversionConfig]) -> int:
    """Choose how many replicas are attacked as one stack: on a GPU their uploads fill half of the free memory."""
    most = memory.SEARCHES_SIDE_BY_SIDE.on(request.device)
    if torch.device(request.device).type != "cuda":
        return most
    parameters = sum(parameter.numel() for parameter in request.network(torch.Generator()).parameters())
    upload_bytes = 4 * (request.config.images + request.config.tuning_images) * parameters
    return max(1, min(most, memory.free_bytes(request.device) // (2 * upload_bytes)))


@dataclass(frozen=True)
class _Observed:
    """Batches whose gradients the attacker has seen.

    Attributes:
        units: (n,), rows of the split that the first record of each batch comes from.
        records: (n, records, colors, height, width).
        released: (n, colors, height, width), mean images that the gradients were computed on.
        problem: Uploads of the client for them.
    """

    units: np.ndarray
    records: Batches
    released: metrics.Pictures
    problem: MapProblem

    @property
    def truth(self) -> metrics.Pictures:
        """Mean images."""
        return self.records.mean(axis=1)

    def first(self, count: int) -> _Observed:
        """Select the first of the batches."""
        rows = slice(count)
        return _Observed(self.units[rows], self.records[rows], self.released[rows], self.problem.part(rows))


@dataclass(frozen=True)
class _Limit:
    """Result of the attacker who knows the defense.

    Attributes:
        images: Mean images by variant.
        metrics: Further values by name.
        statuses: Status of each batch.
    """

    images: Mapping[str, np.ndarray]
    metrics: Mapping[str, np.ndarray]
    statuses: np.ndarray


@dataclass(frozen=True)
class _Replica:
    """Attacker on the untrained network of one replica, which yields the searches that it needs.

    Attributes:
        request: Arguments of the attack.
        replica: Number of the replica.
        network: The network.
        prior: Mean of the attacker's records.
        client: Step that the uploads come from.
        law: Estimates the distribution of released images from the attacker's records.
    """

    request: AttackRequest[GradientInversionConfig]
    replica: int
    network: nn.Module
    prior: Tensor
    client: ClientStep
    law: Callable[[], Law]

    @property
    def size(self) -> int:
        """Records whose gradients are averaged in an upload."""
        return self.request.defense.records_in_step(self.request.level, self.request.batch_size)

    def reconstruct(self) -> Attacker[Attacked]:
        """Reconstruct the records of the replica, and return rows and pictures."""
        config = self.request.config
        # Uploads of the attacker's own records, to tune on, and of the members that are attacked.
        tuning = self.observe(self.request.dataset.aux, config.tuning_images, "tuning")
        observed = self.observe(self.request.dataset.members(self.replica), config.images, "images")
        # The published attack: its weight is chosen on the own records, then it inverts the members' uploads.
        draws = self.request.generators(_PURPOSE, self.replica)
        published = Geiping(self.network, self.prior, config, draws)
        uploads = tuning.problem.gradients, self.labels(tuning)
        weight, at_edge, errors = yield from published.tuned(*uploads, tuning.truth)
        weights = {"geiping": weight, "untuned": config.untuned_tv_weight}
        distinct = list(dict.fromkeys(weights.values()))
        attacked = observed.problem.gradients, self.labels(observed)
        ends = yield from published.solve(*attacked, distinct, "images")
        solved = dict(zip(distinct, zip(*ends, strict=True), strict=True))
        pictures = {variant: solved[weight][0] for variant, weight in weights.items()}
        statuses = {variant: solved[weight][1].copy() for variant, weight in weights.items()}
        if at_edge:
            statuses["geiping"][statuses["geiping"] == ""] = GRID_EDGE
        # The attacker who knows the defense, or the published result where no method does better.
        limits = self.limits(tuning, observed, errors)
        for variant, limit in limits.items():
            pictures[variant] = pictures["geiping"] if limit is None else limit.images["attack"]
            statuses[variant] = statuses["geiping"] if limit is None else limit.statuses
        best = limits["attack"]
        pictures |= {} if best is None else best.images
        # Controls that need no search.
        pictures["prior"] = np.broadcast_to(self.prior.cpu().numpy(), observed.truth.shape).copy()
        pictures |= self.oracles(observed.released)
        # Rows of all variants, and of the weights that were chosen.
        edges = {"geiping": GRID_EDGE if at_edge else "", "untuned": ""}
        table = _table(observed, pictures, statuses, {} if best is None else best.metrics)
        weight_rows = [
            rows(0, variant, [-1], {"tv_weight": np.array([weight])}, edges[variant])
            for variant, weight in weights.items()
        ]
        table = pd.concat([table, *weight_rows], ignore_index=True)
        return table, {"truth": observed.truth, "released": observed.released, **pictures}

    def limits(
        self, tuning: _Observed, observed: _Observed, published: Float[np.ndarray, " n"]
    ) -> dict[str, _Limit | None]:
        """Return the results of the best methods by variant, None where the published attack is best."""
        if self.size > self.request.config.most_records:
            return {"attack": None}
        best = self.best_methods(tuning.first(max(2, len(tuning.units) // self.size)), published)
        searched: dict[Method | None, _Limit | None] = {None: None}
        for method in dict.fromkeys(best.values()):
            if method is not None:
                searched[method] = self.limit(observed, self.recover_images(observed, method))
        return {variant: searched[method] for variant, method in best.items()}

    def limit(self, observed: _Observed, recovery: Recovery) -> _Limit:
        """Estimate the records from what was recovered."""
        restored = self.estimated(recovery)
        errors = (recovery.images.mean(axis=1) - observed.released) ** 2
        lost = ~np.isfinite(recovery.residuals)
        values: dict[str, np.ndarray] = {
            "residual": recovery.residuals,
            "released_mse": errors.mean(axis=(1, 2, 3)) / 4,
        }
        if self.size > 1:
            values["matched_mse"] = _matched(observed.records, restored["attack"])
        statuses = np.where(lost, DIVERGED, "").astype(object)
        return _Limit({name: images.mean(axis=1) for name, images in restored.items()}, values, statuses)

    def best_methods(self, tuning: _Observed, published: Float[np.ndarray, " n"]) -> dict[str, Method | None]:
        """Find the method with the lowest mean error on the attacker's own batches, by variant.

        A method that explains the gradients ends the search, as none can be better. Two batches suffice to
        test the equations. Variant ``unstaged`` is the best method except ``staged``, which is tried last.
        """
        best: dict[str, Method | None] = {"attack": None}
        least = float(published[: len(tuning.units)].mean())
        for method in methods(tuning.problem, self.request.config):
            if method.name == "staged":
                best["unstaged"] = best["attack"]
            # Mean error on the own batches. A search that ends nowhere counts as the farthest pixel.
            for tried in (tuning.first(2), tuning) if method.name == "recursive" else (tuning,):
                recovery = self.recover_images(tried, method)
                means = np.nan_to_num(self.estimated(recovery)["attack"].mean(axis=1), nan=LARGEST_PIXEL)
                errors = metrics.mse(tried.truth, means)
                if (
                    recovery.solved
                    and method.name != "staged"
                    and errors.mean() < published[: len(errors)].mean()
                ):
                    return {"attack": method}
            if errors.mean() < least:
                best["attack"] = method
                least = float(errors.mean())
            if recovery.solved:
                break
        return best

    def recover_images(self, observed: _Observed, method: Method) -> Recovery:
        """Search for images by one method."""
        law = None if method.name == "recursive" else self.law()
        return recover_images(observed.problem, method, law, self.request.config.search_iterations)

    def estimated(self, recovery: Recovery) -> dict[str, Batches]:
        """Estimate records from what was recovered, within the pixel range: ``attack``, and ``linear``."""
        images = recovery.images
        channel = self.client.channel
        estimator = self.request.estimator
        restored = {"attack": images}
        if channel is not None:
            sound = np.isfinite(recovery.residuals)
            flat = images[sound].reshape(-1, *images.shape[2:])
            estimates = {"linear": linear_estimate(flat, channel, self.request.known_moments())}
            if estimator is not None:
                estimates["attack"] = estimator.estimate(flat, channel, self.request.known_moments())
            else:
                estimates = {"attack": estimates["linear"]}
            for name, values in estimates.items():
                restored[name] = np.full_like(images, np.nan)
                restored[name][sound] = values.reshape(-1, *images.shape[1:])
        return {name: np.clip(values, -LARGEST_PIXEL, LARGEST_PIXEL) for name, values in restored.items()}

    def oracles(self, released: metrics.Pictures) -> dict[str, np.ndarray]:
        """Estimate mean images as an attacker does who knows what gradients were computed on.

        The mean of B noisy images has a B-th of the covariance of one, for signal and noise, so the best
        linear estimate is that from one image. Without a channel it is the image itself. Disguised gradients
        have none.
        """
        moments = self.request.known_moments()
        estimator = self.request.estimator
        channel = self.client.channel
        estimates = {} if self.client.defense.changes_gradients else {"oracle": released}
        if channel is not None:
            estimates["oracle"] = linear_estimate(released, channel, moments)
        if estimator is not None and channel is not None and self.size == 1:
            learned = estimator.estimate(released, channel, moments)
            estimates["learned_oracle"] = np.clip(learned, -LARGEST_PIXEL, LARGEST_PIXEL)
        return estimates

    def observe(self, records: Split, count: int, purpose: str) -> _Observed:
        """Choose disjoint batches, and let the client upload the gradient of each.

        First records are the same for all sizes of a batch, and ascend.
        """
        size = self.size
        order = self.request.generators(_PURPOSE, self.replica)(purpose).permutation(len(records.labels))
        if size > len(order):
            raise ValueError(
                f"a batch of {size} records for {purpose}: there are only {len(order)}; take a smaller one"
            )
        count = min(count, len(order) // size)
        first = np.sort(order[:count])
        batches = np.column_stack([first, order[count : count * size].reshape(size - 1, count).T])
        images = torch.from_numpy(records.images[batches]).to(self.prior.device)
        labels = torch.from_numpy(records.labels[batches]).to(self.prior.device)
        noise = self.request.noise(_PURPOSE, self.replica)(purpose)
        sent = self.client.upload(self.network, images, labels, noise)
        problem = MapProblem(
            self.network, self.client, sent.gradients, labels, self.request.image_shape, sent.upload_law
        )
        return _Observed(first, images.cpu().numpy(), sent.images.cpu().numpy(), problem)

    def labels(self, observed: _Observed) -> Tensor:
        """Return the class of each batch of one record, (n), or fractions of classes, (n, classes)."""
        if self.size == 1:
            return observed.problem.labels[:, 0]
        return F.one_hot(observed.problem.labels, len(self.request.dataset.classes)).float().mean(1)


def _matched(truth: Batches, restored: Batches) -> Float[np.ndarray, " n"]:
    """Compute the mean error of each batch's records, with the restored ones in their best order."""
    errors = np.stack(
        [((truth - restored[:, [column]]) ** 2).mean(axis=(2, 3, 4)) / 4 for column in range(truth.shape[1])]
    )
    least = np.full(len(truth), np.nan)
    for batch in np.flatnonzero(np.isfinite(errors).all(axis=(0, 2))):
        least[batch] = errors[:, batch][linear_sum_assignment(errors[:, batch])].mean()
    return least


def _table(
    observed: _Observed,
    pictures: Mapping[str, np.ndarray],
    statuses: Mapping[str, np.ndarray],
    further: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """Make the rows of all variants.

    The unit is the index of a member, of the first one in a batch. Values are NaN where the status is of
    ``rows.NO_RESULT``. ``mse``, ``psnr``, ``ssim`` and ``cosine`` (no ``psnr`` of an exact image), for all
    but the prior ``relative_mse`` = MSE / MSE of the prior, and for attacks ``bounded_mse`` = min(MSE, MSE of
    the prior). Of ``attack``, where it recovers images: ``residual``, the relative difference of gradients,
    ``released_mse``, the distance to what the gradient was computed on, and for a batch ``matched_mse``, the
    mean error of its records in the best order.

    Args:
        observed: What was attacked.
        pictures: Images by variant.
        statuses: Statuses of the images of attacks.
        further: Further values of the attack.
    """
    values = {variant: image_values(observed.truth, images) for variant, images in pictures.items()}
    for variant in values.keys() - {"prior"}:
        values[variant]["relative_mse"] = values[variant]["mse"] / values["prior"]["mse"]
    values["attack"] |= further
    for variant, status in statuses.items():
        values[variant]["bounded_mse"] = np.asarray(
            metrics.bounded_mse(values[variant]["mse"], values["prior"]["mse"])
        )
        lost = np.isin(status.astype(str), NO_RESULT)
        values[variant] = {name: np.where(lost, np.nan, column) for name, column in values[variant].items()}
    for variant in values.keys() & {"oracle", "attack"}:
        if not np.isfinite(values[variant]["psnr"]).all() and np.isfinite(values[variant]["mse"]).all():
            del values[variant]["psnr"]
    units = observed.units.tolist()
    tables = [
        rows(0, variant, units, columns, statuses[variant].tolist() if variant in statuses else "")
        for variant, columns in values.items()
    ]
    return pd.concat(tables, ignore_index=True)
