"""Bring one run of a store up to the state of a record; may be repeated at will."""

from __future__ import annotations

from typing import Any, NamedTuple

from leakbound.storage import file_hash
from leakbound.tracking.records import Artifact, RunRecord
from leakbound.tracking.store import artifact_location, connect, is_server, writing

KEY = "leakbound.key"
CONTENT = "leakbound.content"
ARTIFACTS = "leakbound.artifacts"
PARENT = "mlflow.parentRunId"
_MAX_METRICS = 900  # MLflow takes 1,000 entities a call, and 100 of them may be params
_MAX_PARAMS = 100


class Place(NamedTuple):
    """Where a run stands in a store: the identifiers that its page is found by."""

    experiment_id: str
    run_id: str


class OutdatedRecordError(ValueError):
    """A record whose files have changed since it was made."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(f"{artifact.path}: changed or gone since this run was recorded; log the run again")


def live_key(key: str) -> str:
    """Key of the unfinished run that shows curves while ``key`` is being trained."""
    return f"{key}#live"


def push(record: RunRecord, uri: str) -> Place:
    """Make the run of ``record`` stand in the store once, with exactly the record's values.

    A run of the same content is left alone, or finished if an earlier push broke off. A run of the same key and other
    content is deleted (MLflow keeps it in its bin) and made anew, so the store never shows values that no file holds.

    Args:
        record: The run.
        uri: Database or server.

    Returns:
        Where the run stands now.

    Raises:
        OutdatedRecordError: If an artifact is not the file that was recorded.
        ValueError: If ``uri`` cannot keep runs safely.
        mlflow.exceptions.MlflowException: If the store does not answer or refuses.
    """
    for artifact in record.artifacts:
        if not artifact.path.is_file() or file_hash(artifact.path) != artifact.sha256:
            raise OutdatedRecordError(artifact)
    with writing(uri):
        client = connect(uri)  # opens the database, and makes it if need be: under the lock as well
        experiment = experiment_id(client, uri, record.experiment, record.about)
        if is_server(uri):
            for run in runs_of(client, experiment, live_key(record.key)):
                client.delete_run(run.info.run_id)
        return Place(str(experiment), _bring(client, experiment, record, parent=None))


def experiment_id(client: Any, uri: str, name: str, about: str) -> str:
    """Identifier of the experiment ``name``, made with its description, or taken out of the bin if need be."""
    from mlflow.exceptions import MlflowException

    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return client.create_experiment(name, artifact_location(uri, name), {"mlflow.note.content": about})
        except MlflowException:
            found = client.get_experiment_by_name(name)  # another job may have made it in between
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return found.experiment_id


def runs_of(client: Any, experiment: str, key: str, parent: str | None = None) -> list[Any]:
    """Runs of an experiment, not deleted, with this key and, if given, this parent."""
    query = f"tags.`{KEY}` = '{key}'" + (f" AND tags.`{PARENT}` = '{parent}'" if parent else "")
    return list(client.search_runs([experiment], query, max_results=100))


def _bring(client: Any, experiment: str, record: RunRecord, parent: str | None) -> str:
    """Find or make the run of ``record``, fill it, then its children, and close it last; returns its identifier."""
    run = _find(client, experiment, record, parent)
    if run is not None and run.info.status == record.status:
        return str(run.info.run_id)
    if run is None:
        tags = {**record.tags, KEY: record.key, CONTENT: record.content} | ({PARENT: parent} if parent else {})
        run = client.create_run(experiment, start_time=record.start, tags=tags, run_name=record.name)
    run_id = run.info.run_id
    _log_values(client, run_id, record)
    for child in record.children:
        _bring(client, experiment, child, run_id)
    if record.artifacts and run.data.tags.get(ARTIFACTS) != record.artifacts_content:
        for artifact in record.artifacts:
            client.log_artifact(run_id, str(artifact.path), artifact.folder or None)
        client.set_tag(run_id, ARTIFACTS, record.artifacts_content)
    client.set_terminated(run_id, record.status, record.end)
    return str(run_id)


def _find(client: Any, experiment: str, record: RunRecord, parent: str | None) -> Any:
    """The run with the record's key and content, if any; all others of that key are deleted with their children."""
    kept = None
    for run in runs_of(client, experiment, record.key, parent):
        if kept is None and run.data.tags.get(CONTENT) == record.content:
            kept = run
            continue
        for child in client.search_runs([experiment], f"tags.`{PARENT}` = '{run.info.run_id}'"):
            client.delete_run(child.info.run_id)
        client.delete_run(run.info.run_id)
    return kept


def _log_values(client: Any, run_id: str, record: RunRecord) -> None:
    """Send params and metrics in as few calls as MLflow allows; values that are there already stay single."""
    from mlflow.entities import Metric, Param

    metrics = [Metric(point.key, point.value, point.timestamp, point.step) for point in record.metrics]
    params = [Param(name, value) for name, value in record.params.items()]
    while metrics or params:
        client.log_batch(run_id, metrics[:_MAX_METRICS], params[:_MAX_PARAMS])
        metrics, params = metrics[_MAX_METRICS:], params[_MAX_PARAMS:]
