"""Attack on a trained network, or, where a run has 0 rounds, on the gradients of an untrained one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakbound import storage
from leakbound.cli.inputs import device_name, read_channel, read_dataset, read_estimator, read_moments, write_provenance
from leakbound.cli.settings import DefendedSettings
from leakbound.config.attacks import Attack
from leakbound.config.messages import parse
from leakbound.config.settings import Line, Name, Records, Replicas
from leakbound.jobs.job import Job, Step, new_job
from leakbound.jobs.plan.work import STEP_RECORDS, Work
from leakbound.jobs.runs import Run
from leakbound.jobs.table import RunTable
from leakbound.randomness.origin import PrivacyNoise
from leakbound.storage.tables import RATES, read_table

if TYPE_CHECKING:
    import pandas as pd

    from leakbound.attacks.membership.reference_scores import References
    from leakbound.datasets import ImageDataset

_PATIENT = 25  # passes after which the attack network of membership inference has stopped, on average
_EXTENDED = 2  # settings by which grids of attackers are extended, on average
_SOLVED = 600  # iterations of matching that take as long as solving for an image
_SOLVABLE = ("lenet_sigmoid", "mlp")  # networks whose gradients of single records can be
_WAYS = 3  # in which the records of a batch are looked for, on average
_KINKED = 6  # in which a single record behind ReLU and pooling is
_FOLDS = 0.8  # part of the known records that each attack network learns from


class AttackSettings(DefendedSettings):
    """An attack on all replicas of a run; without weights it is told how many there are, and what makes the noise."""

    attack: Name
    slug: Line
    config: dict[str, Any]
    replicas: Replicas | None = None
    batch_size: Records | None = None
    privacy_noise: PrivacyNoise | None = None


def jobs(table: RunTable) -> Iterator[Job]:
    """One job for each attack on each run."""
    config = table.config
    for slug, attacks in table.attacks.items():
        run = table.runs[slug]
        defense = config.defense(run.defense)
        for attack in attacks:
            learned = table.estimator_file(run) if attack == "gradient_inversion" else {}
            yield new_job(
                config,
                "attack",
                f"{slug}/{attack}",
                _settings(table, run, attack),
                inputs={**_inputs(table, run, attack), **learned},
                uses={"models": [run.model], "mechanisms": [defense.mechanism], "attacks": [attack]},
                modules=config.attacks.all()[attack].modules(),
                purpose=table.first_study[slug],
                work=partial(_work, table, run, attack),
            )


def _inputs(table: RunTable, run: Run, attack: str) -> dict[str, str]:
    """Files that an attack on a run reads."""
    defense = table.config.defense(run.defense)
    needs = table.config.attacks.all()[attack].needs(defense)
    found = {"dataset": table.file("prepare", run.dataset)}
    if run.rounds == 0:
        # A defense that takes a direction from the records does so from the members, here as in training.
        law = table.moments(run.dataset, "members" if defense.channel is None else None)
        return found | {**table.channel_files(run), "moments": law}
    found |= {role: table.file("train", run.slug, role) for role in ("weights", "rates")}
    if "channel" in needs:
        found |= table.channel_files(run)
    if "references" in needs:
        roles = {"references": "weights", "trained": "trained"}
        found |= {option: table.file("references", run.slug, role) for option, role in roles.items()}
    return found


def _settings(table: RunTable, run: Run, attack: str) -> dict[str, Any]:
    """Everything but files that an attack on a run depends on."""
    config, defense = table.config, table.defense_of(run)
    untrained: dict[str, Any] = {}
    if run.rounds == 0:  # else weights say how many they are, and hold the noise
        untrained = {"replicas": run.replicas, **table.noise_settings(defense)}
    if run.rounds == 0 and run.batch_size > 1:  # attacks take single records unless told otherwise
        untrained["batch_size"] = run.batch_size
    return {
        "attack": attack,
        "slug": run.slug,
        **untrained,
        "model": run.model,
        "defense": defense.model_dump(mode="json"),
        "level": run.level,
        "config": config.attacks.all()[attack].model_dump(mode="json"),
        "seed": config.seed,
        "device": config.device_of("attack"),
    }


def _work(table: RunTable, run: Run, attack: str) -> Iterable[Work]:
    """Iterations of the built-in attacks on all replicas; of others a table of costs must know a replica's seconds."""
    config, size, replicas = table.config.attacks, table.size(run.dataset), table.kept(run)
    stacked = run.model, size.colors, replicas
    if attack == "membership":
        count, one = size.members, config.membership
        steps = math.ceil(_FOLDS * 2 * one.known_fraction * count / one.batch_size)
        passes = min(one.epochs, _PATIENT) * len(one.learning_rates) * (2 if one.references else 1)
        yield Work("membership", replicas * passes * steps, *stacked)
        looks = 1 + (one.draws if table.defense_of(run).channel is not None else 0)
        asked = replicas * 2 * count + table.reference_networks(run.slug) * len(table.lengths[run.slug]) * size.pool
        yield Work("predict", looks * asked, run.model, size.colors)
    elif attack == "model_inversion":
        images = size.classes * (1 + len(config.model_inversion.tv_weights) + _EXTENDED)
        steps = config.model_inversion.iterations * images + size.aux
        yield Work("invert", replicas * steps, *stacked)
    elif attack == "gradient_inversion":
        tries = config.gradient_inversion
        grid = {*tries.tv_weights, tries.untuned_tv_weight}
        images = tries.tuning_images * (len(grid) + _EXTENDED if len(grid) > 1 else 1) + 2 * tries.images
        yield Work("match", replicas * tries.iterations * images, *stacked)
        if run.batch_size <= tries.most_records:
            found = tries.images + max(2, tries.tuning_images // run.batch_size)
            solved = run.batch_size == 1 and run.model in _SOLVABLE
            several = _KINKED if run.batch_size == 1 else _WAYS * run.batch_size
            steps = _SOLVED if solved else several * tries.search_iterations
            searched = stacked if solved else (run.model, size.colors)  # L-BFGS takes no stack
            yield Work("match", replicas * found * steps, *searched)
        yield Work("disk", 24 * replicas * tries.images * size.pixels)
    elif attack == "gradient_capacity":
        records = min(config.gradient_capacity.records, size.members)
        yield Work("step_dpsgd", replicas * records / STEP_RECORDS, run.model, size.colors)
    elif attack == "naming":
        named = config.naming
        gradients = named.trials * max(named.uses) + named.gradients * named.draws
        yield Work("step_dpsgd", replicas * gradients / STEP_RECORDS, run.model, size.colors)
    elif attack == "uses":
        yield Work("match", replicas * config.uses.images * max(config.uses.uses) * _SOLVED, *stacked)
    elif attack == "audit":
        coins = config.audit.canaries * config.audit.clients * config.audit.steps
        yield Work("step_dpsgd", replicas * coins / STEP_RECORDS, "mlp", size.colors)
    else:
        yield Work(f"attack_{attack}", replicas)


def attack(
    asked: AttackSettings,
    plain: dict[str, Any],
    dataset: Path,
    rows: Path,
    arrays: Path,
    provenance: Path,
    weights: Path | None = None,
    rates: Path | None = None,
    references: Path | None = None,
    trained: Path | None = None,
    channel: Path | None = None,
    spectrum: Path | None = None,
    moments: Path | None = None,
    estimator: Path | None = None,
) -> None:
    """Run one attack on all networks that are kept of a run; arrays are those of the chosen learning rates."""
    from leakbound.accounting.statement import attack_releases
    from leakbound.attacks.trained_networks import Networks, attack_networks
    from leakbound.registry import ATTACKS, load

    config: Attack = parse(ATTACKS.get(asked.attack), asked.config, "--settings: config")
    device, images = device_name(asked.device), read_dataset(dataset)
    arguments: dict[str, Any] = {
        "model": asked.model,
        "dataset": images,
        "config": config,
        "seed": asked.seed,
        "slug": asked.slug,
        "device": device,
    }
    known = {"defense": asked.defense, "level": asked.level}
    began = time.time()
    function = load(config.function, f"function of {asked.attack}")
    _check_pairs(weights=weights, rates=rates)
    _check_pairs(references=references, trained=trained)
    if weights is None or rates is None:
        arguments |= {**known, **_gradient_inputs(asked, config, images, channel, spectrum, moments)}
        if estimator is not None:
            arguments["estimator"] = read_estimator(estimator, images)
        found, kept = function(**arguments)
        found = found.assign(learning_rate=math.nan, chosen=True)
    else:
        if config.knows_defense:
            arguments |= {**known, "batch_size": Run.from_slug(asked.slug).batch_size}
        needs = config.needs(asked.defense)
        if "channel" in needs:
            arguments["channel"] = read_channel(channel, spectrum)[0]
        if "references" in needs:
            arguments["references"] = _references(references, trained, asked, config, images)
        networks = Networks(*_networks(weights, rates, asked, config, images))
        attacked = partial(function, **arguments)
        found, kept = attack_networks(networks, attacked, with_rates="references" in needs)
    storage.write_rows(rows, found if "status" in found else found.assign(status=""))
    storage.write_arrays(arrays, kept, private=bool(images.secret))
    files = {
        "dataset": dataset,
        "weights": weights,
        "rates": rates,
        "references": references,
        "trained": trained,
        "channel": channel,
        "spectrum": spectrum,
        "moments": moments,
        "estimator": estimator,
    }
    released = [one.to_dict() for one in attack_releases(targets=not config.trained)]
    write_provenance(provenance, plain, files, device, began, released=released)


def _check_pairs(**files: Path | None) -> None:
    """Refuse one of two files that come together."""
    if len({path is None for path in files.values()}) > 1:
        raise typer.BadParameter(f"{' and '.join(f'--{name}' for name in files)} come together")


def _networks(
    path: Path, rates: Path, asked: AttackSettings, config: Attack, images: ImageDataset
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Weights of all networks as tensors, and the replica and learning rate of each.

    Raises:
        typer.BadParameter: If the attack takes none.
        DamagedFileError: If they are not those of the run's network on such images.
    """
    import torch

    from leakbound.models import build

    if not config.trained:
        raise typer.BadParameter(f"{asked.attack} attacks untrained networks: leave out --weights, and give --moments")
    tried = read_table(rates, RATES, "train")
    found, kept = storage.read_arrays(path), tried[tried["kept"]].reset_index(drop=True)
    network = build(asked.model, images.colors, len(images.classes), torch.Generator().manual_seed(0), images.side)
    expected = {name: ("float32", (len(kept), *tensor.shape)) for name, tensor in network.named_parameters()}
    if kept.empty or {name: (str(array.dtype), array.shape) for name, array in found.items()} != expected:
        raise storage.DamagedFileError(
            path,
            f"it holds no weights of {len(kept)} networks {asked.model} for {images.colors} colors and "
            f"{len(images.classes)} classes",
        )
    return {name: torch.from_numpy(array) for name, array in found.items()}, kept


def _references(
    path: Path | None, rates: Path | None, asked: AttackSettings, config: Attack, images: ImageDataset
) -> References:
    """Reference networks that an attack compares with.

    Raises:
        typer.BadParameter: If there are none.
    """
    from leakbound.attacks.membership.reference_scores import References
    from leakbound.attacks.trained_networks import Networks
    from leakbound.models import build
    from leakbound.randomness.seeding import torch_generator

    if path is None or rates is None:
        raise typer.BadParameter(
            f"{asked.attack} compares with reference networks: give --references, written by `step references`"
        )
    network = build(
        asked.model, images.colors, len(images.classes), torch_generator(asked.seed, "references"), images.side
    )  # their weights replace its own
    return References(
        Networks(*_networks(path, rates, asked, config, images)), network.to(device_name(asked.device)).eval(), images
    )


def _gradient_inputs(
    asked: AttackSettings,
    config: Attack,
    images: ImageDataset,
    channel: Path | None,
    spectrum: Path | None,
    moments: Path | None,
) -> dict[str, Any]:
    """Knowledge of an attack on gradients beside the images and the defense: its channel, and the data's moments."""
    if moments is None or config.trained:
        raise typer.BadParameter(f"{asked.attack} needs --weights, or, if it attacks untrained networks, --moments")
    found, known = read_channel(channel, spectrum)[0], read_moments(moments)
    values = math.prod(images.aux.images.shape[1:])
    for path, described in ((moments, known), (channel, found)):
        if described is not None and described.dimension != values:
            raise typer.BadParameter(f"{path}: has {described.dimension} dimensions, the images have {values} values")
    return {
        "channel": found,
        "moments": known,
        **asked.model_dump(include={"replicas", "batch_size", "privacy_noise"}, exclude_none=True),
    }


STEP = Step(AttackSettings, attack, jobs, resources="attack")
