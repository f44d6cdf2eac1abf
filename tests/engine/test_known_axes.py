"""Channels whose axes a ledger knows: their precisions add, exactly, against determinants of NumPy's own."""

import math
import sqlite3
from contextlib import closing

import numpy as np
import pytest
import torch
from gaussians import forked, gaussian, made

from leakbound import BudgetError, Capacity, Channel, ChannelEngine, Leakage, Ledger
from leakbound.accounting.leakage import Mechanism, seen_by
from leakbound.channels import population_moments
from leakbound.channels.composition import determinant_nats

PUBLIC = gaussian(4000)
ROWS = torch.from_numpy(gaussian(6, 1))
WEIGHTS = np.array([[1.0, 9.0, 2.0, 30.0], [40.0, 1.0, 7.0, 1.0], [5.0, 5.0, 1.0, 80.0]])
MOMENTS = population_moments(PUBLIC)
# Shapes with their weights, and how many uses of each.
SCHEDULES = [
    [("personalized", 0, 1), ("personalized", 1, 1)],
    [("personalized", 0, 3), ("personalized", 1, 1), ("personalized", 2, 2)],
    [("natural", None, 2), ("white", None, 1)],
    [("white", None, 1), ("natural", None, 1), ("least_power", None, 3), ("rate_distortion", None, 2)],
    [("personalized", 1, 2), ("white", None, 1), ("natural", None, 1)],
]


def engine_in(ledger, shape, weights=None, target=None, public=PUBLIC):
    weights = None if weights is None else WEIGHTS[weights]
    target = target or Capacity(3.0)
    return ChannelEngine.for_data(public, target, shape=shape, weights=weights, ledger=ledger, value_range=(-1e3, 1e3))


def seen(channel) -> np.ndarray:
    """Precision of one use as a full matrix, by NumPy alone."""
    basis = np.eye(4) if channel.basis is None else channel.basis
    gain = np.ones(4) if channel.gain is None else channel.gain
    return (basis * np.divide(gain**2, channel.variances, out=np.zeros(4), where=channel.variances > 0)) @ basis.T


def truth(uses) -> float:
    total = sum(count * seen(channel) for channel, count in uses)
    return 0.5 * float(np.linalg.slogdet(np.eye(4) + MOMENTS.covariance @ total)[1])


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: "-".join(name for name, *_ in schedule))
@pytest.mark.parametrize("kind", ["memory", "file"])
def test_precisions_of_channels_of_one_covariance_add_up_exactly(schedule, kind, tmp_path):
    ledger, uses = Ledger() if kind == "memory" else made(tmp_path / "uses.db"), []
    for name, weights, count in schedule:
        engine = engine_in(ledger, name, weights)
        engine.protect(list(ROWS)).__getitems__([0] * count)
        uses.append((engine.calibration.channel, count))
        told = engine.leakage().record
        # A channel with a gain is calibrated to variances before they were shrunk.
        assert told == pytest.approx(truth(uses), rel=1e-4 if name == "rate_distortion" else 1e-9)
        assert told >= truth(uses) * (1 - 1e-9)
    added = sum(0.5 * np.linalg.slogdet(np.eye(4) + count * MOMENTS.covariance @ seen(one))[1] for one, count in uses)
    assert truth(uses) < added - 0.1  # what was told before


def test_two_personalized_channels_go_on_as_long_as_their_determinant_allows():
    ledger = Ledger()
    first = engine_in(ledger, "personalized", 0)
    first.protect(list(ROWS)).__getitems__([0])
    second = engine_in(ledger, "personalized", 1, Leakage(5.0, uses=9))
    data = second.protect(list(ROWS))
    with pytest.raises(BudgetError, match="went through other channels, too, and would reveal") as refused:
        [data[0] for _ in range(9)]
    done = int(second.uses["train"][0])
    channels = first.calibration.channel, second.calibration.channel
    assert truth([(channels[0], 1), (channels[1], done)]) <= 5.0 * (1 + 1e-9)
    over = truth([(channels[0], 1), (channels[1], done + 1)])
    assert over > 5.0
    # The reason is the true one: not the planned uses, of which there are more, but what all channels reveal together.
    assert done < 9
    assert f"{over:.4f}"[:-1] in str(refused.value)
    assert "has had its" not in str(refused.value)
    assert first.nats(1) + second.nats(done) > 5.0  # their sum would have stopped before
    assert second.leakage().record == pytest.approx(truth([(channels[0], 1), (channels[1], done)]), rel=1e-9)


