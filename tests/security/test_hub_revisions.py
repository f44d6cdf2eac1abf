"""What the hub serves under one name can change; only the commit that the configuration names is read."""

import datasets
import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from leakbound_lab.config.data import DatasetConfig
from leakbound_lab.datasets import DatasetError
from leakbound_lab.datasets.images import HubSource, ImageReader

COMMIT = "0123456789" * 4


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A hub of one repository, which answers with what was pushed to it last, unless it is asked for a commit."""
    monkeypatch.delenv("LEAKBOUND_DATA", raising=False)
    asked: list[str | None] = []
    commits: dict[str | None, datasets.DatasetDict] = {}

    def push(commit: str, value: int, train: int = 1438, test: int = 359) -> None:
        features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
        picture = Image.fromarray(np.full((8, 8), value, np.uint8))
        commits[commit] = commits[None] = datasets.DatasetDict()
        for split, count in (("train", train), ("test", test)):
            held = {"image": [picture] * count, "label": [row % 2 for row in range(count)]}
            commits[commit][split] = datasets.Dataset.from_dict(held, features)

    def load_dataset(repository, configuration=None, *, split, revision=None):
        asked.append(revision)
        return commits[revision][split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    load_dataset.push, load_dataset.asked = push, asked
    return load_dataset


READER = ImageReader("digits", HubSource("owner/digits"))


def test_pictures_pushed_later_are_not_read(hub):
    hub.push(COMMIT, 7)
    hub.push("f" * 40, 200)  # somebody else got hold of the repository
    raw = READER("digits", DatasetConfig(revision=COMMIT))
    assert set(raw.train.decode(np.arange(3)).ravel()) == {7}
    assert hub.asked == [COMMIT, COMMIT]


def test_hub_is_not_asked_without_a_commit_and_the_message_says_where_it_stands(hub):
    hub.push(COMMIT, 7)
    for source in ("auto", "hub"):
        with pytest.raises(DatasetError, match=r"datasets\.digits\.revision: is missing.*LEAKBOUND_DATA"):
            READER("digits", DatasetConfig(source=source))
    assert hub.asked == []


@pytest.mark.parametrize("revision", ["main", "0123456", "A" * 40])
def test_name_that_can_be_moved_is_no_commit(revision):
    with pytest.raises(ValidationError, match="should match pattern"):
        DatasetConfig(revision=revision)


@pytest.mark.parametrize(("train", "test"), [(1439, 359), (1438, 358)])
def test_splits_of_other_sizes_are_refused(hub, train, test):
    hub.push(COMMIT, 7, train, test)
    with pytest.raises(DatasetError, match=rf"has ({train}|{test}) images at revision {COMMIT}, known are (1438|359)"):
        READER("digits", DatasetConfig(revision=COMMIT))
