"""Screen of a run: progress and what went wrong, no job that goes well, and last how it ended.

Snakemake finds logger plugins by the name of their package, and the profiles ask for this one (``logger: leakbound``).
Its log in ``.snakemake/log`` holds everything.
"""

import sys
from logging import LogRecord
from pathlib import Path

from snakemake.logging import ColorizingTextHandler
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

_OF_JOBS_THAT_GO_WELL = {
    LogEvent.JOB_INFO,
    LogEvent.JOB_STARTED,
    LogEvent.JOB_FINISHED,
    LogEvent.GROUP_INFO,
    LogEvent.SHELLCMD,
}
_INTERRUPTIONS = ("Terminating processes on user request", "exit status 130", "leakbound: interrupted")
_KILLED = (
    "A job was killed (SIGKILL), as the system does when memory runs out. The quick configuration takes about "
    "1.9 GB, and each job about 0.8 GB: ask for fewer jobs at a time, make run JOBS=1, or for more memory; the "
    "same command goes on.\n"
)
_MORE = (
    "`make open` shows it. Every figure of the four papers that needs no photographs, on the same digits: "
    "`make run CONFIG=config/full_digits.yaml`, about a quarter of an hour; on photographs: CONFIG=config/small.yaml\n"
)


class LogHandler(LogHandlerBase):
    """Handler in place of Snakemake's own on the screen, with its format, colours and options."""

    def __post_init__(self) -> None:
        """Begin with no job done."""
        settings = self.common_settings
        self._stream = sys.stdout if settings.stdout else sys.stderr
        self._screen = ColorizingTextHandler(nocolor=settings.nocolor, stream=self._stream)
        self._all = settings.dryrun or settings.verbose or settings.printshellcmds or bool(settings.quiet)
        self._report: tuple[int, str] | None = None  # number and log of the job that writes the page
        self._reported = self._interrupted = self._killed = False
        self._done = self._total = 0
        self._ended = False

    def emit(self, record: LogRecord) -> None:
        """Show a message of Snakemake, unless it is about a job that goes well or that Ctrl-C has ended."""
        text = self.format(record)
        self._note(record, text)
        routine = getattr(record, "event", None) in _OF_JOBS_THAT_GO_WELL or text.startswith(
            "Select jobs to execute"
        )
        if self._all or not (routine or self._interrupted):
            self._screen.setFormatter(self.formatter)
            self._screen.emit(record)

    def _note(self, record: LogRecord, text: str) -> None:
        """Remember what the last words depend on."""
        event = getattr(record, "event", None)
        said = f"{record.getMessage()}\n{text}"
        if event == LogEvent.RUN_INFO:
            self._total = getattr(record, "stats", {}).get("total", self._total)
        elif event == LogEvent.PROGRESS:
            self._done, self._total = record.__dict__["done"], record.__dict__["total"]
        elif event == LogEvent.JOB_INFO and record.__dict__["rule_name"] == "report":
            self._report = record.__dict__["jobid"], record.__dict__["log"][0]
        elif event == LogEvent.JOB_FINISHED:
            self._reported |= self._report is not None and record.__dict__["job_id"] == self._report[0]
        self._interrupted |= any(words in said for words in _INTERRUPTIONS)
        self._killed |= "SIGKILL" in said

    def close(self) -> None:
        """Say last what is kept after Ctrl-C, that a job was killed, or with which sentences the page begins."""
        # Snakemake closes its handlers twice, those of plugins and then all of its logger.
        if not (self._ended or self.common_settings.dryrun):
            self._stream.write(self._last_words())
            self._stream.flush()
        self._ended = True
        super().close()

    def _last_words(self) -> str:
        """Return how the run ended, empty if Snakemake has said it."""
        if self._interrupted:
            return f"Stopped after {self._done} of {self._total} jobs, which are kept; the same command goes on.\n"
        if self._killed:
            return _KILLED
        if not self._reported or self._report is None:
            return ""
        log = Path(self._report[1])
        sentences = log.read_text(encoding="utf-8") if log.is_file() else ""
        return f"\n{sentences}" + (_MORE if log.parts[-3:-2] == ("quick",) else "")

    @property
    def writes_to_stream(self) -> bool:
        """True, so that Snakemake adds no handler of its own."""
        return True

    @property
    def writes_to_file(self) -> bool:
        """False."""
        return False

    @property
    def has_filter(self) -> bool:
        """False, for Snakemake's own, which knows its options ``--quiet`` and ``--verbose``."""
        return False

    @property
    def has_formatter(self) -> bool:
        """False, for Snakemake's own."""
        return False

    @property
    def needs_rulegraph(self) -> bool:
        """False."""
        return False
