"""Checkpoints: an interrupted training resumes from its last checkpoint and ends with the same bytes.

With secure noise it resumes with new noise, because nothing that repeats noise is stored. Its bytes then
differ.
"""

import hashlib
import io
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import numpy as np
import torch

from leakbound import __version__, storage
from leakbound.randomness.seeding import PrivacyNoise
from leakbound.storage.provenance import settings_hash
from leakbound.storage.seals import file_size, sweep
from leakbound_lab.datasets import ImageDataset
from leakbound_lab.models.classifier import frozen_hash
from leakbound_lab.training.request import TrainingRequest, initial_network

logger = logging.getLogger("leakbound")
_DIGEST_BYTES = 32
_FORM = 7  # of what learners keep; a checkpoint of another one is not read
_SCALARS = ("model", "level", "rounds", "batch_size", "seed", "privacy_noise", "slug")


def fingerprint(request: TrainingRequest) -> str:
    """Hash all that the course of a training depends on: settings, images, channel, versions, device.

    Raises:
        ValueError: As :func:`records_hash`.
    """
    channel = request.channel
    dataset = request.dataset
    arrays = {
        name: array
        for name, array in dataset.arrays().items()
        if request.scoring or not name.startswith("aux_")
    }
    if channel is not None:
        arrays |= {f"channel_{name}": array for name, array in channel.arrays().items()}
        if channel.basis is not None:
            arrays["channel_basis"] = channel.basis
    return identity_hash(
        dataset,
        arrays,
        {
            "classes": len(dataset.classes),
            "frozen": frozen_hash(initial_network(request, 0)),
            "slots": [astuple(slot) for slot in request.slots],
            "lengths": request.lengths,
            "channel": None if channel is None else channel.metadata(),
            "defense": request.defense.model_dump(mode="json"),
            "training": request.config.model_dump(
                mode="json", include={"momentum", "evaluations", "max_stack"}
            ),
            "device": torch.device(request.device).type,
            "precision": request.config.precision,
            **{name: getattr(request, name) for name in _SCALARS},
            "scoring": None if request.scoring is None else asdict(request.scoring),
        },
    )


def identity_hash(
    dataset: ImageDataset, arrays: Mapping[str, np.ndarray], settings: Mapping[str, Any]
) -> str:
    """Hash all that the course of a training depends on.

    Args:
        dataset: Images. The sizes and the seed of its splits count, too.
        arrays: Arrays that the training reads.
        settings: Everything else as plain values, including ``privacy_noise``.

    Raises:
        ValueError: As :func:`records_hash`.
    """
    return settings_hash(
        {
            "arrays": records_hash(dataset, arrays, settings["privacy_noise"]),
            "drawing": asdict(dataset.drawing),
            "versions": [__version__, torch.__version__, _FORM],
            **settings,
        }
    )


def records_hash(dataset: ImageDataset, arrays: Mapping[str, np.ndarray], privacy_noise: PrivacyNoise) -> str:
    """Hash arrays of a dataset with its secret, because the file with the hash may outlive its job.

    Args:
        dataset: Dataset with its secret.
        arrays: Arrays by name.
        privacy_noise: Whether noise is ``seeded`` or ``secure``.

    Raises:
        ValueError: If noise is secure and the dataset has no secret. Whoever finds the file could then test
            candidates.
    """
    if privacy_noise == "secure" and not dataset.secret:
        raise ValueError(
            f"{dataset.name}: a checkpoint under secure noise needs a dataset with a secret, or its hash would reveal "
            "which records these are; prepare it with privacy_noise = 'secure', or give ImageDataset a secret"
        )
    return storage.arrays_hash(arrays, dataset.secret)


class Checkpoint:
    """A file with the state of one training. Reading it can execute nothing.

    The file holds the identity, a digest of the payload, and the payload as torch saves it.

    Args:
        path: The file, or None for no checkpoint.
        identity: SHA-256 of what is trained, in hexadecimal. A file with another one is ignored.
        seconds: Least time between two saves, in seconds. Slow saves are made less often, so that they cost
            at most about 5 % of the time.
    """

    def __init__(self, path: Path | None, identity: str, seconds: float) -> None:
        self._path = path
        self._identity = identity.encode()
        self._seconds = seconds
        self._next = time.monotonic() + seconds

    def load(self) -> dict[str, Any] | None:
        """Return the last saved content, or None, with the reason in the log, to start from scratch."""
        if self._path is None:
            return None
        sweep(self._path)
        if not self._path.exists():
            return None
        storage.limits.check_limit(self._path, "bytes", file_size(self._path), storage.limits.ARRAYS)
        with self._path.open("rb") as file:
            identity = file.read(len(self._identity))
            digest = file.read(_DIGEST_BYTES)
            payload = file.read()
        if hashlib.sha256(payload).digest() != digest:
            reason = "damaged checkpoint"
        elif identity != self._identity:
            reason = "checkpoint of other settings, images or versions"
        else:
            # A digest does not say who wrote the file, and a foreign one fails in many ways.
            try:
                return torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
            except Exception as error:
                # Without torch's message, which explains how to load an unsafe file anyway.
                reason = f"foreign checkpoint ({type(error).__name__})"
        logger.warning("%s: %s, training starts from scratch", self._path, reason)
        return None

    def due(self) -> bool:
        """Return True when it is time to save."""
        return self._path is not None and time.monotonic() >= self._next

    def save(self, content: dict[str, Any]) -> None:
        """Replace the file by ``content``.

        Args:
            content: Plain values and tensors, nested in dictionaries, lists and tuples.
        """
        if self._path is None:
            return
        start = time.monotonic()
        buffer = io.BytesIO()
        torch.save(content, buffer)
        with (
            buffer.getbuffer() as payload,  # always released, because Python 3.12 may crash on one that is left
            storage.atomic(self._path, sealed=False, private=True) as temporary,
            temporary.open("wb") as file,
        ):
            file.writelines((self._identity, hashlib.sha256(payload).digest(), payload))
        end = time.monotonic()
        self._next = end + max(self._seconds, 20 * (end - start))
