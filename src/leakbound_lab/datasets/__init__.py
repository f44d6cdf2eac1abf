"""Readers of original images, and the disjoint splits of members, non-members and attackers."""

from leakbound.records.records import DatasetError as DatasetError
from leakbound.records.records import Records as Records
from leakbound_lab.datasets.canaries import Canaries as Canaries
from leakbound_lab.datasets.records import RawDataset as RawDataset
from leakbound_lab.datasets.records import may_be_published as may_be_published
from leakbound_lab.datasets.splits import Drawing as Drawing
from leakbound_lab.datasets.splits import ImageDataset as ImageDataset
from leakbound_lab.datasets.splits import Parts as Parts
from leakbound_lab.datasets.splits import Split as Split
from leakbound_lab.datasets.splits import prepare as prepare
