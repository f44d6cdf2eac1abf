"""Engines that are saved and loaded: the same guarantee without the public records, and nothing that was changed."""

import json
import warnings

import numpy as np
import pytest
import torch
from gaussians import RANGE, batches, by_record, engine_of, gaussian, private
from safetensors import safe_open
from safetensors.numpy import save_file

from leakbound import Capacity, ChannelEngine, GuaranteeError, Identification, Leakage, Reconstruction
from leakbound.engine import saved
from leakbound.engine.saved import UncountedWarning

TARGETS = (Capacity(2.0), Leakage(3.0, uses=3), Reconstruction(0.2, uses=2), Identification(0.1, among=100, uses=2))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "engine.safetensors"


def loaded(path, **given) -> ChannelEngine:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UncountedWarning)
        return ChannelEngine.load(path, **given)


@pytest.mark.parametrize("shape", ["natural", "white", "least_power", "rate_distortion", "personalized"])
def test_a_loaded_engine_releases_what_the_saved_one_does(path, shape):
    weights = np.arange(1.0, 5.0) if shape == "personalized" else None
    engine = engine_of(shape=shape, weights=weights, seed=5, classes=20)
    engine.save(path)
    other = ChannelEngine.load(path)
    assert str(other) == str(engine)
    first, second = (by_record(one.protect(batches(private()))) for one in (engine, other))
    assert all(torch.equal(row, second[record]) for record, row in first.items())


@pytest.mark.parametrize("target", TARGETS, ids=lambda one: type(one).__name__)
def test_targets_of_all_kinds_come_back(path, target):
    engine = engine_of(target)
    engine.save(path)
    other = loaded(path)
    assert other.target == target
    assert type(other.target) is type(target)
    np.testing.assert_array_equal(other.calibration.ratios, engine.calibration.ratios)
    assert other.provenance["records"] == 400
    assert "torch" in other.provenance["versions"]


def test_calibration_records_are_recognised_and_the_place_of_the_input_stays(path):
    records = [{"x": one, "y": 0} for one in gaussian(400)]
    ChannelEngine.for_data(records, TARGETS[1], key="x", value_range=RANGE).save(path)
    with pytest.raises(GuaranteeError, match="calibrated on records that it shall protect"):
        loaded(path).protect(records[:30])
    assert loaded(path).protect([{"x": one, "y": 0} for one in gaussian(30, seed=7)])[0]["y"] == 0


def test_nothing_secret_is_saved_and_nobody_else_may_read_it(path, tmp_path):
    engine = engine_of(ledger=tmp_path / "uses.ledger")
    list(engine.protect(batches(private())))
    engine.save(path)
    assert engine.own_capacity is not None
    assert path.stat().st_mode & 0o777 == 0o600
    content = path.read_bytes()
    assert engine._counter.identity.key not in content
    identity = engine._counter.identity
    assert not any(one in content for one in identity.digests(identity.contents(private().tensors[0])))
    assert not any(row.numpy().tobytes() in content for row in private().tensors[0])
    assert str(tmp_path).encode() not in content
    with safe_open(path, "numpy") as file:
        facts = json.loads(json.loads(file.metadata()["strings"])["facts"])
    assert sorted(facts) == ["classes", "double", "key", "labels", "layout", "ledger", "noise", "seed", "target"]
    assert list(tmp_path.glob(".engine*")) == []


def test_a_private_calibration_and_a_used_one_are_not_saved(path):
    with pytest.raises(GuaranteeError, match="calibrate to public records to save it"):
        engine_of(calibrate_to_own=True).save(path)
    engine = engine_of()
    next(iter(engine.protect(batches(private()))))
    with pytest.raises(GuaranteeError, match="would count from zero"):
        engine.save(path)
    assert not path.exists()


def test_loading_twice_is_no_second_budget_with_a_ledger(path, tmp_path):
    ledger = tmp_path / "uses.ledger"
    engine_of(ledger=ledger).save(path)
    for uses in (1, 2, 3):
        engine = ChannelEngine.load(path, ledger=ledger)
        list(engine.protect(batches(private())))
        assert engine.uses["train"].tolist() == [uses] * 20
    with pytest.raises(GuaranteeError, match="3 planned uses"):
        next(iter(ChannelEngine.load(path, ledger=ledger).protect(batches(private()))))
    with pytest.raises(GuaranteeError, match="counts in a ledger on disk"):
        ChannelEngine.load(path)
    with pytest.raises(GuaranteeError, match="would forget the uses"):
        ChannelEngine.load(path, ledger=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    engine_of(ledger=tmp_path / "other")
    with pytest.raises(GuaranteeError, match="is not the one that"):
        ChannelEngine.load(path, ledger=tmp_path / "other")


def test_loading_without_counts_says_so_and_a_state_goes_on(path):
    engine = engine_of()
    engine.save(path)
    with pytest.warns(UncountedWarning, match="counts from zero"):
        ChannelEngine.load(path)
    list(engine.protect(batches(private())))
    other = ChannelEngine.load(path, state=engine.state_dict())
    loader = other.protect(batches(private()))
    assert other.remaining == 2
    assert len([*loader, *loader]) == 8
    with pytest.raises(GuaranteeError, match="3 planned uses"):
        next(iter(loader))


def changed(path, change) -> None:
    """Change arrays, strings and facts of a file, with a checksum that fits."""
    with safe_open(path, "numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        strings = json.loads(file.metadata()["strings"])
    facts = json.loads(strings["facts"])
    change(arrays, strings, facts)
    strings["facts"] = json.dumps(facts)
    strings.pop("checksum")
    strings["checksum"] = saved._checksum(arrays, strings)
    save_file(arrays, path, {"strings": json.dumps(strings)})


@pytest.mark.parametrize(
    ("shape", "change", "message"),
    [
        ("natural", lambda arrays, strings, facts: arrays["channel.variances"].__imul__(0.5), "does not meet"),
        ("natural", lambda arrays, strings, facts: arrays["moments.covariance"].__imul__(0.5), "inconsistent"),
        ("white", lambda arrays, strings, facts: arrays["spectrum.basis"].__imul__(0.5), "inconsistent"),
        ("natural", lambda arrays, strings, facts: arrays.pop("digests"), "inconsistent"),
        ("natural", lambda arrays, strings, facts: facts["target"].update(nats=2.0), "does not meet"),
        ("natural", lambda arrays, strings, facts: facts["layout"].update(shape=[5]), "differ in size"),
        ("natural", lambda arrays, strings, facts: facts.pop("ledger"), "not those of an engine"),
        ("natural", lambda arrays, strings, facts: strings.update(format="2"), "this version reads 1"),
    ],
)
def test_a_forged_file_is_refused_though_its_checksum_fits(path, shape, change, message):
    engine_of(shape=shape).save(path)
    changed(path, change)
    with pytest.raises(GuaranteeError, match=message):
        loaded(path)


def test_any_changed_byte_is_refused(path, tmp_path):
    engine_of().save(path)
    content = path.read_bytes()
    places = np.random.default_rng(0).integers(0, len(content), 60)
    for place in places.tolist():
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(GuaranteeError):
            loaded(path)
    for wrong in (content[:-1], b"", b"hello"):
        path.write_bytes(wrong)
        with pytest.raises(GuaranteeError):
            loaded(path)
    save_file({"x": np.zeros(3)}, path)
    with pytest.raises(GuaranteeError, match="is no leakbound engine"):
        loaded(path)
    with pytest.raises(GuaranteeError, match=r"engine\.none"):
        loaded(tmp_path / "engine.none")
