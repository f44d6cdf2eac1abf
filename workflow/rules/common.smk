# The configuration in force, and what the rules ask about it. No rule here.
#
# A step makes results, each once. A job of Snakemake makes one result or several, under the name that wildcards spell (RUN).
# Rules need
#
#   only to read results   the files, from RESULTS and a pattern; no params. docs/contributing.md#the-rules has such a rule
#   to make results        results=results_hash(rule, pattern), and settings=str(CONFIGURATION), which the command reads
#   what these read        reads(rule, pattern, step, ...), or files_read(rule, "", step, ...) without wildcards

import difflib
import json
import os
import tempfile
from pathlib import Path

from snakemake.exceptions import WorkflowError

from leakbound.storage.files import write_text
from leakbound.storage.provenance import settings_hash
from leakbound_lab.config import messages, reading
from leakbound_lab.jobs import coordination
from leakbound_lab.jobs.job import ANEW, attacked_together, code_of, made_together, snakemake_target
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


def drop_default_rate_limit():
    """Let go of the limit of 100 jobs a second that no option turns off: it costs a core after some hundred jobs.

    To keep it, Snakemake looks for work once more in every second for each job that has ended.
    """
    limiter = workflow.scheduler.job_rate_limiter
    if limiter is not None and (limiter.max_jobs, limiter.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


def mean_all_if_forced():
    """Have forced jobs make all of their results again, also those that are finished and unchanged."""
    asked = workflow.dag_settings
    if asked.forcerun or asked.forceall or asked.forcetargets:
        os.environ[ANEW] = "1"


try:  # where Snakemake ends in a traceback
    tempfile.TemporaryFile(dir=Path.cwd()).close()
except OSError as error:
    raise WorkflowError(
        f"{Path.cwd()}: nothing can be written here ({error.strerror}), and Snakemake keeps its notes in this folder. "
        "Run it in a copy that you may change"
    ) from None
begin(coordination.join)
RESULTS_MADE = checked_results()  # all results that the configuration makes, each with settings, inputs and outputs
TABLE = RESULTS_MADE.table  # runs, attacks, tables and figures of the configuration
CONFIG = TABLE.config
RESULTS = Path(CONFIG.root)
# All settings of the run in one file, which its commands read. What a result depends on is hashed in params.results.
# The order of figures is that of the configuration.
SETTINGS = json.dumps(CONFIG.model_dump(mode="json"), indent=1)
CONFIGURATION = RESULTS / ".configuration.json"  # under one name, as another parameter would make all results again
# Of a run. Rounds are steps of a training: n0 is the untrained network, e.g. for gradient inversion, and natural-all/n0-b1
# the untrained networks behind natural noise of all levels, which one job attacks.
RUN = "{dataset}/{model}/{defense}/n{rounds}-b{batch_size}"
# Job of the attacks on a run -> place of its first run in the configuration, for in_order.
POSITIONS = {attacked_together(run): position for position, run in reversed([*enumerate(TABLE.runs)])}
FEDERATED_RUN = "{dataset}/{model}/{scheme}/n{clients}"
TABLE_FILES = [TABLE.file("tabulate", name) for name in TABLE.tables]
CLAIMS = RESULTS_MADE.files("claims")
FIGURES = RESULTS_MADE.files("plot")
TRACKED_RUNS = RESULTS_MADE.files("log")
MADE_BY = RESULTS_MADE.made_by  # file -> the result that it belongs to
TOGETHER = made_together(RESULTS_MADE)  # rule and what its wildcards stand for -> results that one job makes

os.environ[coordination.COORDINATOR] = str(os.getpid())


wildcard_constraints:
    dataset="[a-z][a-z0-9_]*",
    model="[a-z][a-z0-9_]*",
    defense="[a-z0-9_.e+-]+",
    scheme="[a-z0-9_.e+-]+",
    rounds="[0-9]+",
    batch_size="[0-9]+",
    clients="[0-9]+",
    paper="[a-z0-9]+",
    family="[a-z][a-z0-9_]*",
    channel="[a-z][a-z0-9_]*-[0-9.e+-]+",


def codes(rule, pattern):
    """Fingerprints of the code behind all results of a job, which it would need half a second to find."""
    return lambda wildcards: ",".join(map(code_of, results(rule, pattern, wildcards)))


def results(rule, pattern, wildcards):
    """All results of a job, or a sentence with the nearest names if there is no job of the name that wildcards spell."""
    name = pattern.format(**wildcards)
    if (rule, name) not in TOGETHER:
        close = difflib.get_close_matches(name, [of for other, of in TOGETHER if other == rule], n=3, cutoff=0)
        problem = f"{CONFIG.preset} has no job {name!r} of the rule {rule}"
        raise WorkflowError(f"{problem}; nearest: {', '.join(close) or 'none'}")
    return TOGETHER[rule, name]


def results_hash(rule, pattern=""):
    """Hash of settings and code of all results that one job makes."""

    return lambda wildcards: settings_hash(
        [(job.name, job.settings_text(), code_of(job)) for job in results(rule, pattern, wildcards)]
    )


def files_read(rule, of, *steps):
    """Files of some steps that the results of a job read."""
    jobs = TOGETHER.get((rule, of), ())
    return list(dict.fromkeys(path for job in jobs for path in job.input_files() if MADE_BY[path].step in steps))


def reads(rule, pattern, *steps):
    """Files of some steps that a job reads, none if it needs none."""
    return lambda wildcards: files_read(rule, pattern.format(**wildcards), *steps)


def whole_or_again(pattern):
    """No input, but a job that declares one list of many files runs again if one of these is gone."""

    def nothing(wildcards):
        path = Path(str(pattern).format(**wildcards))
        try:
            lost = path.is_file() and not all(map(os.path.exists, json.loads(path.read_text(encoding="utf-8"))))
        except ValueError:  # not the list that was written
            lost = True
        if lost and workflow.is_main_process:
            workflow.dag.forcefiles.add(str(path))  # as Snakemake adds incomplete files
        return []

    return nothing


def shown_as(figure):
    """Function of what Snakemake's report says about a figure, as a title may hold braces."""
    caption = TABLE.caption(f"{figure.paper}/{figure.id}")
    return lambda wildcards: {"figure": figure.id, "shows": figure.title, "caption": caption}


def in_order(wildcards):
    """Priority of a training: what comes first in the configuration is to be finished first."""
    # An attack comes right after its training, at the odd number above it.
    return -2 * POSITIONS.get(RUN.format(**wildcards), 0)


def memory(*steps):
    """MiB of memory that a job of some steps, one after another, asks for: as much again at each retry."""
    return lambda wildcards, attempt: max(getattr(CONFIG.resources, step).mem_mb for step in steps) * attempt


def minutes(*steps):
    """Minutes that a job of some steps, one after another, asks for: as many again at each retry."""
    return lambda wildcards, attempt: sum(getattr(CONFIG.resources, step).runtime for step in steps) * attempt
