"""MLflow's own application, with what its checks leave open closed. `mlflow server --app-name leakbound` serves it.

MLflow checks passwords and the names of hosts. But its default server also mounts an assistant that executes
commands, which the Flask application under gunicorn lacks. It lets clients choose places of artifacts on the
server's disk, trusts the pages of all other servers of this machine, and can check the permission for one run
and change another.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flask import Flask, Response, request

_CREATED = re.compile(r"/(?:ajax-)?api/[23]\.0/mlflow/experiments/create")
_CHANGED = re.compile(r"/(?:ajax-)?api/[23]\.0/mlflow/runs/.+")
_RUN = ("run_id", "runId", "run_uuid", "runUuid")  # all names that MLflow accepts for the run of a request


def with_passwords() -> Flask:
    """Make the application for users with an account in MLflow's list."""
    from mlflow.server import app
    from mlflow.server.auth import create_app

    return _guarded(create_app(app))


def without_passwords() -> Flask:
    """Make the application for everybody who can reach the server."""
    from mlflow.server import app

    return _guarded(app)


def _guarded(app: Flask) -> Flask:
    """Let MLflow's application check each request first, and read only its own folder.

    Raises:
        ValueError: If MLflow's default server runs it.
    """
    from mlflow.server import handlers

    if os.environ.get("_MLFLOW_SGI_NAME") != "gunicorn":
        raise ValueError(
            "mlflow server: give --gunicorn-opts, or it mounts an assistant that executes commands"
        )
    opening = "_get_artifact_repository_for_uri"  # the only function by which MLflow opens artifacts of a run
    setattr(handlers, opening, _only_inside(getattr(handlers, opening)))
    app.before_request_funcs.setdefault(None, []).insert(0, _check)
    return app


def _check() -> Response | None:
    """Refuse a request from another page, with a place on the server's disk, or with two runs."""
    if _from_elsewhere():
        return Response("Refused: sent by another page", 403, mimetype="text/plain")
    if _CREATED.fullmatch(request.path) and _requests_location():
        return Response("artifact_location: must be absent, the server decides", 400, mimetype="text/plain")
    if _CHANGED.fullmatch(request.path) and _names_several_runs():
        return Response("run_id: another name of it holds another run", 400, mimetype="text/plain")
    return None


def _from_elsewhere() -> bool:
    """Return True if a browser sends the request for another server's page, unless it opens the first page."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return True
    opened = request.method == "GET" and request.path == "/"
    return not opened and request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


def _requests_location() -> bool:
    """Return True if a new experiment requests a place, read as MLflow's own handler reads it."""
    from mlflow.protos.service_pb2 import CreateExperiment
    from mlflow.server.handlers import _get_request_message

    return bool(_get_request_message(CreateExperiment()).artifact_location)


def _names_several_runs() -> bool:
    """Return True if MLflow could check the permission for the run ``run_uuid`` and change the run ``runId``."""
    body = request.get_json(force=True, silent=True)
    runs = [body[name] for name in _RUN if name in body] if isinstance(body, dict) else []
    return any(run != runs[0] for run in runs)


def _only_inside(opened: Callable[[str], Any]) -> Callable[[str], Any]:
    """Restrict the function that opens a run's artifacts to places in the server's folder, after following links.

    A database may hold experiments of an earlier server that let clients choose places.
    """
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import PERMISSION_DENIED
    from mlflow.server.constants import ARTIFACTS_DESTINATION_ENV_VAR

    folder = Path(os.environ[ARTIFACTS_DESTINATION_ENV_VAR]).resolve()

    def checked(uri: str) -> Any:
        place = urlsplit(uri)
        if place.scheme not in ("", "file") or not Path(unquote(place.path)).resolve().is_relative_to(folder):
            raise MlflowException("The run's artifacts are outside the server's folder", PERMISSION_DENIED)
        return opened(uri)

    return checked
