"""Audit of the user's network: its files, the function that scores its records, and a page on its leakage."""

import importlib.util
import json
import math
import pickle
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import BadZipFile

import numpy as np
import typer

from leakbound import storage
from leakbound.accounting.coin_limits import DELTA, StatedBound
from leakbound.accounting.statement import Statement
from leakbound.commands import own_records, owners
from leakbound.commands.files import refusing
from leakbound.commands.record_options import ReadingOptions
from leakbound.commands.terminal import progress_bar, text_table
from leakbound.records.arrays import is_array_file, read_arrays
from leakbound.records.records import DatasetError
from leakbound.registry import nearest_path
from leakbound.words import shown
from leakbound_lab.attacks.membership.audited_records import ReferenceScores
from leakbound_lab.attacks.membership.network_audit import NetworkAudit, audit_network
from leakbound_lab.commands.audit_options import BoundOptions, NetworkOptions

_LIMITS = ["coins of", "quantity", "lower limit", "bound", "at most", "coins", "guessed", "right"]
_MEANING = """at most: limit if all coins had been guessed right; one network with so many records shows no more
epsilon: of adding or removing one record; nats: about one record, a mean over trainings
"""


@dataclass(frozen=True)
class NetworkFiles:
    """The files of :class:`~leakbound_lab.commands.audit_options.NetworkOptions`, once the first four are there."""

    checkpoint: Path
    script: str
    members: Path
    others: Path
    references: Path | None
    canaries: Path | None


def network_files(options: NetworkOptions) -> NetworkFiles:
    """Return the files of a network that is audited.

    Raises:
        BadParameter: If one is missing that an audit needs.
    """
    checkpoint = options.checkpoint
    script = options.script
    members = options.members
    others = options.others
    if checkpoint is None or script is None or members is None or others is None:
        needed = {"--checkpoint": checkpoint, "--script": script, "--members": members, "--others": others}
        missing = ", ".join(name for name, value in needed.items() if value is None)
        raise typer.BadParameter(f"give a RUN of the workflow, or for a network of your own also {missing}")
    return NetworkFiles(checkpoint, script, members, others, options.references, options.canaries)


def stated_bound(options: BoundOptions) -> StatedBound | None:
    """Return the bound that the options state, or None.

    Raises:
        BadParameter: If the options contradict each other, or a number is out of range.
    """
    epsilon = options.epsilon
    delta = options.delta
    nats = options.nats
    uses = options.uses
    if epsilon is not None and nats is not None:
        raise typer.BadParameter(
            "--epsilon and --nats: an audit holds limits against one bound; give one of them"
        )
    if epsilon is None and delta is not None:
        raise typer.BadParameter(f"--delta {delta:g} belongs to --epsilon: give both")
    if nats is None and uses != 1:
        raise typer.BadParameter(f"--uses {uses} belongs to --nats: give both")
    if epsilon is not None:
        return StatedBound("epsilon", epsilon, DELTA if delta is None else delta)
    return None if nats is None else StatedBound("nats", nats * uses)


def audit_checkpoint(
    files: NetworkFiles,
    bound: StatedBound | None,
    confidence: float,
    seed: int,
    out: Path | None,
    as_json: bool,
    reading: ReadingOptions,
) -> None:
    """Audit a network, write the results, and exit with code 1 if the bound is contradicted.

    With owners one record of each is audited, drawn by chance, so that records of one person are not taken for
    independent ones.

    Raises:
        BadParameter: If a file or the script cannot be used.
    """
    owner = reading.owner
    if out is not None:
        own_records.check_absent(out)
    if owner is not None and files.references is not None:
        raise typer.BadParameter(
            f"--owner {owner}: outputs of reference networks are of all records; leave --references out"
        )
    members, others = _records(files, reading)
    group = 1
    if owner is not None:
        (members, group), (others, _) = _one_of_each_owner(files, members, others, seed)
    references = canaries = None
    if files.references is not None:
        inside = ("inside_members", "inside_others")
        references = ReferenceScores(*_arrays("references", files.references, ("members", "others"), inside))
    if files.canaries is not None:
        canaries = _arrays("canaries", files.canaries, ("records", "labels", "included"))
    with progress_bar("scoring records", None) as each:
        audit = audit_network(
            _score(files, each),
            members,
            others,
            references=references,
            canaries=canaries,
            bound=bound,
            confidence=confidence,
            seed=seed,
        )
    facts = _facts(files, audit, _statement_of(bound, group, owned=owner is not None))
    if out is not None:
        from leakbound_lab.figures.report.page import audit_page

        with own_records.refuse_overwriting(out):
            storage.write_text(out, audit_page(facts), sealed=False, replace=False)
    for warning in audit.warnings:
        sys.stderr.write(f"leakbound: warning: {warning}\n")
    sys.stdout.write(json.dumps(facts, indent=2) + "\n" if as_json else _text(facts, out))
    if audit.contradicted:
        raise typer.Exit(1)