def test_another_process_knows_the_axes_from_the_file(tmp_path):
    path = made(tmp_path / "uses.db")
    first = engine_in(path, "personalized", 0)
    first.protect(list(ROWS)).__getitems__([0])

    def elsewhere():
        engine = engine_in(path, "personalized", 1)
        _ = engine.protect(list(ROWS))[0]
        return engine.leakage().record, engine.calibration.channel

    told, channel = forked(elsewhere)()
    assert told == pytest.approx(truth([(first.calibration.channel, 1), (channel, 1)]), rel=1e-9)


def test_nats_of_channels_of_other_covariances_and_of_accepted_ones_are_added():
    ledger = Ledger()
    engines = [
        engine_in(ledger, "personalized", 0),
        engine_in(ledger, "personalized", 1, public=gaussian(4000, 8)),
        engine_in(ledger, "natural", public=gaussian(4000, 9)),
        engine_in(ledger, "white", public=gaussian(4000, 10)),
        ChannelEngine.for_data(PUBLIC, Capacity(3.0), ledger=ledger, accept_capacity=3.5, value_range=(-1e3, 1e3)),
    ]
    for engine in engines:
        _ = engine.protect(list(ROWS))[0]
    assert engines[-1].leakage().record == pytest.approx(4 * 3.0 + 3.5)


def test_transformers_of_one_covariance_in_one_ledger_add_precisions():
    ledger = Ledger()
    options = {"auxiliary": PUBLIC, "value_range": (-1e3, 1e3), "ledger": ledger}
    channels = [Channel(3.0, shape="personalized", weights=weights, **options).fit(ROWS.numpy()) for weights in WEIGHTS]
    for channel in channels:
        channel.transform(ROWS.numpy())
    uses = [(channel.calibration_.channel, 1) for channel in channels]
    assert [float(channel.leakage()) for channel in channels] == pytest.approx([truth(uses)] * 3, rel=1e-9)


def test_a_ledger_of_an_earlier_version_knows_no_axes_and_adds(tmp_path):
    path = made(tmp_path / "uses.db")
    _ = engine_in(path, "natural").protect(list(ROWS))[0]
    with closing(sqlite3.connect(path)) as connection:
        for table in ("cells", "grids", "seeded"):
            connection.execute(f"DROP TABLE {table}")
        for column in ("axes", "precisions"):
            connection.execute(f"ALTER TABLE channels DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 3")
        connection.commit()
    engine = engine_in(path, "white")
    _ = engine.protect(list(ROWS))[0]
    assert engine.leakage().record == pytest.approx(6.0)
    again = engine_in(path, "least_power")
    _ = again.protect(list(ROWS))[0]
    assert 6.0 < again.leakage().record < 9.0 - 0.1  # those that were counted since have known axes


@pytest.mark.parametrize("determinant", [None, lambda uses: None])
def test_nats_along_values_are_added_where_their_covariance_is_not_at_hand(determinant):
    """Of the others, those along principal directions are known together all the same."""
    natural, white = (
        Mechanism(name, np.array(ratios), axes="one") for name, ratios in (("a", [3.0, 1.0]), ("b", [0.0, 5.0]))
    )
    own = Mechanism("c", np.array([2.0, 0.5]), axes="one", precisions=np.array([1.0, 4.0]))
    expected = 0.5 * math.log((1 + 2 * 3) * (1 + 2 * 1 + 3 * 5)) + 0.5 * math.log((1 + 3 * 2.0) * (1 + 3 * 0.5))
    for one, uses in ((natural, 2), (own, 3)):
        _, parallel, others = seen_by(one, [(natural, 2), (white, 3), (own, 3)], determinant)
        assert one.nats(uses + parallel) + others == pytest.approx(expected, rel=1e-12)


def test_axes_that_see_all_or_nothing():
    """Ratios of ∞ where no noise lies, and of 0 where a channel shows nothing."""
    names = {"axes": "one"}
    some = Mechanism("a", np.array([3.0, 0.0]), **names)
    bare = Mechanism("b", np.array([0.0, np.inf]), **names)
    other = Mechanism("c", np.array([0.0, 8.0]), **names)
    assert seen_by(some, [(some, 5), (other, 1)])[2] == pytest.approx(0.5 * math.log(9))
    assert seen_by(some, [(some, 5), (bare, 1)])[2] == math.inf
    assert seen_by(other, [(some, 1), (bare, 0)]) == (0, 0.0, pytest.approx(math.log(2)))
    moments = population_moments(PUBLIC)
    along = Mechanism("d", np.ones(4), axes=moments.name, precisions=np.array([2.0, 0.0, 0.0, 1.0]))
    expected = 0.5 * np.linalg.slogdet(np.eye(4) + 3 * np.diag([2.0, 0, 0, 1.0]) @ moments.covariance)[1]
    assert determinant_nats([(along, 3)], moments) == pytest.approx(expected, rel=1e-12)
