# The configuration in force, and what the rules ask about it. No rule here.

import atexit
import difflib
import json
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from snakemake.logging import logger

from leakbound.cli.steps.job_list import job_list, try_networks
from leakbound.cli.steps.prepare import originals
from leakbound.cli.steps.report import page_hash
from leakbound.config import messages, reading
from leakbound.jobs.job import ANEW, CONFIGURATION, attacked_together, code_of, made_together, snakemake_target
from leakbound.jobs import coordination
from leakbound.storage.provenance import settings_hash


def in_turn(enter, *arguments):
    """Begin a run, or a part of one on another machine, or say in one line why not."""
    try:
        enter(*arguments)
    except (coordination.BusyError, coordination.SupersededError, OSError) as error:
        sys.exit(str(error))


def refuse_read_only_folder():
    """Say in one sentence that nothing can be written here, where Snakemake ends in a traceback."""
    try:
        with tempfile.TemporaryFile(dir=Path.cwd()):
            pass
    except OSError as error:
        sys.exit(
            f"{Path.cwd()}: nothing can be written here ({error.strerror}), and Snakemake keeps its notes in this folder. "
            "Run it in a copy that you may change"
        )


def tell_what_ended_it(logs):
    """Say what is kept after Ctrl-C. Name memory if a job was killed, because the job itself could not say anything."""
    said = "".join(Path(path).read_text(encoding="utf-8", errors="replace") for path in logs)
    if INTERRUPTED.is_set() or "leakbound: interrupted" in said:
        kept = sum(1 for _ in workflow.dag.finished_jobs)
        print(
            f"Stopped after {kept} of {len(workflow.dag)} jobs, which are kept; the same command goes on.",
            file=sys.stderr,
        )
    elif "SIGKILL" in said:
        print(
            "A job was killed (SIGKILL), as the system does when memory runs out. The quick configuration takes about "
            "1.9 GB, and each job about 0.8 GB: ask for fewer jobs at a time, make run JOBS=1, or for more memory; the "
            "same command goes on.",
            file=sys.stderr,
        )


def drop_default_rate_limit():
    """Let go of Snakemake's limit of 100 jobs a second, which no profile or command line has asked for.

    To keep it, Snakemake looks for work in every second once more for each job that has ended: a core, after a few
    hundred of them.
    """
    limiter = workflow.scheduler.job_rate_limiter
    if limiter is not None and (limiter.max_jobs, limiter.timespan) == (100, 1):
        workflow.scheduler.job_rate_limiter = None


def show_news():
    """On the screen, leave out what Snakemake says of each job that goes well. All of it stays in its log."""
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, note_interruption)
    asked = workflow.output_settings
    if not (asked.quiet or asked.verbose or asked.printshellcmds):
        for handler in logger.handlers:
            if handler.name == "DefaultStreamHandler":
                handler.addFilter(is_news)


def note_interruption(*arguments):
    """Remember Ctrl-C at once: Snakemake may hear of the jobs that it has ended before it handles it."""
    INTERRUPTED.set()
    signal.default_int_handler(*arguments)


def is_news(record):
    """Whether a message of Snakemake is about more than a job that goes well, or that Ctrl-C has ended."""
    event = getattr(getattr(record, "event", None), "name", "")
    return not (INTERRUPTED.is_set() or event in ROUTINE or record.getMessage().startswith("Select jobs to execute"))


def tell_what_came_out():
    """The sentences that open the report, and its path, as the last lines of a run that has written one."""
    log = RESULTS / "logs/report.log"
    if log.is_file() and (RESULTS / "report.html").is_file():
        output = f"\n{log.read_text(encoding='utf-8')}" + (MORE if CONFIG.preset == "quick" else "")
        atexit.register(print, output, end="", file=sys.stderr)


def keep_notes_of_secrets():
    """Let nobody else read Snakemake's notes where records are secret: hashes of the original files are in them."""
    if CONFIG.privacy_noise == "secure":
        Path(".snakemake").chmod(0o700)


def checked_results():
    """All results of the configuration in force, or its mistakes, one line each, and no traceback."""
    source = " and ".join([*map(str, workflow.configfiles), *["--config"] * bool(workflow.config_settings.config)])
    try:
        for path in workflow.configfiles:
            messages.read_yaml(Path(path))  # Snakemake's own reader takes the last of keys that come twice
        found = job_list(reading.config_of(config, source))
        if workflow.is_main_process:
            try_networks(found.table.config, source)
        return found
    except messages.ConfigError as error:
        sys.exit(str(error))


def mean_all_if_forced():
    """Have forced jobs make all of their results again, also those that are finished and unchanged."""
    asked = workflow.dag_settings
    if asked.forcerun or asked.forceall or asked.forcetargets:
        os.environ[ANEW] = "1"


MORE = (
    "`make open` shows it. Every figure of the four papers that needs no photographs, on the same digits: "
    "`make run CONFIG=config/full_digits.yaml`, about a quarter of an hour; on photographs: CONFIG=config/small.yaml\n"
)
ROUTINE = {"JOB_INFO", "JOB_STARTED", "JOB_FINISHED", "GROUP_INFO", "SHELLCMD"}
INTERRUPTED = threading.Event()

