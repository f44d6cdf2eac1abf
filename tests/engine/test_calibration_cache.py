"""Calibrations that are kept: found again for equal records and targets alone, whole, and for nobody else to read."""

import numpy as np
import pytest
from gaussians import engine_of, gaussian

from leakbound import ChannelEngine, GuaranteeError, Leakage
from leakbound.engine import targets

PUBLIC = gaussian(60)


@pytest.fixture
def calibrations(monkeypatch):
    """Counts calibrations that are made."""
    made = []
    calibrate = targets.Target.calibrate

    def counted(self, *given):
        made.append(self)
        return calibrate(self, *given)

    monkeypatch.setattr(targets.Target, "calibrate", counted)
    return made


def kept(folder, data=PUBLIC, target=None, **given) -> ChannelEngine:
    return engine_of(target, data, cache=folder, **given)


def test_equal_calibrations_are_made_once(tmp_path, calibrations):
    first, second = kept(tmp_path), kept(tmp_path, data=PUBLIC.copy())
    assert len(calibrations) == 1
    np.testing.assert_array_equal(first.calibration.ratios, second.calibration.ratios)
    assert str(first) == str(second)
    (entry,) = tmp_path.iterdir()
    assert entry.stat().st_mode & 0o777 == 0o600
    for other in (
        {"data": gaussian(61)},
        {"target": Leakage(2.0, uses=3)},
        {"shape": "personalized", "weights": np.arange(1.0, 5.0)},
    ):
        before = len(calibrations)
        for _ in range(2):
            kept(tmp_path, **other)
        assert len(calibrations) == before + 1


def test_a_damaged_or_exchanged_entry_is_made_again(tmp_path, calibrations):
    kept(tmp_path)
    (entry,) = tmp_path.iterdir()
    content = entry.read_bytes()
    entry.write_bytes(content[:-8] + bytes(8))
    kept(tmp_path)
    assert len(calibrations) == 2
    weak = tmp_path / "weak"
    kept(weak, target=Leakage(30.0, uses=3))
    next(weak.iterdir()).replace(entry)
    kept(tmp_path)
    assert len(calibrations) == 4


def test_statistics_of_private_records_are_kept_where_their_owner_says_so_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(GuaranteeError, match="name a folder of yours"):
        kept(True, calibrate_to_own=True)
    kept(False)
    assert not (tmp_path / "cache").exists()
    kept(True)
    folder = tmp_path / "cache/leakbound/calibrations"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len([*folder.iterdir()]) == 1
    kept(tmp_path / "own", calibrate_to_own=True)
    assert len([*(tmp_path / "own").iterdir()]) == 1
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(GuaranteeError, match="others can write"):
        kept(tmp_path / "open")
