"""Attack on a trained network or, for a run with 0 rounds, on the gradients of an untrained one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakbound import storage
from leakbound.commands.files import check_pairs, read_channel
from leakbound.storage.tables import RATES, read_table
from leakbound_lab.config.attacked_runs import AttackedRun
from leakbound_lab.config.attacks import Attack
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.settings import PrivacyNoise
from leakbound_lab.config.training import TrainingSettings
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.runs import Run
from leakbound_lab.jobs.unit_costs import STEP_RECORDS, Work
from leakbound_lab.steps import inputs
from leakbound_lab.steps.train import training_settings

if TYPE_CHECKING:
    from torch import nn

    from leakbound_lab.attacks.attack_request import Networks
    from leakbound_lab.attacks.membership.reference_scores import References
    from leakbound_lab.datasets import ImageDataset


@dataclass(frozen=True, kw_only=True)
class AttackSettings:
    """An attack on all replicas of a run, with settings as the configuration has them.

    Attributes:
        attack: Name of the attack.
        slug: Name of the run.
        model: Name of its network.
        defense: What the client does against an attacker.
        level: Level of the defense in its own unit, or None without a defense.
        config: Settings of the attack.
        seed: Seed of the configuration.
        device: Device of the attack: ``cpu``, ``cuda`` or ``auto``.
        batch_size: Records whose gradients a client averages.
        replicas: Number of replicas of an untrained network. Weights have as many as were trained.
        privacy_noise: Origin of the noise on the gradients of an untrained network, None if there is none.
        training: Settings of the training, for an attack that sees its uploads.
    """

    attack: str
    slug: str
    model: str
    defense: Defense
    level: float | None
    config: Attack
    seed: int
    device: str
    batch_size: int = 1
    replicas: int | None = None
    privacy_noise: PrivacyNoise | None = None
    training: TrainingSettings | None = None

    def plain(self) -> dict[str, Any]:
        """Return the settings as plain values, as they are hashed and recorded, without those at their default."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }
        values |= {name: getattr(self, name).model_dump(mode="json") for name in ("defense", "config")}
        return values if self.training is None else values | {"training": self.training.plain()}


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each attack on each run."""
    config = table.config
    for slug, attacks in table.attacks.items():
        run = table.runs[slug]
        defense = config.defense(run.defense)
        for attack in attacks:
            yield new_job(
                config,
                "attack",
                f"{slug}/{attack}",
                {},
                arguments={"settings": _settings(table, run, attack)},
                inputs=_inputs(table, run, attack),
                uses={"models": [run.model], "mechanisms": [defense.mechanism], "attacks": [attack]},
                modules=config.attacks.all()[attack].modules()
                + (defense.modules() if config.attacks.all()[attack].replays else ()),
                purpose=table.first_study[slug],
                work=partial(_work, table, run, attack),
                part_of=slug,
            )


def _inputs(table: RunTable, run: Run, attack: str) -> dict[str, str]:
    """Return the files that an attack on a run reads."""
    defense = table.config.defense(run.defense)
    needs = table.config.attacks.all()[attack].needs(defense)
    files = {"dataset": table.file("prepare", run.dataset)}
    if run.rounds == 0:
        # As in training, a defense that drops a direction of the records takes it from the members.
        moments = table.moments(run.dataset, "members" if defense.channel is None else None)
        learned = table.estimator_file(run) if "estimator" in needs else {}
        return files | {**table.channel_files(run), "moments": moments, **learned}
    files |= {role: table.file("train", run.slug, role) for role in ("weights", "rates")}
    if "channel" in needs:
        files |= table.channel_files(run)
    if "references" in needs:
        roles = {"references": "weights", "trained": "trained"}
        files |= {option: table.file("references", run.slug, role) for option, role in roles.items()}
    return files


def _settings(table: RunTable, run: Run, attack: str) -> AttackSettings:
    """Return everything except files on which an attack on a run depends."""
    config = table.config
    defense = table.defense_of(run)
    settings = AttackSettings(
        attack=attack,
        slug=run.slug,
        model=run.model,
        defense=defense,
        level=run.level,
        config=config.attacks.all()[attack],
        seed=config.seed,
        device=config.device_of("attack"),
        batch_size=run.batch_size,
        training=training_settings(table, run, run.replicas)
        if config.attacks.all()[attack].replays
        else None,
    )
    if run.rounds > 0:  # the weights have the number of replicas, and contain the noise
        return settings
    noise = config.privacy_noise if defense.draws_noise else None
    return replace(settings, replicas=run.replicas, privacy_noise=noise)


def _work(table: RunTable, run: Run, attack: str) -> Iterable[Work]:
    """Yield the elementary work of an attack on all replicas."""
    defense = table.defense_of(run)
    facts = AttackedRun(
        attack=attack,
        model=run.model,
        replicas=table.kept(run),
        full=table.kept(run) // len(table.lengths[run.slug]),
        chosen=table.config.replicas,
        size=table.size(run.dataset),
        batch_size=run.batch_size,
        has_channel=defense.channel is not None,
        noisy_gradients=bool(defense.changes_gradients and defense.draws_noise and run.level),
        references=table.reference_networks(run.slug) * len(table.lengths[run.slug]),
        step_records=STEP_RECORDS,
        rounds=run.rounds,
    )
    return [Work(*amount) for amount in table.config.attacks.all()[attack].work(facts)]


def attack(
    settings: AttackSettings,
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
    code: str = inputs.BARE,
) -> None:
    """Run one attack on all kept networks of a run. Arrays are those of the chosen learning rates."""
    from leakbound.accounting.releases import attack_releases
    from leakbound.registry import load_attribute
    from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, attack_networks
    from leakbound_lab.attacks.rows import checked

    config = settings.config
    device = inputs.device_name(settings.device)
    images = inputs.read_dataset(dataset)
    arguments: dict[str, Any] = {
        **{name: getattr(settings, name) for name in ("model", "seed", "slug", "level", "defense")},
        "dataset": images,
        "config": config,
        "device": device,
    }
    began = time.time()
    compute = load_attribute(config.function, f"function of {settings.attack}")

    @wraps(compute)  # with what else it has, such as networks that are attacked side by side
    def function(request: AttackRequest[Any]) -> Attacked:
        plugin = not config.function.startswith(
            ("leakbound.", "leakbound_lab.")
        )  # tests pin the rows of ours
        return checked(compute(request), settings.attack, request.replicas if plugin else ())

    # What is attacked: uploads of untrained networks, or trained networks with all that the attack needs.
    check_pairs(weights=weights, rates=rates)
    check_pairs(references=references, trained=trained)
    if weights is None or rates is None:
        arguments |= _gradient_inputs(settings, config, images, channel, spectrum, moments)
        if estimator is not None:
            arguments["estimator"] = inputs.read_estimator(estimator, images)
        table, kept = function(AttackRequest(**arguments))
        table = table.assign(learning_rate=math.nan, chosen=True)
    else:
        needs = config.needs(settings.defense)
        arguments["batch_size"] = settings.batch_size
        if "channel" in needs:
            arguments["channel"] = read_channel(channel, spectrum)[0]
        if "references" in needs:
            arguments["references"] = _references(references, trained, settings, config, images)
        networks, _ = _networks(weights, rates, settings, config, images)
        request = AttackRequest(**arguments)
        if settings.training is not None:
            training = replace(settings.training, device=inputs.device_name(settings.training.device))
            replay = load_attribute(config.replays, f"replays of {settings.attack}")
            networks = replay(request, training, networks.rates, rows.with_name(f"checkpoint-{code}.pt"))
        table, kept = attack_networks(networks, function, request)
    # Rows, arrays and provenance.
    if problem := config.unsummarised(table["unit"]):
        raise ValueError(problem)
    storage.write_rows(rows, table if "status" in table else table.assign(status=""))
    storage.write_arrays(arrays, kept, private=bool(images.secret))
    inputs.remove_checkpoints(rows)
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
    released = [release.to_dict() for release in attack_releases(targets=not config.trained)]
    inputs.write_provenance(provenance, plain, files, device, began, released=released)


def _networks(
    path: Path, rates: Path, settings: AttackSettings, config: Attack, images: ImageDataset
) -> tuple[Networks, nn.Module]:
    """Read the weights of all networks with the replica and learning rate of each, and make one that takes them.

    Raises:
        typer.BadParameter: If the attack takes no weights.
        DamagedFileError: If they are not those of the run's network on such images.
    """
    import torch

    from leakbound_lab.attacks.attack_request import Networks
    from leakbound_lab.models import build
    from leakbound_lab.models.classifier import frozen_hash

    if not config.trained:
        raise typer.BadParameter(
            f"{settings.attack} attacks untrained networks: give --moments instead of --weights"
        )
    tried = read_table(rates, RATES, "train")
    kept = tried[tried["kept"]].reset_index(drop=True)
    weights, about = storage.read_arrays_and_metadata(path)
    network = build(
        settings.model, images.colors, len(images.classes), torch.Generator().manual_seed(0), images.side
    )
    expected = {name: ("float32", (len(kept), *tensor.shape)) for name, tensor in network.named_parameters()}
    if kept.empty or {name: (str(array.dtype), array.shape) for name, array in weights.items()} != expected:
        raise storage.DamagedFileError(
            path,
            f"its weights are not those of {len(kept)} networks {settings.model} for {images.colors} colors "
            f"and {len(images.classes)} classes",
        )
    if about.get("frozen", "") != frozen_hash(network):
        raise ValueError(
            f"{path}: the frozen weights of {settings.model} are no longer those that it was trained with; "
            "bring them back, or remove the file and train again"
        )
    return Networks({name: torch.from_numpy(array) for name, array in weights.items()}, kept), network


def _references(
    path: Path | None, rates: Path | None, settings: AttackSettings, config: Attack, images: ImageDataset
) -> References:
    """Read the reference networks that an attack compares with.

    Raises:
        typer.BadParameter: If there are none.
    """
    from leakbound_lab.attacks.membership.reference_scores import References

    if path is None or rates is None:
        raise typer.BadParameter(
            f"{settings.attack} compares with reference networks: give --references, written by `step references`"
        )
    networks, network = _networks(path, rates, settings, config, images)
    return References(networks, network.to(inputs.device_name(settings.device)).eval(), images)


def _gradient_inputs(
    settings: AttackSettings,
    config: Attack,
    images: ImageDataset,
    channel: Path | None,
    spectrum: Path | None,
    moments: Path | None,
) -> dict[str, Any]:
    """Return further arguments of an attack on gradients: channel, moments, replicas, batch size, noise."""
    if moments is None or config.trained:
        raise typer.BadParameter(
            f"{settings.attack} needs --weights, or --moments if it attacks untrained networks"
        )
    noise, _ = read_channel(channel, spectrum)
    estimated = inputs.read_moments(moments)
    values = math.prod(images.aux.images.shape[1:])
    for path, described in ((moments, estimated), (channel, noise)):
        if described is not None and described.dimension != values:
            raise typer.BadParameter(
                f"{path}: has {described.dimension} dimensions, but the images have {values} values"
            )
    return {
        "channel": noise,
        "moments": estimated,
        "replicas": range(settings.replicas or 1),
        "batch_size": settings.batch_size,
        "privacy_noise": settings.privacy_noise or "seeded",
    }


STEP = Step(None, attack, jobs)
