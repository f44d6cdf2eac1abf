"""Command: one offline page of pictures that shows what an upload tells, and what a channel makes of it."""

from __future__ import annotations

import base64
import html
import io
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from leakbound.cli.people import own_records
from leakbound.cli.people.progress import counted

if TYPE_CHECKING:
    from leakbound.attacks.demonstration import Shown
    from leakbound.datasets import ImageDataset

_CAPACITIES = {1: (32.0, 8.0, 2.0), 3: (800.0, 60.0, 4.0)}  # by the number of colors
_TRIALS, _PICTURES, _TEST = 300, 5, 100
_MOST_AUX = 31_000  # beyond ten records for each value the covariance is taken as it is
_ENLARGED = 3
_STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:66rem;margin:2rem auto;padding:0 1rem;color:#222;background:#fff}"
    "table{border-collapse:collapse;font-size:.9em}td,th{padding:.3rem .5rem;text-align:left;vertical-align:middle}"
    "td:first-child{white-space:nowrap}"
    "tr{border-bottom:1px solid #ccc}img{image-rendering:pixelated;display:block}.wide{overflow-x:auto}"
)


def demo(
    out: Annotated[
        Path,
        typer.Option(metavar="FILE", parser=own_records.path_of, help="Page to write, HTML; it must not be there."),
    ] = Path("demo.html"),
    dataset: Annotated[
        str, typer.Option(help="Images: digits, which the package carries, or others of the folder LEAKBOUND_DATA.")
    ] = "digits",
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of records, network and noise.")] = 0,
) -> None:
    """Write one offline page: pictures that an attacker recovers from uploads, without a channel and behind some."""
    from leakbound import storage
    from leakbound.cli.inputs import check_outputs

    check_outputs(out)
    if out.exists():
        raise typer.BadParameter(f"--out {out}: is there already; name another file, nothing is overwritten")
    _check_dataset(dataset)
    images, truth, shown = _attacked(dataset, seed)
    with own_records.not_replaced(out), storage.atomic(out, sealed=False, replace=False) as temporary:
        temporary.write_text(_page(images, truth, shown), encoding="utf-8")
    sys.stdout.write("\n".join([*_sentences(shown), f"{out}: {out.stat().st_size / 1e3:.0f} kB"]) + "\n")


def _check_dataset(name: str) -> None:
    """Refuse a dataset that is none of ours, or whose pictures may not be shown."""
    from leakbound.config.data import ORIGINALS
    from leakbound.datasets import may_be_published
    from leakbound.registry import DATASETS

    open_ones = [one for one in ORIGINALS if may_be_published(DATASETS.get(one))]
    if name not in open_ones:
        raise typer.BadParameter(
            f"--dataset {name!r}: allowed are {', '.join(open_ones)}, whose pictures may be shown to everybody"
        )


def _attacked(name: str, seed: int) -> tuple[ImageDataset, np.ndarray, list[Shown]]:
    """The images, those of them that are attacked, and what the attacks have found."""
    from leakbound import datasets
    from leakbound.attacks.demonstration import demonstration
    from leakbound.channels.covariance import population_moments
    from leakbound.config.data import ORIGINALS, DatasetConfig

    known = ORIGINALS[name]
    levels, aux = _CAPACITIES[known.colors], min(_MOST_AUX, known.train - 3 * _TRIALS)
    with counted(f"attacking {name}", 2 + len(levels)) as each:
        images = datasets.prepare(name, DatasetConfig(members=_TRIALS, test=_TEST, aux=aux), seed)
        moments = population_moments(images.aux.images)
        each(1)
        truth, shown = demonstration(images, moments, levels, pictures=_PICTURES, trials=_TRIALS, seed=seed, each=each)
    return images, truth, shown


