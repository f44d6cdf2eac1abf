"""Bring one run of a store up to the state of a record. Repeating it changes nothing."""

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from leakbound.storage import file_hash
from leakbound.tracking.headlines import BRIEF, HEADLINES
from leakbound.tracking.run_records import Artifact, Point, RunRecord
from leakbound.tracking.store import (
    connect,
    failures,
    is_server,
    may_pass,
    patient,
    reason,
    sqlite_file,
    writing,
)

_LOGGER = logging.getLogger(__name__)
KEY = "leakbound.key"
CONTENT = "leakbound.content"
ARTIFACTS = "leakbound.artifacts"
PARENT = "mlflow.parentRunId"
_CONTEXT = "mlflow.data.context"
VIEW = "leakbound"
"""Share key of the view with which the runs of an experiment open."""
_COLUMNS = [f"tags.`{name}`" for name in ("defense", "level")] + [
    f"metrics.`{BRIEF}/{name}`" for name in HEADLINES
]
_VIEW = {
    "orderByKey": "tags.`mlflow.runName`",
    "orderByAsc": True,
    "searchFilter": "tags.replica IS NULL",
    "selectedColumns": _COLUMNS,
    "columnOrder": _COLUMNS,
    "columnWidths": {column: 165 if column.startswith("metrics") else 90 for column in _COLUMNS},
}
_KIND = {  # without it MLflow shows pages for chatbots, and the columns that each user last chose
    "mlflow.experimentKind": "custom_model_development",
    f"mlflow.sharedViewState.{VIEW}": json.dumps(_VIEW),
}
_MAX_METRICS = 900  # MLflow takes 1,000 entities a call, and 100 of them may be params
_MAX_PARAMS = 100
_PAUSES = (0.5, 2.0)  # seconds before another attempt, once a store has answered


class RunPlace(NamedTuple):
    """Identifiers of a run's page in a store."""

    experiment_id: str
    run_id: str


class OutdatedRecordError(ValueError):
    """A record whose files have changed since it was made."""


def live_key(key: str) -> str:
    """Return the key of the unfinished run that shows curves while ``key`` is being trained."""
    return f"{key}#live"


def push(record: RunRecord, uri: str) -> RunPlace:
    """Make sure that the store contains the run of a record once, with exactly the record's values.

    A run with the same content is kept, or finished if an earlier push was interrupted. A run with the same
    key and other content is deleted (MLflow moves it to its bin) and made again, so the store never shows
    values that are in no file.

    If a store does not answer at all, the push fails at once. If it has answered and then fails, as a server
    that restarts or is overloaded, the push is tried again after a pause. This duplicates nothing, because
    each attempt first checks what the store contains.

    Args:
        record: The run.
        uri: Database or server.

    Returns:
        Identifiers of the run.

    Raises:
        OutdatedRecordError: If an artifact is not the file that was recorded.
        ValueError: If ``uri`` cannot keep runs safely.
        mlflow.exceptions.MlflowException: If the store does not answer or refuses.
    """
    for artifact in record.artifacts:
        if not artifact.path.is_file() or file_hash(artifact.path) != artifact.sha256:
            raise OutdatedRecordError(
                f"{artifact.path}: changed or gone since this run was recorded; log it again"
            )
    with writing(uri):
        pushing = _Push(record, uri)
        # The holder of a file's lock has nobody to wait for.
        for pause in () if sqlite_file(uri) else _PAUSES:
            try:
                return pushing.attempt()
            except failures() as error:
                if not (pushing.answered and may_pass(error)):
                    raise
                _LOGGER.warning("%s: trying again in %g s: %s", record.key, pause, reason(error))
            time.sleep(pause)
        return pushing.attempt()


class _Push:
    """The attempts to send one record. ``answered`` is True once the store has answered in any of them."""

    def __init__(self, record: RunRecord, uri: str) -> None:
        self.answered = False
        self._record = record
        self._uri = uri
        self._shared = sqlite_file(uri) is None  # with writers that do not use our lock
        self._made: set[str] = set()

    def attempt(self) -> RunPlace:
        """Send what the store does not have yet."""
        record = self._record
        client = connect(self._uri)  # opens a database, and makes its file if necessary
        client.search_experiments(max_results=1)
        self.answered = True
        with patient():
            experiment = experiment_id(client, self._uri, record.experiment, record.about)
            if is_server(self._uri):
                for run in runs_with_key(client, experiment, live_key(record.key)):
                    client.delete_run(run.info.run_id)
            run_id = self._bring(client, experiment, record, parent=None)
            for other in self._made - {run_id}:  # children may have been added after its removal
                _discard(client, experiment, other)
        return RunPlace(str(experiment), run_id)

    def _bring(self, client: Any, experiment: str, record: RunRecord, parent: str | None) -> str:
        """Find or make the run of a record, send its values and children, close it, and return its id."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        run = _find(client, experiment, record, parent)
        if run is not None and run.info.status == record.status:
            return str(run.info.run_id)
        made = run is None
        if run is None:
            tags = {**record.tags, KEY: record.key, CONTENT: record.content} | (
                {PARENT: parent} if parent else {}
            )
            run = client.create_run(experiment, start_time=record.start, tags=tags, run_name=record.name)
            if parent is None:
                self._made.add(str(run.info.run_id))
        run_id = run.info.run_id
        send_values(client, run_id, record.metrics, record.params)
        for item in record.data:
            dataset = Dataset(item.name, item.digest, "leakbound", f"{item.name}, prepared")
            client.log_inputs(run_id, [DatasetInput(dataset, [InputTag(_CONTEXT, item.context)])])
        for child in record.children:
            self._bring(client, experiment, child, run_id)
        if record.artifacts and run.data.tags.get(ARTIFACTS) != record.artifacts_content:
            _send_files(client, run_id, record, self._uri)
            client.set_tag(run_id, ARTIFACTS, record.artifacts_content)
        client.set_terminated(run_id, record.status, record.end)
        # Another writer, or an earlier attempt without an answer, may have made it too.
        if made and self._shared:
            return self._bring(client, experiment, record, parent)
        return str(run_id)


def _send_files(client: Any, run_id: str, record: RunRecord, uri: str) -> None:
    """Send a run's files. A server must accept them itself.

    Raises:
        mlflow.exceptions.MlflowException: If it names a folder of this machine or another server, or refuses
        a
            file.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    place = str(client.get_run(run_id).info.artifact_uri)
    if is_server(uri) and not _is_on(uri, place):
        raise MlflowException(
            f"the server names {place!r}, on this machine or another, for a run's files: it must serve them itself "
            "(mlflow server --serve-artifacts)",
            PERMISSION_DENIED,
        )
    repository = get_artifact_repository(place, tracking_uri=uri)  # of the place that was checked
    for artifact in record.artifacts:
        if is_server(uri):
            _put(repository.artifact_uri, artifact)
        else:
            repository.log_artifact(str(artifact.path), artifact.folder or None)


