# The jobs of the configuration in force, and what Snakemake asks about them. No rule here.

import atexit
import difflib
import os
import sys
import tempfile
from pathlib import Path

from snakemake.logging import logger

from leakbound.cli.launch import warm
from leakbound.cli.launch.handover import WARM
from leakbound.cli.steps.job_list import job_list, try_networks
from leakbound.jobs.processes.screen import Screen
from leakbound.config import messages, reading
from leakbound.jobs.processes import coordination
from leakbound.jobs.paths import OUTPUTS, log_and_benchmark, names_of
from leakbound.storage.fingerprint import code_fingerprint, modules_behind


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


def tell_what_killed(logs):
    """Name memory if a job was killed, because the job itself could not say anything."""
    if any("SIGKILL" in Path(path).read_text(encoding="utf-8", errors="replace") for path in logs):
        print(
            "A job was killed (SIGKILL), as the system does when memory runs out. The quick configuration takes about "
            "1.2 GB, and each job about 0.8 GB: ask for fewer jobs at a time, make run JOBS=1, or for more memory; the "
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


def start_warm_process():
    """Have one process load what the jobs of this machine need, if they are more than a few."""
    due = [job for job in workflow.dag.needrun_jobs() if job.is_shell and workflow.is_local(job.rule)]
    if len(due) > FEW and warm.available():
        found = [(JOBS.steps[one.rule.name].module, job_of(JOBS.steps[one.rule.name], one.wildcards)) for one in due]
        warm.start({name for step, job in found for name in (step, *modules_behind(step, *job.modules))})


def show_progress():
    """One line of progress on the screen in place of what Snakemake says of each job; all of it stays in its log."""
    asked = workflow.output_settings
    if not (asked.quiet or asked.verbose or asked.printshellcmds):
        for handler in logger.handlers:
            if handler.name == "DefaultStreamHandler":
                handler.addFilter(Screen(handler.stream))


def tell_what_came_out():
    """The sentences that open the report, and its path, as the last lines of a run that has written one."""
    for job in JOBS.of("report"):
        log = Path(ROOT, log_and_benchmark("report")[0].format(name=job.name))
        if log.is_file() and all(Path(path).is_file() for path in job.outputs.values()):
            output = f"\n{log.read_text(encoding='utf-8')}" + (MORE if CONFIG.preset == "quick" else "")
            atexit.register(print, output, end="", file=sys.stderr)


def keep_notes_of_secrets():
    """Let nobody else read Snakemake's notes where records are secret: hashes of the original files are in them."""
    if CONFIG.privacy_noise == "secure":
        Path(".snakemake").chmod(0o700)


def checked_jobs():
    """All jobs of the configuration in force, or its mistakes, one line each, and no traceback."""
    source = str(workflow.configfiles[-1]) if workflow.configfiles else "config"
    try:
        for path in workflow.configfiles:
            messages.read_yaml(Path(path))  # Snakemake's own reader takes the last of keys that come twice
        found = job_list(reading.check(config, source))
        if workflow.is_main_process:
            try_networks(found.table.config, source)
        return found
    except messages.ConfigError as error:
        sys.exit(str(error))


MORE = (
    "`make open` shows it. Every figure of the four papers that needs no photographs, on the same digits: "
    "`make run CONFIG=config/full_digits.yaml`, about a quarter of an hour; on photographs: CONFIG=config/small.yaml\n"
)
FEW = 4  # jobs, which take less time to start by themselves than a process that is ready for all of them

refuse_read_only_folder()
in_turn(coordination.join)
JOBS = checked_jobs()
TABLE = JOBS.table
CONFIG = TABLE.config
ROOT = str(CONFIG.root)

# One process for each job, which ends with this one: a shell in between would live on when either is killed.
shell.prefix("set -euo pipefail; exec ")
os.environ[coordination.COORDINATOR] = str(os.getpid())
if os.environ.get(WARM) != "0":
    os.environ.pop(WARM, None)  # that of a run which this one is a job of


def job_of(step, wildcards):
    """The job of a step that wildcards name; a step whose files have no wildcard has one job, or none.

    Asked for a file whose path fits the step, but that no job makes, say so in one sentence and end.
    """
    name = getattr(wildcards, "name", None) or next((job.name for job in JOBS.of(step.name)), step.name)
    try:
        return JOBS.job(step.name, name)
    except KeyError as error:
        close = difflib.get_close_matches(name, [job.name for job in JOBS.of(step.name)], n=3, cutoff=0)
        nearest = f"nearest: {', '.join(close)}" if close else "it has none of these"
        sys.exit(f"{error.args[0]}; {nearest}")


def patterns(step):
    """Files that the jobs of a step write, by option of the command; pictures are shown in Snakemake's own report."""
    found = {role: f"{ROOT}/{pattern}" for role, pattern in OUTPUTS[step.name].items()}
    if step.name == "plot":
        found["svg"] = report(
            found["svg"],
            category=lambda w: Path(w.name).parent.name,
            labels=lambda w: {"figure": Path(w.name).name, "shows": TABLE.figures[w.name].title},
            caption="../report/figure.rst",
        )
    return found


def parameters(step):
    """All that a job of a step depends on in addition to its inputs, so that nothing else runs it again; and its files."""

    def code(job):
        return code_fingerprint(step.module, *job.modules)

    found = {
        "settings": lambda w: job_of(step, w).settings_text(),
        "files": lambda w: job_of(step, w).options(),
        "code": lambda w: code(job_of(step, w)),
    }
    if step.watched is not None:
        found["watched"] = lambda w: step.watched(job_of(step, w), TABLE)
    if step.name == "plot":
        found["caption"] = lambda w: TABLE.caption_markup(w.name)
    if step.resumes:
        found["files"] = lambda w: f"{job_of(step, w).options()} --code {code(job_of(step, w))}"
    return found


def requests(step):
    """Resources that a job of a step asks for: memory and time grow with each retry."""
    if step.resources is None:
        return {"tracking": 1}
    asked = getattr(CONFIG.resources, step.resources)
    found = {
        "mem_mb": lambda wildcards, attempt: asked.mem_mb * attempt,
        "runtime": lambda wildcards, attempt: asked.runtime * attempt,
    }
    return found | ({"gpu": asked.gpu} if hasattr(asked, "gpu") else {})
