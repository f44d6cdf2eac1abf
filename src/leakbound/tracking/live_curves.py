"""Curves on a server while training runs: never slower, never an error, replaced by the finished run."""

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
    """Daemon thread that sends the curves so far now and then. It does nothing without a server.

    Its values carry the time at which they were first seen, not that of any file: they are a view for the
    moment, and ``push`` deletes it when the finished run arrives.

    Args:
        uri: Tracking address; only ``http`` and ``https`` are watched live.
        facts: The run in training.
        pause: Seconds between two looks.
        patience: Seconds that the end of the training waits at most.
    """

    def __init__(self, uri: str, facts: RunFacts, *, pause: float = 10.0, patience: float = 3.0) -> None:
        self._uri, self._facts, self._pause, self._patience = uri, facts, pause, patience
        self._rows: pd.DataFrame | None = None
        self._seen: dict[tuple[str, int, str], Point] = {}  # in the order in which they are sent
        self._sent = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="live curves")
        if is_server(uri):
            self._thread.start()

    def on_rows(self, rows: pd.DataFrame) -> None:
        """Take the curves so far (replica, learning_rate if there are candidates, step, metric, value); no waiting."""
        self._rows = rows

    def __enter__(self) -> "LiveCurves":
        """Start of the training."""
        return self

    def __exit__(self, *exception: object) -> None:
        """End of the training, well or not: send what is left, if that takes no longer than ``patience``."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(self._patience)

    def _watch(self) -> None:
        """Look again and again until closed, then once more."""
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
        """Identifier of the live run, made if need be."""
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
        """Send the rows that the server has not got. A row keeps its first time, so a repeat is no second value."""
        rows = self._rows
        if rows is None:
            return
        now = int(time.time() * 1000)
        for row in rows.itertuples(index=False):
            rate = f" at {row.learning_rate:g}" if "learning_rate" in rows else ""
            slot, step, metric = key = f"replica {row.replica}{rate}", int(row.step), str(row.metric)
            self._seen.setdefault(key, Point(curve_name(metric, slot), step, now, float(row.value)))
        fresh = list(self._seen.values())[self._sent :]
        send_values(connect(self._uri), run_id, fresh, {})
        self._sent += len(fresh)