def _records(files: NetworkFiles, reading: ReadingOptions) -> list[tuple[Any, ...]]:
    """Read members and non-members: arrays as they are stored, or folders and tables as all commands read them.

    Raises:
        BadParameter: If a file cannot be read, or the two number their classes or columns differently.
        DatasetError: If a folder or table cannot be read.
    """
    pairs = []
    forms = []
    owner = reading.owner
    for option, path in (("members", files.members), ("others", files.others)):
        if not path.exists():
            raise typer.BadParameter(f"--{option} {path}: it is not there{nearest_path(path)}")
        if path.is_dir() or (path.is_file() and not is_array_file(path)):
            values_alone = owners.without_owner_column(path, reading)
            with refusing(f"--{option}", DatasetError):
                collection = own_records.read_as(path, values_alone, labelled=True)
            pairs.append(
                (
                    collection.values,
                    np.asarray(collection.labels),
                    *(() if owner is None else (owners.owners_of(collection, owner),)),
                )
            )
            own_records.say_classes(path, collection.classes, pairs[-1][1], {})
            columns = collection.names if collection.kind == "table" else ()
            forms.append(f"classes {shown(collection.classes)}, columns {shown(columns)}")
        else:
            with refusing(f"--{option}", DatasetError):
                arrays = read_arrays(path, labelled=True)
            names = () if owner is None else (owners.owners_at(path, owner, len(arrays.values)),)
            pairs.append((arrays.values, np.asarray(arrays.labels), *names))
            forms.append("arrays")
    if forms[0] != forms[1]:
        raise typer.BadParameter(
            f"--others {files.others}: {forms[1]}, but --members {files.members}: {forms[0]}; both need one "
            "form, so that labels and columns mean the same"
        )
    return pairs


def _one_of_each_owner(
    files: NetworkFiles, members: tuple[Any, ...], others: tuple[Any, ...], seed: int
) -> Iterator[tuple[tuple[Any, ...], int]]:
    """Yield members and non-members, of each owner one record, and how many records an owner has at most.

    Raises:
        BadParameter: If somebody is an owner of both.
    """
    if both := {*members[2]} & {*others[2]}:
        raise typer.BadParameter(
            f"--others {files.others}: {shown(sorted(both))} also own records of --members {files.members}, so the "
            "network knows them; leave their records out"
        )
    for values, labels, names in (members, others):
        rows = owners.one_of_each(names, seed)
        yield (values[rows], labels[rows]), max(Counter(names).values())


def _statement_of(bound: StatedBound | None, group: int, *, owned: bool) -> Statement | None:
    """Put the bound that the options state into words. It holds as it was given, and is what the audit tests."""
    if bound is None:
        return None
    nats = bound.quantity == "nats"
    return Statement(
        release="the network's weights",
        unit="owner" if owned else "record",
        group=group,
        labels=0.0,
        label_kind="covered",
        every=not nats,
        secure=True,
        assumptions=("the bound and its secure noise are as the options state them",),
        values=bound.value if nats else math.inf,
        epsilon=None if nats else bound.value,
        delta=None if nats else bound.delta,
    )


