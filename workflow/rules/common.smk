# The run table, names of files, and what jobs ask for. No rule here.

import os
import sys
from functools import cache
from importlib.resources import files
from pathlib import Path

from leakbound import registry
from leakbound.config import messages, reading
from leakbound.jobs import coordination
from leakbound.jobs.federated_runs import part_runs
from leakbound.storage.fingerprint import code_fingerprint
from leakbound.storage import file_hash
from leakbound.jobs.table import RunTable, as_text, module_of


def in_turn(enter, *arguments):
    """Begin a run, or a part of one on another machine, or say in one line why not."""
    try:
        enter(*arguments)
    except (coordination.BusyError, coordination.SupersededError, OSError) as error:
        sys.exit(str(error))


def drop_default_rate_limit():
    """Let go of Snakemake's limit of 100 jobs a second, which no profile or command line has asked for.

    To keep it, Snakemake looks for work in every second once more for each job that has ended: a core, after a few
    hundred of them.
    """
    limiter = workflow.scheduler.job_rate_limiter
    if limiter is not None and (limiter.max_jobs, limiter.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


def checked_table():
    """The run table of the configuration in force, or its mistakes, one line each, and no traceback."""
    source = str(workflow.configfiles[-1]) if workflow.configfiles else "config"
    try:
        for path in workflow.configfiles:
            messages.read_yaml(Path(path))  # Snakemake's own reader takes the last of keys that come twice
        settings = reading.check(config, source)
        return RunTable(settings, reading.load_catalogue(settings.catalogue, settings))
    except reading.ConfigError as error:
        sys.exit(str(error))


in_turn(coordination.join)
TABLE = checked_table()
CONFIG = TABLE.config
ROOT = str(TABLE.root)
PLUGINS = CONFIG.plugins
LOGGED = sorted(TABLE.runs) if CONFIG.tracking.enabled else []
FIGURE_FILES = [f"{ROOT}/figures/{key}.{suffix}" for key in TABLE.figures for suffix in ("svg", "png", "parquet")]
TABLE_FILES = list(TABLE.tables.values())
CLAIM_FILES = [f"{ROOT}/claims.parquet", f"{ROOT}/scoreboard.md"] if TABLE.claiming() else []
REPORT_FILE = f"{ROOT}/report.html"
TRACKING_FILES = [TABLE.path("tracking", slug, ".json") for slug in LOGGED]
if LOGGED and FIGURE_FILES:
    TRACKING_FILES.append(f"{ROOT}/tracking/figures.json")

# One process for each job, which ends with this one: a shell in between would live on when either is killed.
shell.prefix("set -euo pipefail; exec ")
os.environ[coordination.COORDINATOR] = str(os.getpid())

if CONFIG.tracking.enabled and CONFIG.tracking.uri.startswith("http"):
    os.environ |= {"LEAKBOUND_LIVE": CONFIG.tracking.uri, "LEAKBOUND_PRESET": CONFIG.preset}


wildcard_constraints:
    dataset=r"[a-z][a-z0-9_]*",
    family=r"[a-z][a-z0-9_]*",
    attack=r"[a-z][a-z0-9_]*",
    study="|".join(TABLE.members) or "none",
    illustration=r"[a-z][a-z0-9_]*",
    level=r"[0-9.e+-]+",
    part=r"[a-z][a-z0-9_]*",
    run=r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*/[a-z0-9_.e+-]+/n[0-9]+-b[0-9]+",
    figure=r"[a-z0-9]+/[a-z][a-z0-9_]*",


def run_of(wildcards):
    """The run that the wildcard names."""
    return TABLE.runs[wildcards.run]


def channel_files(run):
    """Files of the run's channel; empty without one."""
    return TABLE.channel_files(run)


@cache
def originals(dataset):
    """Hashes of the Parquet files that images come from, so that an edit is noticed; outside readers name none."""
    settings = CONFIG.datasets[dataset]
    source = module_of(registry.DATASETS, settings.reader or dataset, PLUGINS.datasets)
    if not source.startswith("leakbound."):
        return as_text({})
    from leakbound.datasets.originals import original_hashes

    return as_text(original_hashes(dataset, settings, Path(TABLE.path("data", dataset, ".json"))))


def illustration_files(wildcards):
    """Images and covariance of the illustration's dataset, by command-line option, if it shows one."""
    dataset = CONFIG.illustrations[wildcards.illustration].dataset
    kinds = {} if dataset is None else {"dataset": "data", "moments": "covariance"}
    return {role: TABLE.path(kind, dataset, ".safetensors") for role, kind in kinds.items()}


def run_records(run):
    """Tables and provenance that a finished run has written."""
    files = TABLE.run_files(run)
    return [path for kind in ("training", "provenance", "attacks") for path in files[kind]]


def study_inputs(wildcards):
    """What the runs of a study have written."""
    return [path for slug in TABLE.members[wildcards.study] for path in run_records(TABLE.runs[slug])]


def figure_rows(figure):
    """The table that a figure shows."""
    return TABLE.rows_file(figure)


def code(command, *modules, **names):
    """Fingerprint of a command and of the modules and registered things that it uses."""
    kinds = {
        "datasets": registry.DATASETS,
        "models": registry.MODELS,
        "shapes": registry.SHAPES,
        "plots": registry.PLOTS,
        "illustrations": registry.ILLUSTRATIONS,
        "claim_tests": registry.CLAIM_TESTS,
    }
    used = [module_of(kinds[kind], name, getattr(PLUGINS, kind)) for kind, given in names.items() for name in given]
    return code_fingerprint(f"leakbound.cli.{command}", *modules, *used)


def tracking_code(command):
    """Fingerprint of a command that logs, and of how it describes runs; how it sends them changes no value."""
    return code_fingerprint(f"leakbound.cli.tracking:{command}", "leakbound.tracking.jobs")


def memory(box):
    """Mebibytes that a job of a box asks for; more at each retry."""
    least = getattr(CONFIG.resources, box).mem_mb
    return lambda wildcards, attempt: least * attempt


def runtime(box):
    """Minutes that a job of a box asks for; more at each retry."""
    least = getattr(CONFIG.resources, box).runtime
    return lambda wildcards, attempt: least * attempt


def asked(box):
    """Threads and GPUs that a job of a box asks for."""
    return getattr(CONFIG.resources, box)


def options(files):
    """Files by role as command-line options."""
    return " ".join(f"--{role} {path}" for role, path in files.items())


def tuned_run(wildcards):
    """A run of the table that a learning-rate search stands for, the shortest if it stands for several."""
    return TABLE.searches[f"{wildcards.dataset}/{wildcards.model}/{wildcards.variant}/b{wildcards.batch_size}"]


def attack_files(run):
    """What an attack reads beside the images, by command-line option: weights, or what gradients are made with."""
    if run.rounds > 0:
        return {"weights": TABLE.run_files(run)["weights"][0]}
    return {**channel_files(run), "moments": TABLE.path("covariance", run.dataset, ".safetensors")}


def timed_channels(wildcards):
    """Defense to the channel and spectrum files of the runs that are timed; those without a channel are left out."""
    found = {name: channel_files(run) for name, run in TABLE.timed_runs().items()}
    return {name: files for name, files in found.items() if files}


def federated_inputs(wildcards):
    """What a table gathers: rows of its runs, or the images whose networks its closed forms are about."""
    runs = part_runs(CONFIG.federated, wildcards.part)
    if runs:
        return [f"{ROOT}/federated/{run.slug}/rows.parquet" for run in runs]
    return [TABLE.path("data", dataset, ".safetensors") for dataset in CONFIG.federated.models]


def page_parts():
    """Hashes of what the page is made of beside its content: templates, style and script."""
    folder = files("leakbound.figures.report") / "templates"
    return {path.name: file_hash(path) for path in sorted(folder.iterdir())}
