"""Content of one MLflow run as a plain value, which can be kept as JSON until a store accepts it."""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from leakbound.storage import file_hash
from leakbound.storage.provenance import settings_hash

RunStatus = Literal["FINISHED", "FAILED"]


class Point(NamedTuple):
    """One value of a metric. ``timestamp`` is in milliseconds since 1970 and comes from the job's files."""

    key: str
    step: int
    timestamp: int
    value: float


@dataclass(frozen=True)
class Artifact:
    """A file that belongs to a run.

    Attributes:
        path: Path of the file.
        folder: Folder below the run's artifacts, empty for the top.
        sha256: Hash of its bytes when it was recorded.
    """

    path: Path
    folder: str
    sha256: str

    @classmethod
    def of(cls, path: Path, folder: str = "") -> "Artifact":
        """Describe the file at ``path`` as it is now."""
        return cls(path, folder, file_hash(path))


@dataclass(frozen=True)
class DataInput:
    """Dataset that a run read.

    Attributes:
        name: Name of the dataset.
        digest: Beginning of the SHA-256 of its prepared images. MLflow keeps 36 digits.
        context: Use that the run made of it, e.g. ``training``.
    """

    name: str
    digest: str
    context: str


@dataclass(frozen=True)
class RunRecord:
    """Content of one MLflow run.

    Attributes:
        key: Permanent name, unique within the experiment.
        experiment: Name of the experiment.
        name: Name in the list of runs.
        start: Milliseconds since 1970.
        end: Milliseconds since 1970.
        about: Description of the experiment, one sentence.
        status: FAILED for a run that diverged.
        params: Name to text.
        tags: Name to text.
        metrics: All values, of all steps.
        artifacts: Files to upload.
        data: Datasets that it read.
        children: Runs nested below, one for each replica.
    """

    key: str
    experiment: str
    name: str
    start: int
    end: int
    about: str = ""
    status: RunStatus = "FINISHED"
    params: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[Point, ...] = ()
    artifacts: tuple[Artifact, ...] = ()
    data: tuple[DataInput, ...] = ()
    children: "tuple[RunRecord, ...]" = ()

    @property
    def content(self) -> str:
        """SHA-256 of the whole content, artifacts by their bytes. Equal content is never sent twice."""
        return settings_hash(
            {
                **self.to_dict(Path("/")),
                "artifacts": self.artifacts_content,
                "children": [child.content for child in self.children],
            }
        )

    @property
    def artifacts_content(self) -> str:
        """SHA-256 over names and bytes of the artifacts."""
        return settings_hash(sorted([item.folder, item.path.name, item.sha256] for item in self.artifacts))

    def to_dict(self, folder: Path) -> dict[str, Any]:
        """Return plain values for JSON: metrics by name, artifacts as paths relative to ``folder``."""
        metrics: dict[str, list[list[float]]] = defaultdict(list)
        for point in self.metrics:
            metrics[point.key].append([point.step, point.timestamp, point.value])
        artifacts = [
            {**vars(item), "path": Path(os.path.relpath(item.path, folder)).as_posix()}
            for item in self.artifacts
        ]
        return {
            **vars(self),
            "metrics": dict(metrics),
            "artifacts": artifacts,
            "data": [vars(item) for item in self.data],
            "children": [child.to_dict(folder) for child in self.children],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any], folder: Path) -> "RunRecord":
        """Make the record that :meth:`to_dict` wrote.

        Raises:
            KeyError: If a value is missing.
            TypeError: If there are other values, or one has another form.
        """
        metrics = tuple(
            Point(key, int(step), int(timestamp), float(value))
            for key, points in values["metrics"].items()
            for step, timestamp, value in points
        )
        artifacts = tuple(
            Artifact(**{**item, "path": Path(os.path.normpath(folder / item["path"]))})
            for item in values["artifacts"]
        )
        return cls(
            **{
                **values,
                "metrics": metrics,
                "artifacts": artifacts,
                "data": tuple(DataInput(**item) for item in values["data"]),
                "children": tuple(cls.from_dict(child, folder) for child in values["children"]),
            }
        )