def _sentences(shown: Sequence[Shown]) -> list[str]:
    """The three sentences of the page."""
    bare, strictest = shown[0], shown[-1]
    return [
        "Without a defense the gradient of one record gives the record back: what the attacker recovers differs from "
        f"it by {bare.mse:.1g} (mean squared error, pixels from 0 to 1), and {bare.named:.0%} of the records are named "
        "rightly.",
        "Behind a channel the network sees a noisy picture, and the attacker recovers no more than that, however "
        f"clever it is: at {strictest.capacity:g} nats its estimates err by {strictest.mse:.2g}, and it names "
        f"{strictest.named:.1%} of the records rightly, of at most {strictest.most:.1%} that anybody could on average.",
        "The fewer nats, the less is told and the less is learned: what that costs in accuracy is what leakbound "
        "measures, and each further use of a record tells more.",
    ]


def _page(images: ImageDataset, truth: np.ndarray, shown: Sequence[Shown]) -> str:
    """The page as HTML, its pictures inside."""
    heads = (
        "upload",
        "what the network saw",
        "what the attacker recovers",
        "error",
        "least linear error",
        "named",
        "bound",
    )
    rows = [f"<tr><td>true records</td><td>{_picture(truth, 'true records')}</td>{'<td></td>' * 5}</tr>"]
    for one in shown:
        name = "undefended" if one.capacity is None else f"behind κ = {one.capacity:g} nats"
        pictures = (_picture(one.seen, f"seen, {name}"), _picture(one.found, f"recovered, {name}"))
        numbers = (f"{one.mse:.4f}", f"{one.least:.4f}", f"{one.named:.0%}", f"{one.most:.0%}")
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in (name, *pictures, *numbers)) + "</tr>")
    sentences = "".join(f"<p>{html.escape(one)}</p>" for one in _sentences(shown))
    head = "".join(f"<th>{one}</th>" for one in heads)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>leakbound demo</title>'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        f"style-src 'unsafe-inline'\"><style>{_STYLE}</style></head><body>"
        f"<h1>What an upload tells of {html.escape(images.name)}</h1>{sentences}"
        f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>'
        f"<p>{html.escape(_notes(images, _TRIALS, max(one.missed for one in shown)))}</p></body></html>\n"
    )


def _notes(images: ImageDataset, count: int, missed: float) -> str:
    """The meaning of the columns."""
    return (
        f"Each upload is the gradient of one record of {images.name} in an untrained sigmoid LeNet, its label known. "
        "The attacker solves it for the picture that the network saw and takes the best linear estimate of the record. "
        f"Solving misses that picture by {missed:.1g} of its size at most, most where noise saturates the network; so "
        "error and names behind a channel are those of an attacker who is given the picture itself, and who knows at "
        f"least as much. Error: mean over {count} records, pixels from 0 to 1. Least linear error: that of the "
        "estimate in expectation, the least of all linear ones, and of all if records are Gaussian; clipping to black "
        "and white lowers it a little. Named: share of the records whose noisy picture is nearest to themselves, of "
        f"{count}; bound: Fano's, which holds for every attacker on average over records. The noise is natural, the "
        f"same on every pixel, seeded for this page, and calibrated to {len(images.aux)} other records."
    )


def _picture(pictures: np.ndarray, text: str) -> str:
    """The first few pictures side by side, as an element that holds them."""
    from PIL import Image

    from leakbound.datasets.collection import levels

    strip = np.concatenate(list(levels((pictures + 1) / 2)), axis=2)
    plain = np.moveaxis(strip, 0, -1)
    file = io.BytesIO()
    Image.fromarray(plain[..., 0] if plain.shape[-1] == 1 else plain).save(file, "PNG", optimize=True)
    tall, wide = plain.shape[:2]
    source = base64.b64encode(file.getvalue()).decode()
    return (
        f'<img alt="{html.escape(text)}" width="{wide * _ENLARGED // 2}" height="{tall * _ENLARGED // 2}" '
        f'src="data:image/png;base64,{source}">'
    )
