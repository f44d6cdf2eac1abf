"""Attack on a trained network or, for a run with 0 rounds, on the gradients of an untrained one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from leakbound import storage
from leakbound.commands.files import check_pairs, read_channel
from leakbound.registry import load_attribute
from leakbound.storage.tables import RATES, read_table
from leakbound_lab.config.attacked_runs import AttackedRun
from leakbound_lab.config.attacks import Attack
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.settings import PrivacyNoise
from leakbound_lab.config.training import TrainingSettings
from leakbound_lab.jobs.job import Job, RunTable, Step, new_job
from leakbound_lab.jobs.job_costs import planned_seconds, short_jobs
from leakbound_lab.jobs.runs import Run
from leakbound_lab.jobs.unit_costs import STEP_RECORDS, Work
from leakbound_lab.steps import inputs
from leakbound_lab.steps.train import training_settings

if TYPE_CHECKING:
    from torch import nn

    from leakbound_lab.attacks.attack_request import Attacked, AttackRequest, Networks


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


@dataclass(frozen=True, kw_only=True)
class AttackFiles:
    """Files that attacks read, of which each reads some.

    Attributes:
        dataset: Images.
        weights: Weights of trained networks.
        rates: Table of these networks.
        references: Weights of reference networks.
        trained: Table of these.
        channel: Channel of the defense.
        spectrum: Spectrum of that channel.
        moments: Mean and covariance of the records, for an untrained network.
        estimator: Learned estimate of images.
    """

    dataset: Path
    weights: Path | None = None
    rates: Path | None = None
    references: Path | None = None
    trained: Path | None = None
    channel: Path | None = None
    spectrum: Path | None = None
    moments: Path | None = None
    estimator: Path | None = None


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield a job for each attack on each run."""
    config = table.config
    joined = _joined(table)
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
                part_of=joined.get(slug, slug),
            )


def _joined(table: RunTable) -> dict[str, str]:
    """Return the job of each untrained network that one job attacks with others, by the names of the runs.

    They have one dataset, one network and short attacks. Those from outside stay apart: nobody has measured their time.
    """
    outside = {*table.config.plugins.attacks, *table.config.plugins.models}
    seconds: dict[str, dict[str, float]] = {}
    for slug, attacks in table.attacks.items():
        run = table.runs[slug]
        if run.rounds == 0 and not outside & {run.model, *attacks}:
            work = [each for attack in attacks for each in _work(table, run, attack)]
            of_network = seconds.setdefault(f"{run.dataset}/{run.model}/untrained", {})
            of_network[slug] = planned_seconds(work)
    joined: dict[str, str] = {}
    for name, times in seconds.items():
        several = [slugs for slugs in short_jobs(times) if len(slugs) > 1]
        for number, slugs in enumerate(several, 1):
            joined |= dict.fromkeys(slugs, name if number == 1 else f"{name}-{number}")
    return joined


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
    rows: Path,
    arrays: Path,
    provenance: Path,
    code: str = inputs.BARE,
    **read: Path,
) -> None:
    """Run one attack on all kept networks of a run, or on the gradients of its untrained network.

    Args:
        settings: Settings of the attack.
        plain: These settings as plain values, for the provenance.
        rows: Table to write.
        arrays: Arrays to write, those of the chosen learning rates.
        provenance: Record to write.
        code: Fingerprint of the code behind the result.
        **read: Files of :class:`AttackFiles`.

    Raises:
        typer.BadParameter: If a file that the attack needs is not given.
    """
    from leakbound.accounting.releases import attack_releases
    from leakbound_lab.attacks.attack_request import AttackRequest, attack_networks

    # What both kinds of attacks are told.
    files = AttackFiles(**read)
    request = AttackRequest(
        model=settings.model,
        dataset=inputs.read_dataset(files.dataset),
        config=settings.config,
        seed=settings.seed,
        slug=settings.slug,
        device=inputs.device_name(settings.device),
        defense=settings.defense,
        level=settings.level,
        batch_size=settings.batch_size,
    )
    began = time.time()
    function = _function_of(settings)
    check_pairs(weights=files.weights, rates=files.rates)
    check_pairs(references=files.references, trained=files.trained)
    # The attack: on uploads of untrained networks, or on trained networks, which may have to train once more.
    if files.weights is None or files.rates is None:
        table, kept = function(_on_gradients(request, settings, files))
        table = table.assign(learning_rate=math.nan, chosen=True)
    else:
        request = _on_networks(request, settings, files)
        networks, _ = _networks(files.weights, files.rates, request)
        if settings.training is not None:
            training = replace(settings.training, device=inputs.device_name(settings.training.device))
            replayed = load_attribute(settings.config.replays, f"replays of {settings.attack}")
            networks = replayed(request, training, networks.rates, rows.with_name(f"checkpoint-{code}.pt"))
        table, kept = attack_networks(networks, function, request)
    # Rows, arrays and provenance.
    if problem := settings.config.unsummarised(table["unit"]):
        raise ValueError(problem)
    storage.write_rows(rows, table if "status" in table else table.assign(status=""))
    storage.write_arrays(arrays, kept, private=bool(request.dataset.secret))
    inputs.remove_checkpoints(rows)
    released = [release.to_dict() for release in attack_releases(targets=not settings.config.trained)]
    inputs.write_provenance(provenance, plain, vars(files), str(request.device), began, released=released)


