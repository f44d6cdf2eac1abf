"""Replace one run of a store by a record, and note in a file whether the store accepted it."""

import json
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from leakbound.storage import write_json
from leakbound_lab.tracking.measurements import BRIEF, HEADLINES, STATED
from leakbound_lab.tracking.run_records import RunRecord
from leakbound_lab.tracking.store import ARTIFACTS, connect, failures, is_server, reason, sqlite_file, writing

KEY = "leakbound.key"
PARENT = "mlflow.parentRunId"
VIEW = "leakbound"
"""Share key of the view with which the runs of an experiment open."""
_COLUMNS = [f"tags.`{name}`" for name in ("defense", "level")] + [
    f"metrics.`{BRIEF}/{name}`" for name in (*HEADLINES, *STATED)
]
_VIEW = {
    "orderByKey": "tags.`order`",
    "orderByAsc": True,
    "searchFilter": "tags.replica IS NULL",
    "selectedColumns": _COLUMNS,
    "columnOrder": _COLUMNS,
    "columnWidths": {
        column: 110 if column.startswith("tags") else 40 + 7 * len(column.removeprefix("metrics."))
        for column in _COLUMNS
    },
}
_KIND = {  # without it MLflow shows pages for chatbots, and the columns that each user last chose
    "mlflow.experimentKind": "custom_model_development",
    f"mlflow.sharedViewState.{VIEW}": json.dumps(_VIEW),
}
_MAX_METRICS = 900  # MLflow takes 1,000 entities a call, and 100 of them may be params
_MAX_PARAMS = 100


def push(record: RunRecord, uri: str) -> dict[str, str]:
    """Replace the run of a record in the store, which then contains it once, with exactly the record's values.

    A run is found by its key. The one that is there, whole or broken off by a kill, moves to MLflow's bin.

    Args:
        record: The run.
        uri: Database or server.

    Returns:
        Identifiers of the run in the store, ``experiment_id`` and ``run_id``.

    Raises:
        OSError: If an artifact is missing.
        mlflow.exceptions.MlflowException: If the store does not answer or refuses.
    """
    with writing(uri):
        client = connect(uri)
        experiment = _experiment_id(client, uri, record.experiment, record.about)
        for run in runs_with(client, experiment, KEY, record.key):
            for child in runs_with(client, experiment, PARENT, run.info.run_id):
                client.delete_run(child.info.run_id)
            client.delete_run(run.info.run_id)
        return {"experiment_id": str(experiment), "run_id": _make(client, experiment, record, uri)}


def _make(client: Any, experiment: str, record: RunRecord, uri: str, parent: str | None = None) -> str:
    """Make the run of a record with its values, files and children, close it, and return its identifier."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    tags = {**record.tags, KEY: record.key} | ({PARENT: parent} if parent else {})
    run = client.create_run(experiment, start_time=record.start, tags=tags, run_name=record.name)
    run_id = str(run.info.run_id)
    _send_values(client, run_id, record)
    if record.data:
        name, digest, context = record.data
        dataset = Dataset(name, digest, "leakbound", f"{name}, prepared")
        client.log_inputs(run_id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])
    for child in record.children:
        _make(client, experiment, child, uri, run_id)
    if record.artifacts:
        _send_files(run.info.artifact_uri, record, uri)
    client.set_terminated(run_id, record.status, record.end)
    return run_id


def _send_files(place: str, record: RunRecord, uri: str) -> None:
    """Send a run's files. A server must accept them itself.

    Raises:
        mlflow.exceptions.MlflowException: If it names a folder of this machine or another server, or refuses
            a file.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    if is_server(uri) and not _is_on(uri, place):
        raise MlflowException(
            f"the server names {place!r}, on this machine or another, for a run's files: it must serve them itself "
            "(mlflow server --serve-artifacts)",
            PERMISSION_DENIED,
        )
    repository = get_artifact_repository(place, tracking_uri=uri)  # of the place that was checked
    for path, folder in record.artifacts:
        if is_server(uri):
            _put(repository.artifact_uri, path, folder)
        else:
            repository.log_artifact(str(path), folder or None)


