"""Options of commands on the user's records, apart from what reads records: they are loaded for a help alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer

from leakbound.accounting.risk import bound_text

Shape = Literal["natural", "white", "personalized", "least_power", "rate_distortion"]
_MOST = 10**9  # candidates, and planned uses
Box = tuple[int, int, int, int, float] | None
"""First row, row after the last, first column, column after the last, weight."""


def path_of(text: str | Path) -> Path:
    """Parse a path. It must not be empty, which would mean the current folder.

    Raises:
        BadParameter: If it is empty or has a character that no path has.
    """
    if not str(text).strip() or "\0" in str(text):
        raise typer.BadParameter(f"{text!r} is no path; name a file or folder, . for the one you are in")
    return Path(text)


DATA = (
    "Folder of images, folder with a subfolder of images for each class, images or a table of numbers with a column of "
    "labels as .parquet, in shards or as datasets.save_to_disk writes them, table .csv, .tsv or .gz, or arrays .npy, "
    ".npz, .mat or IDX."
)
DataArgument = Annotated[Path, typer.Argument(parser=path_of, help=DATA)]
PublicOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        parser=path_of,
        help="Public records, to which the noise is calibrated. They must have the distribution and the form of the "
        "private ones.",
    ),
]
AcceptOption = Annotated[
    float | None,
    typer.Option(
        "--accept-capacity",
        metavar="NATS",
        help="Largest leakage of all planned copies, in nats, for the covariance of your own records. Default: 25 % "
        "more than for the covariance of the public ones.",
    ),
]
StatementOption = Annotated[
    Path | None,
    typer.Option(
        "--statement",
        metavar="FILE.html",
        parser=path_of,
        help="Also write what is revealed on one page of A4 to sign, and the same as .json next to it. They name the "
        "records and are for you and your privacy officer alone.",
    ),
]
BoxOption = Annotated[
    Box,
    typer.Option(
        metavar="TOP BOTTOM LEFT RIGHT WEIGHT",
        help="Rectangle with more noise, for the personalized shape: first row, row after the last, first column, "
        "column after the last, and its noise variance as a multiple of the variance elsewhere.",
    ),
]


@dataclass(frozen=True)
class ReadingOptions:
    """How records are read: options of all commands that read any.

    None, and no columns, are options that are not given.

    Attributes:
        label: Column of the labels.
        resize: Pixels of a side that pictures are brought to.
        color: Mode that pictures are converted to.
        span: Levels of 16-bit grey that become black and white.
        image: Column of the pictures.
        standardize: Whether values of tables and arrays are standardized.
        exclude: Columns of a table that are left out.
        categories: Columns of a table whose texts become columns of 0 and 1.
        missing: What happens to missing values of a table.
        owner: Column, array or pattern that says whose a record is.
    """

    label: Annotated[str, typer.Option(help="Column of the labels in a Parquet file or table.")] = "label"
    resize: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=512,
            metavar="PIXELS",
            help="Crop each image to its largest centred square and resize it to so many pixels a side.",
        ),
    ] = None
    color: Annotated[
        Literal["rgb", "gray"] | None,
        typer.Option(
            help="Convert images of all modes to this one: transparent images get a white background, 16 bits "
            "become 8. Default: take only 8-bit grey or RGB."
        ),
    ] = None
    span: Annotated[
        tuple[int, int] | None,
        typer.Option(
            "--range",
            metavar="LOW HIGH",
            min=0,
            max=65_535,
            help="For 16-bit grey: levels that become black and white, e.g. 0 4095 for 12 bits of an X-ray.",
        ),
    ] = None
    image: Annotated[str, typer.Option(help="Column of the images in a Parquet file.")] = "image"
    standardize: Annotated[
        bool | None,
        typer.Option(
            "--standardize/--no-standardize",
            help="Standardize each value of a table or array by mean and standard deviation of the public records. "
            "Default: tables.",
            show_default=False,
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column of a table to leave out. May be repeated."),
    ] = None
    categories: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of texts in a table, of which a column of 0 and 1 is made for each text. May be repeated.",
        ),
    ] = None
    missing: Annotated[
        Literal["drop", "median", "keep"] | None,
        typer.Option(
            help="Missing values of a table, and numbers such as -999 in their place. drop: leave out the record. "
            "median: take the median of the public records. keep: such numbers are measurements. Default: refuse them."
        ),
    ] = None
    owner: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN|ARRAY|PATTERN",
            help="Whose a record is: a column of a table or Parquet file, which is no value of a record, an array of a "
            "file .npz or .mat, or, for a folder of images, a regular expression whose group is the owner in a path, "
            "e.g. '(p[0-9]+)_'. Targets and bounds are then for all records of an owner together.",
        ),
    ] = None


@dataclass(frozen=True)
class TargetOptions:
    """Target of a calibration, of which exactly one of four kinds is given, and the uses that it is for.

    Attributes:
        kappa: Nats of one use.
        leakage: Nats of all uses together.
        mse: Squared error per value that remains after all uses.
        identification: Probability of identifying a record after all uses.
        candidates: Number of records that identification is among.
        uses: Planned uses of each record.
    """

    kappa: Annotated[
        float | None,
        typer.Option(
            metavar="NATS",
            help="Largest number of nats that one noisy copy may reveal about a record, on average (capacity).",
        ),
    ] = None
    leakage: Annotated[
        float | None,
        typer.Option(
            "--target-leakage",
            metavar="NATS",
            help="Largest number of nats that all --uses together may reveal about a record, on average.",
        ),
    ] = None
    mse: Annotated[
        float | None,
        typer.Option(
            "--target-mse",
            metavar="ERROR",
            help="Squared error per value that the best linear estimate from all --uses must keep. Units: pixels from "
            "0 to 1 for images, standard deviations for standardized values, else their own.",
        ),
    ] = None
    identification: Annotated[
        float | None,
        typer.Option(
            "--target-identification",
            metavar="PROBABILITY",
            help="Largest probability of identifying a record among --candidates from all --uses.",
        ),
    ] = None
    candidates: Annotated[
        int,
        typer.Option(
            min=2, max=_MOST, help="Number of equally likely records, one of which is the true one."
        ),
    ] = 1000
    uses: Annotated[
        int,
        typer.Option(
            min=1, max=_MOST, help="Planned number of noisy copies of each record, each with fresh noise."
        ),
    ] = 1


def limit_text(share: float) -> str:
    """Write a bound on a probability or an area under a curve, rounded up, or that it limits nothing."""
    return "no limit" if (text := bound_text(share)) == "1" else text