def _function_of(settings: AttackSettings) -> Callable[[AttackRequest[Any]], Attacked]:
    """Load the function of an attack, whose result is checked."""
    from leakbound_lab.attacks.rows import checked

    config = settings.config
    compute = load_attribute(config.function, f"function of {settings.attack}")
    builtin = config.function.startswith(("leakbound.", "leakbound_lab."))  # whose rows tests pin

    @wraps(compute)  # with what else it has, such as networks that are attacked side by side
    def function(request: AttackRequest[Any]) -> Attacked:
        return checked(compute(request), settings.attack, () if builtin else request.replicas)

    return function


def _on_gradients(
    request: AttackRequest[Any], settings: AttackSettings, files: AttackFiles
) -> AttackRequest[Any]:
    """Return the request of an attack on the gradients of an untrained network: with channel, moments and estimate.

    Raises:
        typer.BadParameter: If it needs weights, or a file has another dimension than the images.
    """
    if files.moments is None or request.config.trained:
        raise typer.BadParameter(
            f"{settings.attack} needs --weights, or --moments if it attacks untrained networks"
        )
    channel, _ = read_channel(files.channel, files.spectrum)
    moments = inputs.read_moments(files.moments)
    values = math.prod(request.image_shape)
    for path, described in ((files.moments, moments), (files.channel, channel)):
        if described is not None and described.dimension != values:
            raise typer.BadParameter(
                f"{path}: has {described.dimension} dimensions, but the images have {values} values"
            )
    return replace(
        request,
        channel=channel,
        moments=moments,
        replicas=range(settings.replicas or 1),
        privacy_noise=settings.privacy_noise or "seeded",
        estimator=files.estimator and inputs.read_estimator(files.estimator, request.dataset),
    )


def _on_networks(
    request: AttackRequest[Any], settings: AttackSettings, files: AttackFiles
) -> AttackRequest[Any]:
    """Return the request of an attack on trained networks: with the channel and the references that it needs.

    Raises:
        typer.BadParameter: If it attacks untrained networks, or there are no reference networks.
    """
    from leakbound_lab.attacks.membership.reference_scores import References

    if not request.config.trained:
        raise typer.BadParameter(
            f"{settings.attack} attacks untrained networks: give --moments instead of --weights"
        )
    needs = request.config.needs(request.defense)
    if "channel" in needs:
        request = replace(request, channel=read_channel(files.channel, files.spectrum)[0])
    if "references" in needs:
        if files.references is None or files.trained is None:
            raise typer.BadParameter(
                f"{settings.attack} compares with reference networks: give --references, written by `step references`"
            )
        networks, network = _networks(files.references, files.trained, request)
        references = References(networks, network.to(request.device).eval(), request.dataset)
        request = replace(request, references=references)
    return request


def _networks(path: Path, rates: Path, request: AttackRequest[Any]) -> tuple[Networks, nn.Module]:
    """Read the weights of all networks with the replica and learning rate of each, and make one that takes them.

    Raises:
        DamagedFileError: If they are not those of the run's network on such images.
    """
    import torch

    from leakbound_lab.attacks.attack_request import Networks
    from leakbound_lab.models import build
    from leakbound_lab.models.classifier import frozen_hash

    images = request.dataset
    tried = read_table(rates, RATES, "train")
    kept = tried[tried["kept"]].reset_index(drop=True)
    weights, about = storage.read_arrays_and_metadata(path)
    network = build(
        request.model, images.colors, len(images.classes), torch.Generator().manual_seed(0), images.side
    )
    expected = {name: ("float32", (len(kept), *tensor.shape)) for name, tensor in network.named_parameters()}
    if kept.empty or {name: (str(array.dtype), array.shape) for name, array in weights.items()} != expected:
        raise storage.DamagedFileError(
            path,
            f"its weights are not those of {len(kept)} networks {request.model} for {images.colors} colors "
            f"and {len(images.classes)} classes",
        )
    if about.get("frozen", "") != frozen_hash(network):
        raise ValueError(
            f"{path}: the frozen weights of {request.model} are no longer those that it was trained with; "
            "bring them back, or remove the file and train again"
        )
    return Networks({name: torch.from_numpy(array) for name, array in weights.items()}, kept), network


STEP = Step(attack, jobs)
