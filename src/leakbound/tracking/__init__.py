"""MLflow as a window on finished jobs: the truth stays in their files, and any store can be filled from them again."""

from leakbound.tracking.description import RunFacts, channel_facts, describe, describe_figures
from leakbound.tracking.live import LiveCurves
from leakbound.tracking.markers import Outcome, log, sync
from leakbound.tracking.records import Artifact, Point, RunRecord
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
    "describe",
    "describe_figures",
    "log",
    "pages",
    "push",
    "sync",
    "upgrade_store",
]
