"""Options of an audit of the user's network: its files, and the bound that is tested."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

NETWORK = "For a network of your own"
"""Heading of the options of an audit of the user's network."""


def network_option(metavar: str, text: str) -> Any:
    """Make an option of an audit of the user's network."""
    return typer.Option(metavar=metavar, rich_help_panel=NETWORK, help=text)


@dataclass(frozen=True)
class NetworkOptions:
    """Files of the user's network, of which an audit of it needs the first four.

    Attributes:
        checkpoint: Weights, or the file that ``load`` of the script reads.
        script: Script and function, e.g. ``my_score.py:score``.
        members: Records and labels of the training.
        others: Further records and labels, in the same form.
        references: Outputs of reference networks, .npz.
        canaries: Records, labels and coins, .npz.
    """

    checkpoint: Annotated[
        Path | None,
        network_option(
            "FILE",
            "File of the network. The script's function load(path) reads it. Without such a function it must "
            "be a file that torch.save wrote.",
        ),
    ] = None
    script: Annotated[
        str | None,
        network_option(
            "FILE:FUNCTION",
            "Python file and a function in it. The function of (network, records, labels) returns logits of "
            "all classes or a loss of each record. The file is executed with all your rights.",
        ),
    ] = None
    members: Annotated[
        Path | None,
        network_option(
            "PATH",
            "Members, the records of the training: .npz with arrays records and labels, a folder with a "
            "subfolder of images for each class, a Parquet file of images, or a table .csv or .parquet. Images "
            "are levels from 0 to 255 of shape (n, colors, height, width), and classes are numbered in the "
            "order of their names.",
        ),
    ] = None
    others: Annotated[
        Path | None, network_option("PATH", "Non-members of the same distribution, in the same form.")
    ] = None
    references: Annotated[
        Path | None,
        network_option(
            "NPZ",
            "Outputs of two or more reference networks for the same records: arrays members and others. In "
            "addition, 1 for each record that a network was trained on and 0 for the rest: inside_members and "
            "inside_others.",
        ),
    ] = None
    canaries: Annotated[
        Path | None,
        network_option(
            "NPZ", "Canaries: arrays records, labels, and included, which is 0 or 1 by a fair coin for each."
        ),
    ] = None


@dataclass(frozen=True)
class BoundOptions:
    """Bound that an audit tests, in one of two quantities.

    Attributes:
        epsilon: ε of adding or removing one record.
        delta: δ of ``epsilon``.
        nats: Mean nats of one use.
        uses: Uses that ``nats`` is multiplied by.
    """

    epsilon: Annotated[
        float | None,
        network_option("EPSILON", "Bound to test: epsilon for adding or removing one record, at --delta."),
    ] = None
    delta: Annotated[float | None, network_option("DELTA", "Delta of --epsilon, 1e-5 by default.")] = None
    nats: Annotated[
        float | None,
        network_option("NATS", "Bound to test: mean nats one use reveals about a record and its label."),
    ] = None
    uses: Annotated[
        int,
        typer.Option(
            min=1,
            max=10**9,
            rich_help_panel=NETWORK,
            help="Number of uses of each record, by which --nats is multiplied.",
        ),
    ] = 1
