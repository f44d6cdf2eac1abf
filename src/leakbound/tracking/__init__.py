"""MLflow as a view of finished jobs. Files remain the truth, and any store can be filled again from them."""

from leakbound.tracking.live_curves import LiveCurves
from leakbound.tracking.markers import Outcome, log_run, send_pending
from leakbound.tracking.run_description import channel_facts, describe_figures, describe_run
from leakbound.tracking.run_facts import RunFacts
from leakbound.tracking.run_records import Artifact, Point, RunRecord
from leakbound.tracking.sending import OutdatedRecordError, pages, push
from leakbound.tracking.store import check_uri, upgrade_store

__all__ = [
    "Artifact",
    "LiveCurves",
    "Outcome",
    "OutdatedRecordError",
    "Point",
    "RunFacts",
    "RunRecord",
    "channel_facts",
    "check_uri",
    "describe_figures",
    "describe_run",
    "log_run",
    "pages",
    "push",
    "send_pending",
    "upgrade_store",
]