def _is_on(uri: str, place: str) -> bool:
    """Return True for a server's own folder, read as MLflow reads it. False for what MLflow cannot read."""
    with suppress(ValueError):
        parts = urlsplit(place)
        return parts.scheme == "mlflow-artifacts" and parts.netloc in ("", urlsplit(uri).netloc)
    return False


def _put(home: str, path: Path, folder: str) -> None:
    """Send a file to a server.

    MLflow's own function sends large files to any address that the server names, and regards a redirection
    that it does not follow as success.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.utils.credentials import get_default_host_creds
    from mlflow.utils.rest_utils import augmented_raise_for_status, http_request

    with path.open("rb") as content:
        name = "/".join(("", *filter(None, (folder, path.name))))
        answer = http_request(get_default_host_creds(home), name, "PUT", data=content, allow_redirects=False)
    augmented_raise_for_status(answer)
    if answer.status_code != HTTPStatus.OK:
        raise MlflowException(
            f"the server answers {answer.status_code} to a file, and redirections are not followed"
        )


def _experiment_id(client: Any, uri: str, name: str, about: str) -> str:
    """Return the identifier of an experiment. It is made, or restored from the bin, if necessary.

    Raises:
        mlflow.exceptions.MlflowException: If the database was copied, so that files would be written next to the
            one that it was copied from.
    """
    database = sqlite_file(uri)
    artifacts = database and database.parent / ARTIFACTS / name  # other stores choose the place themselves
    experiment = client.get_experiment_by_name(name)
    if experiment is None:
        return client.create_experiment(
            name, artifacts and artifacts.as_uri(), {"mlflow.note.content": about, **_KIND}
        )
    if artifacts and (elsewhere := _other_place(experiment.artifact_location, name, artifacts)):
        from mlflow.exceptions import MlflowException

        raise MlflowException(
            f"{database} was copied or moved: it keeps the files of {name} in {elsewhere}, so delete it "
            f"and {ARTIFACTS} here, then call leakbound sync --everything"
        )
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(experiment.experiment_id)
    for tag, value in _KIND.items():  # an earlier version may have made it with another view
        if experiment.tags.get(tag) != value:
            client.set_experiment_tag(experiment.experiment_id, tag, value)
    return experiment.experiment_id


def _other_place(location: str, name: str, artifacts: Path) -> str | None:
    """Return the folder of artifacts next to another database, None if an experiment's files lie anywhere else."""
    parts = urlsplit(location)
    inside = f"/{ARTIFACTS}/{name}"
    folder = unquote(parts.path).removesuffix(inside)
    if parts.scheme != "file" or not unquote(parts.path).endswith(inside):
        return None
    here = artifacts.as_posix().removesuffix(inside)
    return None if Path(folder).is_dir() and Path(folder).samefile(here) else f"{folder}/{ARTIFACTS}"


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


def runs_with(client: Any, experiment: str, tag: str, value: str) -> list[Any]:
    """Find the runs of an experiment with a tag. Deleted ones are left out."""
    return list(client.search_runs([experiment], f"tags.`{tag}` = '{value}'", max_results=1000))


def _send_values(client: Any, run_id: str, record: RunRecord) -> None:
    """Send metrics and params in as few calls as MLflow allows."""
    from mlflow.entities import Metric, Param

    metrics = [Metric(point.key, point.value, point.timestamp, point.step) for point in record.metrics]
    settings = [Param(name, value) for name, value in record.params.items()]
    while metrics or settings:
        client.log_batch(run_id, metrics[:_MAX_METRICS], settings[:_MAX_PARAMS])
        del metrics[:_MAX_METRICS], settings[:_MAX_PARAMS]


class Outcome(NamedTuple):
    """Outcome for one record, as its marker keeps it.

    Attributes:
        status: ``stored``, or ``pending`` if the store did not accept it.
        reason: Reason why it is not stored.
        place: Identifiers of the run in the store, if it is stored.
    """

    status: str
    reason: str = ""
    place: dict[str, str] | None = None


def log_run(record: RunRecord, uri: str, marker: Path) -> Outcome:
    """Push a record and write the outcome to its marker. An unavailable store is no error.

    Args:
        record: The run.
        uri: Database or server.
        marker: File to write.
    """
    try:
        outcome = Outcome("stored", place=push(record, uri))
    except failures() as error:
        outcome = Outcome("pending", reason(error))
    write_json(marker, outcome._asdict())
    return outcome
