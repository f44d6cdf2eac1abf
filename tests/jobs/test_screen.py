"""What a run shows: one line of progress in place of Snakemake's messages about jobs that go well."""

import io
import logging
from enum import Enum

import pytest

from leakbound.jobs.processes.screen import Screen


class Event(Enum):
    JOB_INFO = 1
    JOB_FINISHED = 2
    PROGRESS = 3
    JOB_ERROR = 4


class Terminal(io.StringIO):
    def isatty(self):
        return True


def record(message="", level=logging.INFO, event=None, **facts):
    made = logging.LogRecord("snakemake", level, "", 0, message, (), None)
    made.__dict__.update({"event": event} if event else {}, **facts)
    return made


def test_jobs_that_go_well_are_not_shown_and_errors_are():
    screen = Screen(io.StringIO())
    routine = [record(event=Event.JOB_INFO), record(event=Event.JOB_FINISHED), record("Select jobs to execute...")]
    assert not any(screen.filter(one) for one in [*routine, record("Execute 2 jobs...")])
    assert screen.filter(record("broken", logging.ERROR, Event.JOB_ERROR))
    assert screen.filter(record("Execute nothing of this kind", logging.WARNING))


def test_a_line_for_each_tenth_of_the_jobs_where_there_is_no_terminal():
    stream = io.StringIO()
    screen = Screen(stream)
    for done in range(1, 41):
        assert not screen.filter(record(event=Event.PROGRESS, done=done, total=40))
    lines = stream.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == [f"{4 * k} of 40 jobs ({10 * k} %)" for k in range(1, 11)]


def test_a_terminal_keeps_one_line_that_gives_way_to_messages():
    stream = Terminal()
    screen = Screen(stream)
    for done in (1, 2):
        screen.filter(record(event=Event.PROGRESS, done=done, total=3))
    assert "\n" not in stream.getvalue()
    screen.filter(record("warning", logging.WARNING))
    assert stream.getvalue().endswith("\r\x1b[K")
    screen.filter(record(event=Event.PROGRESS, done=3, total=3))
    assert stream.getvalue().endswith("\n")


@pytest.mark.parametrize("total", [0, 1])
def test_runs_of_no_or_one_job_end_their_line(total):
    stream = Terminal()
    Screen(stream).filter(record(event=Event.PROGRESS, done=total, total=total))
    assert stream.getvalue().endswith("\n")
