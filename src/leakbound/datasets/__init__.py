"""Readers of original images, and the disjoint splits of members, non-members and attackers."""

from leakbound.datasets.canaries import Canaries as Canaries
from leakbound.datasets.records import RawDataset as RawDataset
from leakbound.datasets.records import may_be_published as may_be_published
from leakbound.datasets.splits import Drawing as Drawing
from leakbound.datasets.splits import ImageDataset as ImageDataset
from leakbound.datasets.splits import Parts as Parts
from leakbound.datasets.splits import Split as Split
from leakbound.datasets.splits import prepare as prepare
from leakbound.records.records import DatasetError as DatasetError
from leakbound.records.records import Records as Records