refuse_read_only_folder()
in_turn(coordination.join)
RESULTS_MADE = checked_results()  # all results that the configuration makes, each with settings, inputs and outputs
TABLE = RESULTS_MADE.table  # runs, attacks, tables and figures of the configuration
CONFIG = TABLE.config
RESULTS = Path(CONFIG.root)
RUN = "{dataset}/{model}/{defense}/n{rounds}-b{batch_size}"  # n0: the untrained network, e.g. for gradient inversion
POSITIONS = {attacked_together(run): position for position, run in reversed([*enumerate(TABLE.runs)])}
FEDERATED_RUN = "{dataset}/{model}/{scheme}/n{clients}"
TABLE_FILES = [TABLE.file("tabulate", name) for name in TABLE.tables]
CLAIMS = RESULTS_MADE.files("claims")
FIGURE_FOLDERS = sorted({RESULTS / "figures" / figure.paper for figure in TABLE.figures.values()})
TRACKED_RUNS = [RESULTS / "tracking.json"] if RESULTS_MADE.of("log") else []
MADE_BY = RESULTS_MADE.made_by  # file -> the result that it belongs to
TOGETHER = made_together(RESULTS_MADE)  # rule and what its wildcards stand for -> results that one job makes

os.environ[coordination.COORDINATOR] = str(os.getpid())
# All settings, for jobs that make several results. What these depend on is hashed in params.results.
os.environ[CONFIGURATION] = json.dumps(CONFIG.model_dump(mode="json"), separators=(",", ":"))


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


def result(step, pattern, wildcards):
    """The result of a step whose name wildcards spell; without one of this name, say so in one sentence and end."""
    name = pattern.format(**wildcards)
    try:
        return RESULTS_MADE.job(step, name)
    except KeyError as error:
        end_with_nearest(error.args[0], name, [job.name for job in RESULTS_MADE.of(step)])


def end_with_nearest(problem, name, names):
    """End with a problem and the names that are closest to the one asked for."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0)
    sys.exit(f"{problem}; nearest: {', '.join(close)}" if close else f"{problem}; it has none of these")


def settings(step, pattern):
    """Everything except files on which a result depends, so that nothing else makes it again."""
    return lambda wildcards: result(step, pattern, wildcards).settings_text()


def code(step, pattern):
    """Fingerprint of the code behind a result: Snakemake sees no change of an imported module, but one of this."""
    return lambda wildcards: code_of(result(step, pattern, wildcards))


def codes(rule, pattern):
    """Fingerprints of the code behind all results of a job, which it would need half a second to find."""
    return lambda wildcards: ",".join(map(code_of, TOGETHER[rule, pattern.format(**wildcards)]))


def results_hash(rule, pattern=""):
    """Hash of settings and code of all results that one job makes."""

    def hashed(wildcards):
        name = pattern.format(**wildcards)
        if (rule, name) not in TOGETHER:
            names = [of for other, of in TOGETHER if other == rule]
            end_with_nearest(f"{CONFIG.preset} has no job {name!r} of the rule {rule}", name, names)
        return settings_hash([(job.name, job.settings_text(), code_of(job)) for job in TOGETHER[rule, name]])

    return hashed


def files_read(rule, of, *steps):
    """Files of some steps that the results of a job read."""
    jobs = TOGETHER.get((rule, of), ())
    return [path for job in jobs for path in job.input_files() if MADE_BY[path].step in steps]


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


def shown_tables(wildcards):
    """Files of the rows that the figures of a paper show."""
    figures = [figure for figure in TABLE.figures.values() if figure.paper == wildcards.paper]
    return sorted({TABLE.rows_file(figure) for figure in figures})


def channel_options(rule, pattern):
    """Options of a command with the files of channels that it reads."""

    def options(wildcards):
        job = result(rule, pattern, wildcards)
        files = {role: one for role, one in job.inputs.items() if role in ("channel", "spectrum")}
        named = {role: one for role, one in job.inputs.items() if isinstance(one, dict)}
        pairs = [f"--{role} {name}={path}" for role, every in named.items() for name, path in every.items()]
        return " ".join([*(f"--{role} {path}" for role, path in files.items()), *pairs])

    return options


def in_order(wildcards):
    """Priority of a training: what comes first in the configuration is to be finished first."""
    # Attacks have the odd places in between.
    return -2 * POSITIONS.get(RUN.format(**wildcards), 0)


def memory(*steps):
    """MiB of memory that a job of some steps, one after another, asks for: as much again at each retry."""
    return lambda wildcards, attempt: max(getattr(CONFIG.resources, step).mem_mb for step in steps) * attempt


def minutes(*steps):
    """Minutes that a job of some steps, one after another, asks for: as many again at each retry."""
    return lambda wildcards, attempt: sum(getattr(CONFIG.resources, step).runtime for step in steps) * attempt
