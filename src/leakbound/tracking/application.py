"""MLflow's Flask application, reduced to what runs need. `mlflow server --app-name leakbound` serves it.

MLflow's own application trusts every page that this machine serves to a browser, lets clients choose places
of artifacts on the server's disk, and calls addresses that clients name. Here a request is refused unless it
is for one of the few routes that jobs and pages use, comes from the server's own pages or from no page, and
leaves the choice of places to the server.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from flask import Flask, Response, abort, request

ARTIFACTS = "LEAKBOUND_TRACKING_ARTIFACTS"
"""Environment variable with the folder outside of which no artifact is read, whatever the database says."""
_MOST = 32 * 2**20  # bytes of a request other than a file, enough for MLflow's largest batch
_API = re.compile(r"/(?:ajax-)?api/[23]\.0/mlflow/(.+)")
_FILES = re.compile(r"/(?:ajax-)?api/2\.0/mlflow-artifacts/artifacts(?:/<path:artifact_path>)?")
_RUN = ("run_id", "runId", "run_uuid", "runUuid")
"""All names that MLflow accepts for the run of a request."""
_PAGES = {"/", "/static-files/<path:path>", "/health", "/version", "/get-artifact"}
_READ = {
    "artifacts/list",
    "experiments/get",
    "experiments/get-by-name",
    "experiments/search",
    "experiments/search-datasets",
    "logged-models/search",
    "metrics/get-history",
    "metrics/get-history-bulk",
    "metrics/get-history-bulk-interval",
    "model-versions/search",
    "registered-models/search",
    "runs/get",
    "runs/search",
    "server-info",
    "ui-telemetry",
}
_WRITTEN = {
    "experiments/create",
    "experiments/delete",
    "experiments/delete-experiment-tag",
    "experiments/restore",
    "experiments/set-experiment-tag",
    "experiments/update",
    "runs/create",
    "runs/delete",
    "runs/delete-tag",
    "runs/log-batch",
    "runs/log-inputs",
    "runs/log-metric",
    "runs/log-parameter",
    "runs/restore",
    "runs/set-tag",
    "runs/update",
}


def with_passwords() -> Flask:
    """Make the application for users with an account in MLflow's list."""
    from mlflow.server import app
    from mlflow.server.auth import create_app

    return guarded(create_app(app))


def without_passwords() -> Flask:
    """Make the application for everybody who can reach the server."""
    from mlflow.server import app

    return guarded(app)


def guarded(app: Flask) -> Flask:
    """Let MLflow's application check each request first, and read only its own folder."""
    from mlflow.server import handlers

    opening = "_get_artifact_repository_for_uri"  # the only function by which MLflow opens artifacts of a run
    setattr(handlers, opening, _only_inside(getattr(handlers, opening)))
    app.before_request_funcs.setdefault(None, []).insert(0, lambda: _check(app))
    return app


def _check(app: Flask) -> Response | None:
    """Refuse a request for another route, from another page, or with a place on the server's disk."""
    if _from_elsewhere():
        return Response("Refused: sent by another page", 403, mimetype="text/plain")
    rule = request.url_rule
    if rule is None or not _served(app, rule.rule, rule.endpoint):
        abort(404)
    if request.method != "PUT":
        request.max_content_length = _MOST
    called = _called(rule.rule)
    if called == "experiments/create" and _requests_location():
        return Response("artifact_location: must be absent, the server decides", 400, mimetype="text/plain")
    if called in _WRITTEN and _names_several_runs():
        return Response("run_id: another name of it holds another run", 400, mimetype="text/plain")
    return None


def _from_elsewhere() -> bool:
    """Return True if a browser sends the request for another server's page, unless it opens the first page."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return True
    opened = request.method == "GET" and request.path == "/"
    return not opened and request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin")


def _called(rule: str) -> str:
    """Return a route without its prefix, of which MLflow has several."""
    api = _API.fullmatch(rule)
    return api.group(1) if api else rule


def _served(app: Flask, rule: str, endpoint: str) -> bool:
    """Return True for routes of pages, runs, files of runs, and accounts if the server has them."""
    called = _called(rule)
    if called == "/graphql":
        return request.method == "POST"
    if rule in _PAGES or _FILES.fullmatch(rule):
        return request.method in ("GET", "HEAD", "PUT")
    if request.method == "OPTIONS":
        return False
    return called in _READ | _WRITTEN or app.view_functions[endpoint].__module__.startswith(
        "mlflow.server.auth"
    )


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

    folder = Path(os.environ[ARTIFACTS]).resolve()

    def checked(uri: str) -> Any:
        place = urlsplit(uri)
        if place.scheme not in ("", "file") or not Path(unquote(place.path)).resolve().is_relative_to(folder):
            raise MlflowException("The run's artifacts are outside the server's folder", PERMISSION_DENIED)
        return opened(uri)

    return checked
