import itertools
import math

import pandas as pd
import pytest
import torch
from pydantic import ValidationError

from leakbound_lab.claims.tabulation import COLUMNS
from leakbound_lab.config.defenses import DPSGD, NOISE_BATCHES, ChannelDefense
from leakbound_lab.config.studies import EfficiencyConfig
from leakbound_lab.training import UntrainableError, efficiency
from leakbound_lab.training.efficiency import efficiency_rows, measure_steps
from leakbound_lab.training.opacus_learner import OpacusLearner
from leakbound_lab.training.sgd import StackLearner

CONFIG = EfficiencyConfig(
    dataset="digits", models=("a", "b"), defenses={"none": (), "dpsgd": (1.0,)}, batch_size=50, epochs=2, records=500
)


def times(**seconds) -> pd.DataFrame:
    """Seconds by ``model_defense``, one for each repetition."""
    rows = [
        (*name.split("_"), 1.0 if name.endswith("dpsgd") else math.nan, repetition, value)
        for name, values in seconds.items()
        for repetition, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["model", "defense", "level", "repetition", "seconds"])


def test_every_defense_has_its_turn_in_every_repetition(request_for, through):
    requests = {
        "none": request_for(),
        "white": request_for(**through("white")),
        "dpsgd": request_for(defense=DPSGD(), level=1.0),
    }
    threads = torch.get_num_threads()
    found = measure_steps(requests, steps=8, repeats=3)
    turns = [list(requests), list(reversed(requests)), list(requests)]
    assert found.groupby("repetition")["defense"].apply(list).tolist() == turns
    assert torch.get_num_threads() == threads
    assert (found["seconds"] > 0).all()


def test_turn_that_takes_too_long_ends_where_noise_is_drawn_anew(request_for, through, monkeypatch):
    """A turn with less than a block would hold the draw for eight steps, or none."""
    taken = {"white": 0, "dpsgd": 0}
    for name, kind in (("white", StackLearner), ("dpsgd", OpacusLearner)):

        def take(self, step=kind.step, name=name):
            taken[name] += 1
            step(self)

        monkeypatch.setattr(kind, "step", take)
    requests = {"white": request_for(**through("white")), "dpsgd": request_for(defense=DPSGD(), level=1.0)}
    assert len(measure_steps(requests, steps=80_000, repeats=1, max_seconds=1e-9)) == 2
    assert taken == {"white": 2 * NOISE_BATCHES, "dpsgd": 2}


def test_replicas_of_dp_take_their_steps_one_after_another(request_for, monkeypatch):
    """By a clock that a look takes on by a second."""
    monkeypatch.setattr(efficiency, "clock_of", lambda device: itertools.count().__next__)
    for replicas in (1, 50):
        request = request_for(defense=DPSGD(), level=1.0, replicas=replicas)
        assert measure_steps({"dpsgd": request}, steps=8, repeats=2)["seconds"].tolist() == [replicas / 8] * 2


def test_defense_that_cannot_train_is_refused_before_any_step(request_for):
    with pytest.raises(UntrainableError, match="a channel defense needs both"):
        measure_steps({"none": request_for(), "white": request_for(defense=ChannelDefense())}, steps=8, repeats=1)


def test_steps_that_share_the_noise_unevenly_are_refused():
    with pytest.raises(ValidationError, match="multiple of 8"):
        EfficiencyConfig(dataset="digits", models=("a",), defenses={"none": ()}, steps=2)


def test_rows_hold_seconds_of_all_epochs_and_ratios_within_a_repetition_in_the_columns_of_a_study():
    measured = times(a_none=[1.0, 2.0], a_dpsgd=[3.0, 8.0], b_none=[5.0, 5.0], b_dpsgd=[5.0, 10.0])
    rows = efficiency_rows(measured, CONFIG)
    assert tuple(rows.columns) == COLUMNS
    assert sorted(set(rows["run"])) == [f"digits/{model}/{name}" for model in "ab" for name in ("dpsgd-1", "none")]
    plain = rows[rows["defense"] == "none"]
    assert plain["level"].isna().all()
    first = plain[(plain["model"] == "a") & (plain["replica"] == 0)]
    assert first.set_index("metric")["value"].to_dict() == {"seconds_per_step": 1.0, "seconds": 20.0, "ratio": 1.0}
    assert set(rows["rounds"]) == {20}
    ratios = rows[(rows["metric"] == "ratio") & (rows["defense"] == "dpsgd")].pivot(index="model", columns="replica")
    assert ratios["value"].to_numpy().tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert set(rows[(rows["metric"] == "ratio") & (rows["defense"] == "none")]["value"]) == {1.0}


def test_times_without_plain_training_are_refused():
    with pytest.raises(ValueError, match=r"\['a'\] lack the times of 'none'"):
        efficiency_rows(times(a_dpsgd=[3.0]), CONFIG)
