"""Training times of the defenses, in turns in one process. Compare them within a job, not with other jobs."""

import math
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from leakbound import storage
from leakbound.commands.files import read_channel
from leakbound_lab.config.catalogue import EFFICIENCY
from leakbound_lab.config.defenses import Defense
from leakbound_lab.config.settings import PrivacyNoise
from leakbound_lab.config.studies import EfficiencyConfig
from leakbound_lab.config.training import TrainingConfig
from leakbound_lab.jobs.job import Job, RunTable, Step, Work, new_job
from leakbound_lab.steps.inputs import device_name, read_dataset, write_provenance
from leakbound_lab.steps.job_settings import Device

_CAREFUL = 1e-4  # learning rate: keeps weights finite, and costs what any other does


def jobs(table: RunTable) -> Iterator[Job]:
    """Yield one job, if the configuration has training times."""
    config = table.config
    timed = config.efficiency
    if timed is None:
        return
    defenses = {name: config.defense(name) for name in timed.defenses}
    files = {name: table.channel_files(run) for name, run in table.timed_runs().items()}
    arguments = {
        "config": timed,
        "defenses": defenses,
        "momentum": config.training.momentum,
        "seed": config.seed,
        **table.noise_settings(*defenses.values()),
        "device": config.device_of("efficiency"),
    }
    yield new_job(
        config,
        "measure",
        EFFICIENCY,
        {},
        arguments=arguments,
        inputs={
            "dataset": table.file("prepare", timed.dataset),
            "channels": {name: paths["channel"] for name, paths in files.items() if paths},
            "spectra": {name: paths["spectrum"] for name, paths in files.items() if paths},
        },
        uses={"models": timed.models},
        purpose=EFFICIENCY,
        work=partial(_work, table, timed),
    )


def _work(table: RunTable, timed: EfficiencyConfig) -> Iterable[Work]:
    """Yield turns of all defenses and networks, as if no turn ended early."""
    for model in timed.models:
        for run in table.timed_runs().values():
            yield table.step_work(replace(run, model=model), (timed.repeats + 1) * timed.steps)


def measure(
    config: EfficiencyConfig,
    defenses: Mapping[str, Defense],
    momentum: float,
    seed: int,
    device: Device,
    plain: dict[str, Any],
    dataset: Path,
    rows: Path,
    provenance: Path,
    channels: dict[str, Path],
    spectra: dict[str, Path],
    privacy_noise: PrivacyNoise = "seeded",
) -> None:
    """Time training steps of every defense and network, in turns in one process.

    Args:
        config: Networks, levels of the defenses, batches and turns.
        defenses: Settings of the defenses by their names.
        momentum: Momentum of SGD.
        seed: Seed of the configuration.
        device: Device of the training.
        plain: These settings as plain values, for the provenance.
        dataset: Images to read.
        rows: Table to write.
        provenance: Record to write.
        channels: Defense to its channel to read.
        spectra: Defense to the spectrum of its channel.
        privacy_noise: Whether noise is ``seeded`` or ``secure``.
    """
    import pandas as pd

    from leakbound_lab.training.efficiency import efficiency_rows, measure_steps
    from leakbound_lab.training.request import TrainingRequest

    images = read_dataset(dataset)
    device_in_use = device_name(device)
    began = time.time()
    measured = []
    # Steps of all defenses in turns, network by network.
    for model in config.models:
        requests = {
            name: TrainingRequest(
                dataset=images,
                model=model,
                defense=defenses[name],
                level=next(iter(levels), None),
                rounds=1,
                batch_size=config.batch_size,
                learning_rates=(_CAREFUL,),
                config=TrainingConfig(momentum=momentum),
                seed=seed,
                privacy_noise=privacy_noise,
                slug=f"{config.dataset}/{model}/{name}/efficiency",
                channel=read_channel(channels.get(name), spectra.get(name))[0],
                device=device_in_use,
            )
            for name, levels in config.defenses.items()
        }
        times = measure_steps(
            requests, steps=config.steps, repeats=config.repeats, max_seconds=config.max_seconds
        )
        timed = {
            name: math.nan if request.level is None else request.level for name, request in requests.items()
        }
        measured.append(times.assign(model=model, level=times["defense"].map(timed)))
        sys.stderr.write(
            f"{model}: {times.groupby('defense')['seconds'].median().round(4).to_dict()} s a step\n"
        )
    storage.write_rows(rows, efficiency_rows(pd.concat(measured, ignore_index=True), config))
    files = {
        "dataset": dataset,
        **{f"channel of {name}": path for name, path in channels.items()},
        **{f"spectrum of {name}": path for name, path in spectra.items()},
    }
    write_provenance(provenance, plain, files, device_in_use, began, threads=1)


STEP = Step(measure, jobs, final=True)
