"""Command: one offline page of pictures that shows what an upload reveals, without and with a channel."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from leakbound import storage
from leakbound.commands import own_records, record_options
from leakbound.commands.terminal import progress_bar
from leakbound.words import in_nats
from leakbound_lab import datasets
from leakbound_lab.config.data import ORIGINALS, DatasetConfig
from leakbound_lab.registries import DATASETS

if TYPE_CHECKING:
    from leakbound_lab.attacks.gradient_inversion.demonstration import AttackedUploads

_CAPACITIES = {1: (32.0, 8.0, 2.0), 3: (800.0, 60.0, 4.0)}  # by the number of colors
_TRIALS = 300
_PICTURES = 5
_TEST = 100
_MOST_AUX = 31_000  # with more than ten records for each value the covariance is not shrunk
_ENLARGED = 3


def demo(
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", parser=record_options.path_of, help="HTML page to write. It must not exist."
        ),
    ] = Path("demo.html"),
    dataset: Annotated[
        str,
        typer.Option(
            help="Dataset: digits, which the package contains, or another one from the folder LEAKBOUND_DATA."
        ),
    ] = "digits",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of records, network and noise.")] = 0,
) -> None:
    """Write one offline page of images that an attacker recovers from uploads, without and with a channel.

    Example: leakbound demo

    Example: leakbound demo --dataset cifar10 --out cifar10.html
    """
    own_records.check_absent(out)
    publishable = [original for original in ORIGINALS if datasets.may_be_published(DATASETS.get(original))]
    if dataset not in publishable:
        raise typer.BadParameter(
            f"--dataset {dataset!r}: allowed are {', '.join(publishable)}, whose pictures may be shown to everybody"
        )
    images, truth, attacked_uploads = _attack(dataset, seed)
    with own_records.refuse_overwriting(out):
        storage.write_text(out, _page(images, truth, attacked_uploads), sealed=False, replace=False)
    sys.stdout.write(
        "\n".join([*_sentences(attacked_uploads), f"{out}: {out.stat().st_size / 1e3:.0f} kB"]) + "\n"
    )


def _attack(name: str, seed: int) -> tuple[datasets.ImageDataset, np.ndarray, list[AttackedUploads]]:
    """Attack some images, and return all images, the attacked ones, and the results of the attacks."""
    from leakbound.channels.covariance import population_moments
    from leakbound_lab.attacks.gradient_inversion.demonstration import demonstration

    original = ORIGINALS[name]
    levels = _CAPACITIES[original.colors]
    aux = min(_MOST_AUX, original.train - 3 * _TRIALS)
    with progress_bar(f"attacking {name}", 2 + len(levels)) as each:
        images = datasets.prepare(name, DatasetConfig(members=_TRIALS, test=_TEST, aux=aux), seed)
        moments = population_moments(images.aux.images)
        each(1)
        truth, attacked_uploads = demonstration(
            images, moments, levels, pictures=_PICTURES, trials=_TRIALS, seed=seed, each=each
        )
    return images, truth, attacked_uploads


def _sentences(attacked_uploads: Sequence[AttackedUploads]) -> list[str]:
    """Write the three sentences that open the page."""
    bare, *_, strictest = attacked_uploads
    return [
        "Without a defense the gradient of one record reveals the record: what the attacker recovers differs "
        f"from it by {bare.mse:.1g} (mean squared error, pixels from 0 to 1), and {bare.identified:.0%} of "
        "the records are identified.",
        "Behind a channel the network sees a noisy picture, and no attacker can recover more than that picture: at "
        f"{in_nats(f'{strictest.capacity:g}')} the attacker's estimates err by {strictest.mse:.2g}, and it identifies "
        f"{strictest.identified:.1%} of the records; no attacker identifies more than {strictest.most:.1%} on average.",
        "Fewer nats leak less and cost accuracy, which leakbound measures; each further use of a record leaks more.",
    ]


def _page(
    images: datasets.ImageDataset, truth: np.ndarray, attacked_uploads: Sequence[AttackedUploads]
) -> str:
    """Write the page as HTML that contains its pictures."""
    from leakbound_lab.figures.report.page_templates import templates

    uploads = [
        {
            "name": "undefended"
            if upload.capacity is None
            else f"behind κ = {in_nats(f'{upload.capacity:g}')}",
            "seen": _strip(upload.seen),
            "recovered": _strip(upload.recovered),
            "mse": upload.mse,
            "least": upload.least,
            "identified": 100 * upload.identified,
            "most": 100 * upload.most,
        }
        for upload in attacked_uploads
    ]
    page = templates().get_template("demo.html")
    return page.render(
        dataset=images.name,
        sentences=_sentences(attacked_uploads),
        truth=_strip(truth),
        uploads=uploads,
        missed=max(upload.missed for upload in attacked_uploads),
        trials=_TRIALS,
        aux=len(images.aux),
    )


def _strip(pictures: np.ndarray) -> dict[str, Any]:
    """Encode pictures side by side as PNG in base 64, with the size at which the page shows them."""
    from leakbound.records.collection import WHITE, pixel_levels, png

    strip = np.concatenate(list(pixel_levels((pictures + 1) * (WHITE / 2))), axis=2)
    height, width = strip.shape[1:]
    return {
        "source": base64.b64encode(png(strip, optimize=True)).decode(),
        "width": width * _ENLARGED // 2,
        "height": height * _ENLARGED // 2,
    }
