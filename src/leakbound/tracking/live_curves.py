"""Curves on a server while training runs. They never delay or stop it, and the finished run replaces them."""

import logging
import threading
import time

import pandas as pd

from leakbound.tracking.measurements import curve_name
from leakbound.tracking.run_facts import RunFacts
from leakbound.tracking.run_records import Point
from leakbound.tracking.sending import CONTENT, KEY, experiment_id, live_key, runs_with_key, send_values
from leakbound.tracking.store import connect, is_server

_LOGGER = logging.getLogger(__name__)


class LiveCurves:
    """Daemon thread that regularly sends the curves so far. It does nothing without a server.

    Values have the time at which they were first seen, not that of a file. They are a temporary view, which
    ``push`` deletes when the finished run arrives.

    Args:
        uri: Tracking address. Only ``http`` and ``https`` are watched live.
        facts: Name and coordinates of the run.
        pause: Seconds between two transmissions.
        patience: Largest number of seconds that the end of the training waits.
    """

    def __init__(self, uri: str, facts: RunFacts, *, pause: float = 10.0, patience: float = 3.0) -> None:
        self._uri = uri
        self._facts = facts
        self._pause = pause
        self._patience = patience
        self._rows: pd.DataFrame | None = None
        self._seen: dict[tuple[str, int], Point] = {}  # by name and step, in the order in which they are sent
        self._sent = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="live curves")
        if is_server(uri):
            self._thread.start()

    def on_rows(self, rows: pd.DataFrame) -> None:
        """Take the curves so far, without waiting.

        Args:
            rows: Columns replica, learning_rate if there are candidates, step, metric and value.
        """
        self._rows = rows

    def __enter__(self) -> "LiveCurves":
        """Start with the training."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Send the remaining rows when the training ends or fails, for at most ``patience`` seconds."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(self._patience)

    def _watch(self) -> None:
        """Send new rows regularly until closed, then once more."""
        run_id = None
        closing = False
        while not closing:
            closing = self._closing.wait(self._pause)
            try:
                run_id = run_id or self._run()
                self._send(run_id)
            except Exception as error:  # whatever the server does, training continues
                _LOGGER.debug("live curves of %s: %s", self._facts.slug, error)

    def _run(self) -> str:
        """Return the identifier of the live run, which is made if necessary."""
        client = connect(self._uri)
        facts = self._facts
        experiment = experiment_id(client, self._uri, facts.experiment, facts.about)
        key = live_key(facts.slug)
        runs = runs_with_key(client, experiment, key)
        if runs:
            return runs[0].info.run_id
        tags = {KEY: key, CONTENT: "live", "defense": facts.defense}
        if facts.level is not None:
            tags["level"] = str(facts.level)
        return client.create_run(experiment, tags=tags, run_name=f"{facts.name} (live)").info.run_id

    def _send(self, run_id: str) -> None:
        """Send the rows that the server lacks. A row keeps its first time, so a repeat adds no second value."""
        rows = self._rows
        if rows is None:
            return
        now = int(time.time() * 1000)
        for row in rows.itertuples(index=False):
            rate = f" at {row.learning_rate:g}" if "learning_rate" in rows else ""
            name = curve_name(str(row.metric), f"replica {row.replica}{rate}")
            point = Point(name, int(row.step), now, float(row.value))
            self._seen.setdefault((name, point.step), point)
        fresh = list(self._seen.values())[self._sent :]
        send_values(connect(self._uri), run_id, fresh, {})
        self._sent += len(fresh)
