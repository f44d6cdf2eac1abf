"""Command: noisy copies of the user's records, and a statement of what they reveal."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

from leakbound import __version__, storage
from leakbound.accounting.risk import naming_bound
from leakbound.accounting.statement import EQUAL_RECORDS, PUBLIC_ARE_OTHERS, Statement, state, upper_bound
from leakbound.channels.observed import rounded_up
from leakbound.commands import own_records, record_options
from leakbound.commands.files import check_outputs, refusing
from leakbound.commands.guidance import write_guidance
from leakbound.commands.terminal import progress_bar
from leakbound.engine.refusals import GuaranteeError
from leakbound.engine.sheets import digest
from leakbound.storage.seals import created
from leakbound.words import in_nats

if TYPE_CHECKING:
    from leakbound.engine.accountant import Account
    from leakbound.engine.engine import ChannelEngine
    from leakbound.records.collection import Collection

STATEMENT = "protection.json"
_BATCH = 256
_ROUNDED_AWAY = 0.1  # levels: noise of half a level, which changes a pixel, is five standard deviations
_VALUES = 2**22  # values of a batch, which limit its records
_ROUNDED = (
    "images hold 256 levels: noisy values are clipped to black and white and rounded after the release, so no bound "
    "gets worse; but the remaining noise is no longer the channel's: take --values npy for what was released"
)
_ONE_OF_BOTH = (
    "give either --public PATH, records that an attacker may know, or --calibrate-to-own, which makes the "
    "noise a statistic of the given records, so that no bound holds against whoever knows the other records"
)
_SEEDED = (
    "THE NOISE IS SEEDED: whoever knows or tries the seed subtracts it; omit --seed to protect real records"
)
_NOTED = "{ledger} notes this for good, so that no copy of these records has a bound in it: try seeds without --ledger"
_SEEDED_BEFORE = (
    "{ledger} also counts uses of these records with NOISE FROM A SEED: whoever knows or tries it subtracts it, and "
    "no noise that is added later hides these records, so that no bound holds"
)


def protect(
    path: record_options.DataArgument,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FOLDER",
            parser=record_options.path_of,
            help="Folder to write. It must be empty or not exist.",
        ),
    ],
    target_options: record_options.TargetOptions,
    *,
    shape: Annotated[record_options.Shape, typer.Option(help="Shape of the noise.")] = "natural",
    box: record_options.BoxOption = None,
    public: record_options.PublicOption = None,
    calibrate_to_own: Annotated[
        bool,
        typer.Option(
            "--calibrate-to-own",
            help="Without public records: calibrate to your own records. Then no bound holds against an attacker who "
            "knows the other records.",
        ),
    ] = False,
    accept_capacity: record_options.AcceptOption = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=record_options.path_of,
            help="File in which all copies and trainings that name it count what they reveal of these records. "
            "Make it once, by `leakbound ledger new FILE`.",
        ),
    ] = None,
    reading: record_options.ReadingOptions,
    sheet: record_options.StatementOption = None,
    values: Annotated[
        Literal["png", "npy"],
        typer.Option(
            help="For images. png: the format of the input, clipped and rounded to 256 levels. npy: the values that "
            "the channel releases, as float32 arrays of images and labels."
        ),
    ] = "png",
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**32 - 1,
            help="Seed for reproducible noise, which gives no protection. Default: secure noise.",
        ),
    ] = None,
) -> None:
    """Add calibrated noise to every record and report how much the copies leak. Choose exactly one target.

    Example: leakbound protect photos --public others --target-leakage 4 --out noisy

    Example: leakbound protect patients.csv --label diagnosis --public others.csv
    --target-identification 0.1 --candidates 1000 --out noisy
    """
    target = own_records.target_of(target_options)
    if (public is not None) == calibrate_to_own:
        raise typer.BadParameter(_ONE_OF_BOTH)
    own_records.check_new_folder(out)
    check_outputs(out / STATEMENT)
    if out.resolve().is_relative_to(path.resolve()):
        raise typer.BadParameter(
            f"--out {out}: lies in {path}, which would then hold it too; name a folder elsewhere"
        )
    from leakbound.commands import owners, sheets

    if sheet is not None:
        sheets.check(sheet, out)
    owner = reading.owner
    limit = sheets.limit_of(target, owned=owner is not None)
    with own_records.collected_warnings() as warnings:
        private, public_records = own_records.read_both(path, public, reading)
        own_records.check_reachable(target, public_records or private)
        weights = own_records.weights_of(box, shape, private)
        owner_names = None if owner is None else owners.owners_of(private, owner)
        group = 1 if owner_names is None else max(Counter(owner_names).values())
        most = 1
        if owner_names is None:
            own_records.count_equal(private)
        else:
            most, times = owners.most_records(private.values, owner_names)
            source = (public_records or private).values
            target = owners.for_owners(target, source, shape, weights, (most, times))
        options: Any = {"shape": shape, "weights": weights, "seed": seed, "ledger": ledger}
        engine = _make_engine(private, public_records, target, accept_capacity=accept_capacity, **options)
        engine.labels.names = [f"{private.column!r} {name!r}" for name in private.classes] or None
        if private.pictures and values == "png":
            _refuse_originals(engine, private)
        released, copies = _noisy_copies(engine, private, owner_names)
        with created(out) as folder:
            written = _write(folder, private, released, values)
            write_guidance(engine.calibration, target, public_records or private)
            _warn_of_noise(engine, private, seed)
            statement = {
                **_statement(engine, private, public_records, target_options, copies, group, most),
                "target": {
                    "kind": type(target).__name__,
                    **asdict(target),  # type: ignore[call-overload]
                    "uses": target_options.uses,
                },
                "written": written,
                "warnings": warnings,
                "digest": digest(folder)[0],
            }
            storage.write_json(folder / STATEMENT, statement, sealed=False)
    if sheet is not None:
        people = None if owner_names is None else len({*owner_names})
        sheets.of_copies(sheet, statement, path, out, people, limit)
    sys.stdout.write(_text(statement, out))
    if public_records is not None and (capacity := engine.own_capacity) is not None:
        sys.stdout.write(
            f"by the moments of {capacity.records} different given records all planned copies reveal "
            f"{capacity.rounded:g} nats about the values of a record; this number is in no file, keep it to yourself\n"
        )


def _refuse_originals(engine: ChannelEngine, private: Collection) -> None:
    """Refuse noise that rounding to 256 levels takes away again from nearly every pixel, before anything is counted.

    Raises:
        BadParameter: If no pixel has noise of a tenth of a level: one in a million would change.
    """
    largest = own_records.deviations(engine.calibration.channel)["largest"]
    if largest < _ROUNDED_AWAY:
        raise typer.BadParameter(
            f"{private.origin}: rounded to 256 levels, the copies would be the originals: the noise has a standard "
            f"deviation of at most {largest:.2g} levels. Ask for fewer nats, or give --values npy"
        )


def _warn_of_noise(engine: ChannelEngine, private: Collection, seed: int | None) -> None:
    """Warn of noise of less than a grey level, or a hundredth of the spread of an array, and of noise from a seed."""
    std = own_records.deviations(engine.calibration.channel)["root_mean_square"]
    if std < (1.0 if private.pictures else 0.01 * float(private.values.std(dtype=np.float64))):
        own_records.warn(
            f"the copies are nearly the originals: the noise has a standard deviation of {std * private.unit:.2g}, "
            f"{own_records.units(private)}. Ask for fewer nats to hide anything"
        )
    if seed is not None:
        own_records.warn(f"--seed {seed}: {_SEEDED}", _SEEDED)
        if engine.ledger is not None:
            own_records.warn(_NOTED.format(ledger=engine.ledger.name))
    elif not engine.leakage().secure:
        own_records.warn(_SEEDED_BEFORE.format(ledger=engine.ledger and engine.ledger.name))


def _make_engine(
    private: Collection, public: Collection | None, target: Any, **options: Any
) -> ChannelEngine:
    """Make the engine for the records, calibrated to the public ones or to themselves."""
    import torch

    from leakbound.engine.engine import ChannelEngine
    from leakbound.records.collection import WHITE

    source = private if public is None else public
    title = f"calibrating {options['shape']} noise"
    with progress_bar(title, None), refusing(target), own_records.command_line_warnings():
        return ChannelEngine.for_data(
            torch.from_numpy(source.values),
            own_records.in_units(target, source),
            classes=len(private.classes) or None,
            # Ranges of other values were compared in the units of the files.
            value_range=(0, WHITE) if private.pictures else (-math.inf, math.inf),
            calibrate_to_own=public is None,
            **options,
        )


def _noisy_copies(
    engine: ChannelEngine, private: Collection, owner_names: Sequence[str] | None
) -> tuple[Iterator[np.ndarray], int]:
    """Return noisy copies of all records, the same one for equal records, and how many equal an earlier record.

    With owners each record has a copy of its own, which counts for all owners of equal records. Every label of equal
    records is counted.
    """
    import torch

    from leakbound.records.records import first_copies

    labels = private.labels if private.classes else None
    if owner_names is not None:
        return _release(engine, private.values, private.origin, labels, owner_names), 0
    alone, which = np.unique(first_copies(private.values), return_inverse=True)
    if len(alone) == len(which):
        return _release(engine, private.values, private.origin, labels), 0
    labels_alone = None if labels is None else labels[alone]
    rows = np.concatenate([*_release(engine, private.values[alone], private.origin, labels_alone)])
    if labels is not None and len(relabelled := np.flatnonzero(labels != labels[alone][which])):
        engine.count_labels(torch.from_numpy(private.values[relabelled]), labels[relabelled].tolist())
    return (rows[row : row + 1] for row in which), len(which) - len(alone)


def _release(
    engine: ChannelEngine,
    values: np.ndarray,
    origin: Path,
    labels: np.ndarray | None,
    owner_names: Sequence[str] | None = None,
) -> Iterator[np.ndarray]:
    """Yield a noisy copy of each record, batch by batch, in the units of the records.

    Raises:
        BadParameter: If the noise does not hide one of the records.
    """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    size = max(1, min(_BATCH, _VALUES // values[0].size))
    released = [values] if labels is None else [values, labels]
    loader = DataLoader(TensorDataset(*map(torch.from_numpy, released)), batch_size=size)
    at = 0
    with progress_bar("releasing", len(values)) as each, own_records.command_line_warnings():
        try:
            for batch, *_ in engine.protect(loader, owner=owner_names):
                yield batch.numpy()
                at += len(batch)
                each(len(batch))
        except GuaranteeError as error:
            reason = own_records.with_options(str(error))
            raise typer.BadParameter(f"{origin}: records {at} to {at + size - 1}: {reason}") from error


def _write(folder: Path, private: Collection, released: Iterator[np.ndarray], values: str) -> dict[str, Any]:
    """Write the copies as they are released, and return their form and the share of clipped values."""
    from leakbound.records.collection import WHITE, pixel_levels, write_pictures

    if private.pictures and values == "png":
        clipped: list[int] = []

        def rounded() -> Iterator[np.ndarray]:
            for batch in released:
                clipped.append(int(np.count_nonzero((batch < 0) | (batch > WHITE))))
                yield pixel_levels(batch)

        write_pictures(folder, private, rounded())
        return {
            "form": "arrays, 8 bits" if private.kind == "images" else f"{private.kind}, PNG of 8 bits",
            "clipped": sum(clipped) / private.values.size,
            "remark": _ROUNDED,
        }
    if private.kind == "table" and private.stored is not None and private.labels is not None:
        restored = private.restored(np.concatenate([*released]))
        private.stored.write(folder / private.file_name, restored, private.labels)
        return {"form": "table", "clipped": 0.0, "remark": "as the channel released them, not clipped"}
    path = folder / ("images.npy" if private.pictures else private.origin.name)
    noisy = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), private.values.shape)
    at = 0
    for batch in released:
        noisy[at : at + len(batch)] = private.restored(batch) * np.float32(private.unit)
        at += len(batch)
    noisy.flush()
    if private.labels is not None:
        np.save(folder / "labels.npy", private.labels)
    return {"form": "array, float32", "clipped": 0.0, "remark": "as the channel released them, not clipped"}


def _statement(
    engine: ChannelEngine,
    private: Collection,
    public: Collection | None,
    options: record_options.TargetOptions,
    copies: int,
    group: int,
    most: int,
) -> dict[str, Any]:
    """Describe a protection: channel, target, leakage of each record or of all of an owner, assumptions."""
    candidates = options.candidates
    calibration = engine.calibration
    channel = calibration.channel
    moments = calibration.moments
    leakage = engine.leakage()
    statement = _copies_statement(engine, private, leakage, group, copies)
    planned = most * engine.nats(options.uses)
    # Errors after copies of other channels, or of other records of an owner, are not computed.
    alone = np.isclose(leakage.joint, engine.nats(leakage.fresh_uses), rtol=1e-9)
    # Numbers of a calibration to the records depend on them, and all their digits would identify the records.
    stated: Callable[[float], float] = rounded_up if public is None else float
    deviations = own_records.deviations(channel)
    return {
        "leakbound": __version__,
        "channel": {
            "shape": channel.shape,
            "capacity": stated(calibration.information(1)),
            "std": {name: stated(private.unit * value) for name, value in deviations.items()},
            "units": own_records.units(private),
            "calibrated_to": own_records.calibration_source(public),
            "records": moments.count,
            "shrinkage": stated(moments.shrinkage),
        },
        "noise": "secure" if engine.secure else "seeded",
        "uses": leakage.fresh_uses,
        "records": len(private),
        "repeated": copies,
        "shape": list(private.values.shape[1:]),
        "classes": len(private.classes),
        "class_counts": private.counts,
        "planned": {
            "uses": options.uses,
            "values": stated(planned),
            "record": stated(planned + (leakage.labels or 0.0)),
        },
        "leakage": {
            "record": stated(leakage.record),
            "values": stated(leakage.joint),
            "label": None if statement.label_kind == "uncounted" else statement.labels,
            "all_records": stated(leakage.dataset),
            "mse_linear": stated(private.unit**2 * calibration.linear_error(leakage.fresh_uses))
            if alone
            else None,
            "mse_mean": stated(private.unit**2 * calibration.linear_error(0)),
            "identification": stated(naming_bound(leakage.joint, candidates)),
            "candidates": candidates,
        },
        "statement": statement.numbers(),
        "assumed": list(_assumptions(engine, private, public, copies)),
    }


def _copies_statement(
    engine: ChannelEngine, private: Collection, leakage: Account, group: int, copies: int
) -> Statement:
    """State what the copies reveal, with all else that the ledger of the engine has counted."""
    labels: Any = leakage.labels
    if labels is None:  # those of other copies in the ledger count, too
        labels = "uncounted" if private.classes or engine.released_uncounted_labels else "none"
    unit: Any = "owner" if leakage.owned else "record"
    group = max(group, leakage.group or 1)  # owners that another run of the ledger has named
    facts: dict[str, Any] = {"secure": leakage.secure, "labels": labels, "unit": unit, "group": group}
    facts["uncovered"] = leakage.uncovered + ((EQUAL_RECORDS,) if copies else ())
    if engine.calibrate_to_own:  # all digits would identify the records
        return state("the noisy copies", added=rounded_up(leakage.joint), **facts)
    return state("the noisy copies", added=leakage.joint, **facts)


def _assumptions(
    engine: ChannelEngine, private: Collection, public: Collection | None, copies: int
) -> Iterator[str]:
    """Yield what the numbers rest on, one sentence each."""
    moments = engine.calibration.moments
    leakage = engine.leakage()
    count = moments.count
    uses = engine.target.uses or 1
    if public is None:
        yield (
            f"the noise is calibrated to the mean and covariance of these {count} records, so no bound holds "
            "against whoever knows the other records; --public PATH takes records that an attacker may know"
        )
    else:
        yield f"the records have the covariance of the {count} public ones; then the nats hold for every attacker"
        if engine.public_records_repeat:
            yield f"the public records {PUBLIC_ARE_OTHERS}"
    if few := own_records.shrinkage_note(moments):
        yield few
    yield "the squared error is the least for Gaussian records alone; for images another estimate can err less"
    planned = f"of the {uses} that are planned " if uses > 1 and not leakage.owned else ""
    if engine.ledger is None:
        yield f"this is one noisy copy {planned}of each record: whoever sees another one, with new noise, learns more"
    else:
        yield (
            f"the leakage is that of all copies and trainings that {engine.ledger.name} has counted of these "
            f"values {engine.counts()}, and of none before: add that of copies that were resized, converted or "
            "standardized in another way"
        )
    if private.left_out:
        yield f"{private.left_out} records, of which something is missing, were left out and have no copy"
    if private.filled:
        of = "public records" if public is not None else "records themselves"
        yield f"{private.filled} missing values are medians of the {of} in front of the noise, like measurements"
    encoders = private.encoding.categories if private.encoding is not None else {}
    if missing := [name for name, encoder in encoders.items() if "" in encoder.categories_[0]]:
        yield f"a text that is missing is a category like others, in {', '.join(map(repr, missing))}"
    if copies:
        yield f"{copies} records are copies of others, and have the same noisy copy, which shows it"
    if private.scale is not None:
        by = "public records" if public is not None else "records themselves"
        yield f"values were standardized by mean and standard deviation of the {by}, and brought back into their units"
    if leakage.owned:
        yield "owners are named rightly: nats of all records of an owner are added up, whatever these have in common"
    else:
        yield "each person is there once: what several records of one person reveal adds up: --owner"
    rest = "order, number and size of the records are not protected"
    yield {
        "folders": f"names of files and {'class ' if private.classes else ''}folders, {rest}",
        "parquet": f"the column {private.column!r}, {rest}; all other columns are left out",
        "table": f"the column {private.column!r}, names of columns, {rest}; columns that were left out are not there",
        "array": rest,
        "images": f"{'labels, ' if private.classes else ''}{rest}; other arrays of the file are left out",
    }[private.kind]
    if not engine.secure:
        yield _SEEDED
    elif not leakage.secure:
        yield _SEEDED_BEFORE.format(ledger=engine.ledger and engine.ledger.name)


def _text(statement: dict[str, Any], out: Path) -> str:
    """Write the statement for people."""
    channel, leakage, written = (statement[name] for name in ("channel", "leakage", "written"))
    std = channel["std"]
    secret = statement["statement"]["secure"]
    label = leakage["label"]
    by_label = "the label is not counted" if label is None else f"{upper_bound(label)} by the label"
    errs = "after several channels is not computed; it errs by less than after one"
    if statement["statement"]["unit"] == "owner":
        errs = "from all records of an owner is not computed; it may err by less than from one"
    if (error := leakage["mse_linear"]) is not None:
        errs = f"errs by {error:.4g} squared per value"
    plan = statement["planned"]
    planned = []
    if plan["uses"] > 1:
        values = in_nats(upper_bound(plan["values"], 6))
        planned = [
            f"planned          {plan['uses']} uses with fresh noise together: {values} by the values, "
            + (
                "the label is not counted"
                if label is None
                else f"{upper_bound(plan['record'], 6)} with the label"
            )
        ]
    lines = [
        f"{out}: {statement['records']} noisy copies, {written['form']}; {STATEMENT} holds the numbers",
        f"noise            {channel['shape']}, {statement['noise']}, standard deviation "
        f"{std['root_mean_square']:.4g} ({std['least']:.4g} to {std['largest']:.4g}), {channel['units']}",
        f"leakage          {statement['statement']['sentence']}",
        *(["no bound         the numbers below would hold if the noise were secret"] if not secret else []),
        f"by parts         {in_nats(upper_bound(leakage['values'], 6))} by the values, {by_label}",
        *planned,
        f"reconstruction   the best linear estimate {errs}, guessing the mean by {leakage['mse_mean']:.4g}",
        f"identification   largest probability among {leakage['candidates']} equally likely records by the "
        f"values: {record_options.limit_text(leakage['identification'])}",
        f"clipped          {written['clipped']:.1%} of all values; {written['remark']}",
        "assumed",
        *(f"  - {assumption}" for assumption in statement["assumed"]),
    ]
    return "\n".join(lines) + "\n"