def _is_on(uri: str, place: str) -> bool:
    """Return True for a server's own folder, read as MLflow reads it. False for what MLflow cannot read."""
    with suppress(ValueError):
        parts = urlsplit(place)
        return parts.scheme == "mlflow-artifacts" and parts.netloc in ("", urlsplit(uri).netloc)
    return False


def _put(home: str, artifact: Artifact) -> None:
    """Send a file to a server.

    MLflow's own function sends large files to any address that the server names, and regards a redirection
    that it does not follow as success.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import augmented_raise_for_status, http_request

    with artifact.path.open("rb") as content:
        name = "/".join(("", *filter(None, (artifact.folder, artifact.path.name))))
        answer = http_request(get_default_host_creds(home), name, "PUT", data=content, allow_redirects=False)
    augmented_raise_for_status(answer)
    if answer.status_code != HTTPStatus.OK:
        raise MlflowException(
            f"the server answers {answer.status_code} to a file, and redirections are not followed"
        )


def experiment_id(client: Any, uri: str, name: str, about: str) -> str:
    """Return the identifier of an experiment. It is made, or restored from the bin, if necessary."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        database = sqlite_file(uri)
        # Other stores choose the place themselves.
        artifacts = database and (database.parent / "mlartifacts" / name).as_uri()
        try:
            return client.create_experiment(name, artifacts, {"mlflow.note.content": about, **_KIND})
        except MlflowException:
            experiment = client.get_experiment_by_name(name)  # another job may have made it in between
            if experiment is None:
                raise
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    return experiment.experiment_id


def pages(uri: str, preset: str) -> dict[str, str]:
    """Map the experiments of a preset in a database to the path of their pages.

    A page shows means over replicas, with columns for accuracy, leakage and attacks, sorted by defense and
    level.
    """
    addresses = {}
    with writing(uri):
        client = connect(uri)
        for experiment in client.search_experiments(order_by=["name"]):
            if experiment.name.startswith(f"{preset}/"):
                view = "" if experiment.name.endswith("/figures") else f"&viewStateShareKey={VIEW}"
                addresses[experiment.name] = (
                    f"/#/experiments/{experiment.experiment_id}/runs?workflowType=machine_learning{view}"
                )
    return addresses


def runs_with_key(client: Any, experiment: str, key: str, parent: str | None = None) -> list[Any]:
    """Find the runs of an experiment with this key and, if given, this parent. Deleted ones are left out."""
    query = f"tags.`{KEY}` = '{key}'" + (f" AND tags.`{PARENT}` = '{parent}'" if parent else "")
    return list(client.search_runs([experiment], query, max_results=100))


def _find(client: Any, experiment: str, record: RunRecord, parent: str | None) -> Any:
    """Find the run with the record's key and content, if any, and delete all others of that key.

    If there are several, all writers keep the same one.
    """
    runs = runs_with_key(client, experiment, record.key, parent)
    same = [run for run in runs if run.data.tags.get(CONTENT) == record.content]
    kept = min(same, key=lambda run: str(run.info.run_id), default=None)
    for run in runs:
        if run is not kept:
            _discard(client, experiment, run.info.run_id)
    return kept


def _discard(client: Any, experiment: str, run_id: str) -> None:
    """Move a run and its children to MLflow's bin."""
    for child in client.search_runs([experiment], f"tags.`{PARENT}` = '{run_id}'"):
        client.delete_run(child.info.run_id)
    client.delete_run(run_id)


def send_values(client: Any, run_id: str, points: Sequence[Point], params: Mapping[str, str]) -> None:
    """Send metrics and params in as few calls as MLflow allows. Repeated values are not duplicated."""
    from mlflow.entities import Metric, Param

    metrics = [Metric(point.key, point.value, point.timestamp, point.step) for point in points]
    settings = [Param(name, value) for name, value in params.items()]
    while metrics or settings:
        client.log_batch(run_id, metrics[:_MAX_METRICS], settings[:_MAX_PARAMS])
        del metrics[:_MAX_METRICS], settings[:_MAX_PARAMS]