def _arrays(option: str, path: Path, names: Sequence[str], more: Sequence[str] = ()) -> tuple[Any, ...]:
    """Read the named arrays of a file .npz, and further ones, which are None if missing.

    Raises:
        BadParameter: If the file cannot be read or lacks a named array.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files} if hasattr(file, "files") else {}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise typer.BadParameter(
            f"--{option} {path}: cannot be read as .npz: {error}{nearest_path(path)}"
        ) from error
    if missing := [name for name in names if name not in arrays]:
        raise typer.BadParameter(
            f"--{option} {path}: lacks {', '.join(missing)} (it holds {', '.join(arrays) or 'no names'}): "
            f"write it by numpy.savez(path, {', '.join(f'{name}=...' for name in names)})"
        )
    return tuple(arrays.get(name) for name in (*names, *more))


def _score(files: NetworkFiles, each: Callable[[int], None]) -> Callable[[np.ndarray, np.ndarray], Any]:
    """Load script and checkpoint, and return the function that scores records.

    Args:
        files: Script and checkpoint.
        each: Called with the number of records before they are scored.

    Raises:
        BadParameter: If there is no such script, function or checkpoint.
    """
    file, _, name = files.script.rpartition(":")
    if not (file and name.isidentifier()):
        raise typer.BadParameter(f"--script {files.script}: give FILE:FUNCTION, e.g. my_score.py:score")
    if not (Path(file).is_file() and file.endswith(".py")):
        raise typer.BadParameter(f"--script {file}: there is no such Python file{nearest_path(Path(file))}")
    if not files.checkpoint.exists():
        raise typer.BadParameter(
            f"--checkpoint {files.checkpoint}: there is no such file{nearest_path(files.checkpoint)}"
        )
    module = _module(Path(file))
    function = getattr(module, name, None)
    if not callable(function):
        raise typer.BadParameter(f"--script {file}: defines no function {name}(network, records, labels)")
    network = _network(module, files.checkpoint)

    def score(records: np.ndarray, labels: np.ndarray) -> Any:
        """Score records, and show errors of the script with their lines."""
        each(len(records))
        with _refusing_errors(f"--script {files.script}: failed on {len(records)} records"):
            return function(network, records, labels)

    return score


def _module(path: Path) -> ModuleType:
    """Run a script as a module that can import files next to it."""
    name = f"audited_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise typer.BadParameter(f"--script {path}: is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))
    with _refusing_errors(f"--script {path}: failed"):
        spec.loader.exec_module(module)
    return module


def _network(module: ModuleType, checkpoint: Path) -> Any:
    """Load a checkpoint by the script's function ``load``, or read its weights.

    Raises:
        BadParameter: If the script has no ``load`` and the checkpoint contains more than weights.
    """
    if callable(load := getattr(module, "load", None)):
        with _refusing_errors(f"--checkpoint {checkpoint}: load of the script failed"):
            return load(checkpoint)
    import torch

    try:
        return torch.load(checkpoint, map_location="cpu", weights_only=True)
    except (RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise typer.BadParameter(
            f"--checkpoint {checkpoint}: is no file of weights alone: define load(path) in the script, which "
            "gives the network"
        ) from error


@contextmanager
def _refusing_errors(what: str) -> Iterator[None]:
    """Turn an error of the user's code into a refusal, after its traceback. What the code prints is no result.

    Raises:
        BadParameter: If the code fails, or ends the program.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (Exception, SystemExit) as error:
        traceback.print_exc()
        raise typer.BadParameter(f"{what}: {type(error).__name__}: {error}") from error


def _facts(files: NetworkFiles, audit: NetworkAudit, statement: Statement | None) -> dict[str, Any]:
    """Return plain values of an audit, for JSON and for the page."""
    best = audit.choices[None]
    measures = [_measure("AUC", best, 0.5, audit.areas[best])]
    for rate, interval in audit.rates.items():
        name = f"TPR at {100 * rate:g} % FPR"
        measures.append(_measure(name, audit.choices[rate], rate, interval, audit.needed[rate]))
    if audit.blind is not None:
        measures.append(_measure("AUC without the network", "ridge classifier", 0.5, audit.blind))
    return {
        "checkpoint": str(files.checkpoint),
        "script": files.script,
        **audit.counts,
        "attackers": {name: asdict(area) for name, area in audit.areas.items()},
        "measures": measures,
        "limits": [asdict(limit) | {"contradicts": limit.contradicts} for limit in audit.limits],
        "bound": None if audit.bound is None else asdict(audit.bound),
        "statement": statement and statement.numbers(),
        "confidence": audit.confidence,
        "verdict": audit.verdict,
        "contradicted": audit.contradicted,
        "warnings": list(audit.warnings),
        "curve": [rates.tolist() for rates in audit.curve],
    }


def _measure(
    name: str, attacker: str, guessing: float, interval: Any, needed: int | None = None
) -> dict[str, Any]:
    """Return a measured value with its interval, or the number of non-members that it needs."""
    values = {"value": None, "low": None, "high": None} if interval is None else asdict(interval)
    return {"measure": name, "attacker": attacker, "guessing": guessing, **values, "others_needed": needed}


def _text(facts: Mapping[str, Any], out: Path | None) -> str:
    """Write the facts for people."""
    cells = [["measure", "value", "95 % interval", "guessing", "attacker"]]
    for row in facts["measures"]:
        value = f"{row['value']:.3f}" if row["value"] is not None else f"needs {row['others_needed']} others"
        interval = "" if row["value"] is None else f"{row['low']:.3f} to {row['high']:.3f}"
        cells.append([row["measure"], value, interval, f"{row['guessing']:g}", row["attacker"]])
    limits = [_LIMITS]
    for limit in facts["limits"]:
        bound = "-" if limit["bound"] is None else f"{limit['bound']:g}"
        numbers = [f"{limit['demonstrated']:.3g}", bound, f"{limit['reachable']:.3g}"]
        counts = [f"{limit[name]}" for name in ("coins", "guesses", "correct")]
        limits.append([limit["source"], limit["quantity"], *numbers, *counts])
    lines = [
        f"{facts['members']} members, {facts['others']} others; evaluated on {facts['evaluated_members']} "
        f"and {facts['evaluated_others']}, which no attacker was chosen on",
        text_table(cells, left=5),
        text_table(limits, left=2) + _MEANING,
        *([] if facts["statement"] is None else [f"as given: {facts['statement']['sentence']}"]),
        facts["verdict"],
        *([] if out is None else [f"{out}: {out.stat().st_size / 1e3:.0f} kB"]),
    ]
    return "\n".join(lines) + "\n"
