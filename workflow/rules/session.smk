# What a person sees of a run, and how it begins and ends: messages, Ctrl-C, folders that are taken. No rule here.

import atexit
import os
import signal
import sys
import tempfile
import threading
from pathlib import Path

from snakemake.logging import logger

from leakbound_lab.jobs import coordination
from leakbound_lab.jobs.job import ANEW
from leakbound.storage.files import write_text


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


def write_configuration():
    """Write the configuration in force for the jobs, in place of that of an earlier run."""
    write_text(CONFIGURATION, SETTINGS)


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
    if "exit status 130" in record.getMessage():  # a job heard of Ctrl-C before this process did
        INTERRUPTED.set()
    return not (INTERRUPTED.is_set() or event in ROUTINE or record.getMessage().startswith("Select jobs to execute"))


def tell_what_came_out():
    """The sentences that open the report, and its path, as the last lines of a run that is to have one."""
    log = RESULTS / "logs/report.log"
    wanted = any(job.rule.name == "report" for job in workflow.dag.jobs)  # not of a run that was asked for a part
    if wanted and log.is_file() and (RESULTS / "report.html").is_file():
        output = f"\n{log.read_text(encoding='utf-8')}" + (MORE if CONFIG.preset == "quick" else "")
        atexit.register(print, output, end="", file=sys.stderr)


def keep_notes_of_secrets():
    """Let nobody else read Snakemake's notes where records are secret: hashes of the original files are in them."""
    if CONFIG.privacy_noise == "secure":
        Path(".snakemake").chmod(0o700)


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
