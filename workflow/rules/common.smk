# The configuration in force, and the functions that rules take their parameters from. No rule here.
#
# A step makes results, each once. A job of Snakemake makes one result or several, under the name that wildcards spell: {run} is
# digits/mlp/none/n400-b32, for federated averaging digits/mlp/fedavg/n4. Rounds (n) are steps of a training: n0 is the untrained
# network, e.g. for gradient inversion. Rules need
#
#   only to read results   the files, from RESULTS and a pattern; no params. docs/contributing.md#the-rules has such a rule
#   to make results        results=results_hash(rule, pattern), and settings=str(CONFIGURATION), which the command reads
#   what these read        reads(rule, pattern, step, ...), or files_read(rule, "", step, ...) without wildcards

import gc
import json
import os
import tempfile
import threading
from pathlib import Path

from snakemake.exceptions import WorkflowError

from leakbound.storage.files import write_text
from leakbound_lab.config import messages, reading
from leakbound_lab.jobs import coordination
from leakbound_lab.jobs.rules import RUN, Rules
from leakbound_lab.steps.job_list import job_list, try_networks
from leakbound_lab.steps.prepare import originals
from leakbound_lab.steps.report import page_hash


def checked_results():
    """All results of the configuration in force, or its mistakes, one line each."""
    source = " and ".join(map(str, workflow.configfiles)) or "--config"
    try:
        for path in workflow.configfiles:
            messages.read_yaml(Path(path))  # Snakemake's own reader takes the last of keys that come twice
        found = job_list(reading.config_of(config, source))
        if coordination.RUN not in os.environ:  # once a run, not in each of its jobs on other machines
            try_networks(found.table.config, source)
        return found
    except messages.ConfigError as error:
        raise WorkflowError(str(error)) from None


def begin(enter, *arguments):
    """Begin a run, or a part of one on another machine, or say in one line why not."""
    try:
        enter(*arguments)
    except (coordination.BusyError, coordination.SupersededError, OSError) as error:
        raise WorkflowError(str(error)) from None


def end_timers():
    """End the timers that Snakemake leaves behind, for whose end, after `max-jobs-per-timespan`, Python would wait."""
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.cancel()


try:  # where Snakemake ends in a traceback
    tempfile.TemporaryFile(dir=Path.cwd()).close()
except OSError as error:
    raise WorkflowError(
        f"{Path.cwd()}: nothing can be written here ({error.strerror}), and Snakemake keeps its notes in this folder. "
        "Run it in a copy that you may change"
    ) from None
begin(coordination.join)
# Nearly all that Snakemake makes of jobs lives to its end, and Python would look through it for cycles again and again,
# for a seventh of the time of a large plan.
gc.set_threshold(50_000, 20, 20)
RESULTS_MADE = checked_results()  # all results that the configuration makes, each with settings, inputs and outputs
TABLE = RESULTS_MADE.table  # runs, attacks, tables and figures of the configuration
CONFIG = TABLE.config
RESULTS = Path(CONFIG.root)
# All settings of the run in one file, which its commands read. What a result depends on is hashed in params.results.
# The order of figures is that of the configuration.
SETTINGS = json.dumps(CONFIG.model_dump(mode="json"), indent=1)
CONFIGURATION = RESULTS / ".configuration.json"  # under one name, as another parameter would make all results again
RULES = Rules(RESULTS_MADE, WorkflowError)
results_hash, codes = RULES.results_hash, RULES.codes
reads, files_read = RULES.reads, RULES.files_read
memory, minutes = RULES.memory, RULES.minutes
TABLE_FILES = [TABLE.file("tabulate", name) for name in TABLE.tables]
CLAIMS = RESULTS_MADE.files("claims")
FIGURES = RESULTS_MADE.files("plot")
TRACKED_RUNS = RESULTS_MADE.files("log")
# Of runs, what pages and tables are made from: all but weights and arrays, and of these the scores of membership.
SCORES = {path for path in files_read("tabulate", "", "attack") if path.endswith("safetensors")}
OF_RUNS = RESULTS_MADE.files("train", "attack", "federate", "measure")
SHOWN = [path for path in OF_RUNS if path in SCORES or not path.endswith("safetensors")]

os.environ[coordination.COORDINATOR] = str(os.getpid())


wildcard_constraints:
    dataset="[a-z][a-z0-9_]*",
    run=RUN,
    paper="[a-z0-9]+",
    family="[a-z][a-z0-9_]*",
    channel="[a-z][a-z0-9_]*-[0-9.e+-]+",
