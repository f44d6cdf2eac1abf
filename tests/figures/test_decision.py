"""The page for a decision, from small tables whose outcome is known."""

import dataclasses
import html
import math
import re
import stat
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, special, stats

from leakbound import storage
from leakbound.accounting.leakage import PrivacyEvent
from leakbound.accounting.statement import Statement
from leakbound_lab.commands import compare
from leakbound_lab.commands.compare import _recoverable
from leakbound_lab.config.comparing import OwnImages, comparison
from leakbound_lab.config.reading import config_of
from leakbound_lab.config.whole import Config
from leakbound_lab.figures.report.decision import Decision, decision_page
from leakbound_lab.jobs.paths import output

VERDICTS = {
    "natural": ("reproduced", 0.03),
    "white": ("contradicted", -0.04),
    "personalized": ("negligible", 0.001),
    "dpsgd": ("undecided", 0.02),
    "clipping": ("undecided", -0.01),
}


USES, STEPS, MEMBERS, LABELS, EPSILON = 40, 4, 100, 0.3, 12.0


def training(name: str, record: float | None, **facts) -> dict:
    """Provenance of a training: the event of each network, and the nats of one record beside its label."""
    facts = {"sampling": "shuffled", "population": MEMBERS, "batch_size": 20, "steps": STEPS, **facts}
    events = [PrivacyEvent(name, uses=uses, **facts).to_dict() for uses in (1, USES)]
    bound = {
        "labels": LABELS if name == "channel" else 0.0,
        "label_kind": "counted" if name == "channel" else "covered",
    }
    bound |= (
        {"every": True, "epsilon": EPSILON, "delta": 1e-5, "accountant": "prv"} if name == "dpsgd" else {"every": False}
    )
    values = math.inf if record is None else record
    told = Statement("the weights of one replica", "record", 1, values, secure=False, **bound)
    return {"events": events, "statement": {"replica": told.numbers()}}


TRAININGS = {
    "none-nan": training("none", None),
    "natural-1.0": training("channel", 1.2, shape="natural", capacity=1.0, noise="fresh"),
    "natural-8.0": training("channel", 9.0, shape="natural", capacity=8.0, noise="fresh"),
    "dpsgd-4.0": training("dpsgd", 0.5, sampling="poisson", batch_size=100, noise_multiplier=4.0, max_grad_norm=1.5),
}


def configured(sees: str) -> Config:
    """A comparison against an attacker on membership who sees the uploads, or the last weights alone."""
    images = OwnImages("digits", "digits", 1438, 359, 8, 8)
    values = comparison(images, "mine", (1.0, 8.0), replicas=6, members=MEMBERS, seed=0, sees=sees)
    return config_of({**values, "catalogue": "config/figures"}, "comparison")


@pytest.fixture
def decision() -> Decision:
    config = configured("weights")
    rows = [
        {"defense": defense, "level": level, "replica": replica, "metric": metric, "variant": variant, "value": value}
        for defense, level in (("none", np.nan), ("natural", 1.0), ("natural", 8.0), ("dpsgd", 4.0))
        for replica in range(6)
        for metric, variant, value in (
            ("test_accuracy", "", {"none": 0.9 + 0.001 * replica, "natural": 0.8, "dpsgd": 0.7}[defense]),
            ("auc", "strongest", 0.7 if defense == "none" else 0.6),
            ("auc", "white_box", 0.5),
            *((("epsilon", "", 12.0), ("epsilon", "replicas", 900.0)) if defense == "dpsgd" else ()),
        )
    ]
    table = pd.DataFrame(rows).assign(chosen=True, length="full", status="", learning_rate=0.05)
    table["run"] = table["defense"] + "-" + table["level"].map(str)
    half = table.assign(length="half", value=0.1)
    rows = [(f"{defense}_against_membership", *outcome) for defense, outcome in VERDICTS.items()]
    claims = pd.DataFrame(rows, columns=["claim", "verdict", "effect"]).assign(blocks=6, blocks_needed=18.0)
    claims = claims.assign(low=claims["effect"] - 0.01, high=claims["effect"] + 0.01, dataset="digits")
    claims["figure"] = np.where(claims["claim"].str.startswith("clipping"), "recipes", "fig15_recipes")
    claims = pd.concat([claims, claims.assign(dataset="all", effect=9.0)])
    drawings = {"tan2024/fig15_recipes": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}
    tables = {"comparison": pd.concat([table, half])}
    return Decision(config, claims, tables, drawings, 600.0, TRAININGS, _recoverable(np.ones(2)), 10, 0.1)


def of_digits(decision: Decision, **changes: object) -> Decision:
    """The decision about a dataset with other settings."""
    digits = decision.config.datasets["digits"].model_copy(update=changes)
    return dataclasses.replace(decision, config=decision.config.model_copy(update={"datasets": {"digits": digits}}))


def said(decision: Decision, start: str) -> str:
    """The only sentence that begins so."""
    (text,) = (text for text in decision.sentences if text.startswith(start))
    return text


def valued(decision: Decision, values: object, defense: str, metric: str) -> Decision:
    """The decision with other values of a metric of a defense."""
    table = decision.tables["comparison"]
    changed = (table["defense"] == defense) & (table["metric"] == metric)
    return dataclasses.replace(
        decision, tables={"comparison": table.assign(value=table["value"].mask(changed, values))}
    )


def test_every_arm_has_the_nats_of_its_whole_training_with_the_label_and_what_these_allow(decision):
    arms = decision.arms.set_index(["defense", "level"])
    assert arms["nats"].tolist() == [math.inf, pytest.approx(1.5), pytest.approx(9.3), 0.5]
    assert arms["uses"].tolist() == [USES, USES, USES, STEPS]
    fano = optimize.brentq(lambda p: special.rel_entr([p, 1 - p], [0.01, 0.99]).sum() - 1.5, 0.02, 0.99)
    private = stats.norm.cdf(stats.norm.ppf(1 / MEMBERS) + math.sqrt(STEPS) / 4.0)  # every record in every step
    assert arms["identified"].tolist() == pytest.approx([1.0, fano, 1.0, private])
    left = [0.0, math.exp(-1.5), math.exp(-9.3), math.exp(-0.5)]  # two values of variance 1 share the nats
    assert (1 - arms["recovered"]).tolist() == pytest.approx(left)
    amount = "1.5 nats on average over records, 0.3 of them by labels"
    told = said(
        decision, f"natural, 1 nat a use: The uploads of a whole training reveal about one record at most {amount}"
    )
    assert "records are taken as independent of each other" in told
    most = f"with a probability of at most {100 * fano + 0.05:.1f} % (a bound"
    assert f"holds the 100 records of its client as candidates, picks the right one {most}" in told
    assert f"at most {100 * private + 0.005:.2f} %" in said(decision, "DP-SGD, noise 4: ")
    private = "ε = 12 at δ = 1e-05 (add or remove one record), 0.5 nats for every record, labels included"
    assert private in said(decision, "DP-SGD, noise 4: ")
    assert said(decision, "Too much").endswith(
        "natural, 8 nats a use (9.3 nats on average over records, 0.3 of them by labels)."
    )
    assert said(decision, "Without any bound: ") == "Without any bound: undefended."
    page = decision_page(decision)
    assert "://" not in page  # it asks for nothing
    assert (
        page.count(f'<td class="amount">{amount}</td>')
        == page.count(f'<td class="amount">{private}</td>')
        == page.count("<td>no bound</td>")
        == 1
    )
    assert page.count('<td class="number">no limit</td>') == 2  # natural, 8 nats: who, and 99.99 % of the variance


def test_page_and_terminal_begin_with_how_many_records_a_network_trains_on(decision):
    assert f"{decision.config.datasets['digits'].aux} are what the attacker knows" in decision.sentences[0]
    for text in (decision.sentences[0], decision_page(decision).partition("<li>")[2]):
        assert text.startswith(f"Each network trains on {MEMBERS} of the 1797 records. Of the rest, {MEMBERS} test the")


def test_nothing_is_ranked_where_members_are_not_told_apart_from_guessing(decision):
    chance = 0.5 + 0.02 * (decision.tables["comparison"]["replica"] % 2)  # mean .51, 95 % from .499
    blind = valued(decision, chance, "none", "auc")
    assert decision.ranked
    assert not blind.ranked
    assert "look at the bounds and at the gradient" in said(blind, "From the last weights, members are not told apart")
    assert not any(text.startswith(("Worth", "Not worth", "No protection")) for text in blind.sentences)
    found = said(blind, "From the last weights, members are found more often")
    assert "natural, 1 nat a use (0.600, 95 %: 0.600 to 0.600); natural, 8 nats a use" in found
    assert "undefended" not in found
    for shown in ("<figure>", "Protections against plain SGD", "replicas would decide"):
        assert (shown in decision_page(decision), shown in decision_page(blind)) == (True, False)


def test_to_a_server_that_sees_the_uploads_protections_are_compared_by_what_these_show(decision):
    areas = {"none-nan": 0.985, "natural-1.0": 0.9, "natural-8.0": 0.98, "dpsgd-4.0": 0.55}
    rows = [
        {"run": run, "replica": replica, "variant": variant, "value": value, "status": status}
        for run, area in areas.items()
        for replica, value, status in ((0, area - 0.01, ""), (1, area + 0.01, ""), (2, 0.0, "diverged"))
        for variant in ("likelihood", "plain")
    ]
    table = pd.DataFrame(rows).assign(metric="auc")
    table["value"] = table["value"].mask(table["variant"] == "plain", 0.51)
    server = dataclasses.replace(decision, config=configured("uploads"), tables={**decision.tables, "uploads": table})
    assert server.arms["uploads"].tolist() == pytest.approx([0.985, 0.9, 0.98, 0.55])
    assert server.arms["uploads_high"].iloc[0] == 1.0  # where Student's t would say 1.11
    assert server.arms["uploads_high"].iloc[3] == pytest.approx(0.55 + 0.01 * stats.t.ppf(0.975, 1), abs=1e-9)
    assert "with an AUC of 0.985" in said(server, "A server that sees every upload recognises members")
    assert said(server, "The attack on the uploads was not told").endswith("guessing behind DP-SGD, noise 4.")
    found = table.assign(value=table["value"].mask(table["run"].str.startswith("dpsgd"), 0.8))
    worse = dataclasses.replace(server, tables={**server.tables, "uploads": found})
    assert "an AUC of 0.800" in said(worse, "Among the protections, DP-SGD, noise 4 hid members best from the attack")
    best = said(server, "The most accurate of these is DP-SGD, noise 4, with an AUC of 0.550")
    assert "is right for 70 % of new records" in best
    most = said(server, "natural, 8 nats a use is the most accurate of all protections")
    assert "with 80 %, and leaves an AUC" in most
    useless = dataclasses.replace(valued(decision, 0.09, "dpsgd", "test_accuracy"), config=server.config)
    useless.tables["uploads"] = table
    assert said(useless, "None of these is right").endswith("more often than a guess, the most frequent label (10 %).")
    assert not any(text.startswith(("Worth", "Not worth", "No protection", "Undecided")) for text in server.sentences)
    page = decision_page(server)
    assert "Protections against plain SGD" not in page
    assert ">0.985 <small>[" in page
    assert "from the uploads" not in decision_page(decision)
    assert "members show with an AUC of 0.900 instead of 0.985 (guessing: 0.5)" in server.next_step[0]


def test_every_sentence_on_membership_says_that_it_is_from_the_last_weights(decision):
    texts = [text for text in decision.sentences if "membership" in text or "members" in text]
    assert len(texts) == 5
    assert all("from the last weights" in text.lower() for text in texts)


@pytest.fixture
def names() -> dict:
    """What the lines of the next step take as given."""
    records = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    private = torch.utils.data.TensorDataset(records[:MEMBERS], torch.arange(MEMBERS) % 10)
    return {"network": torch.nn.Linear(4, 10), "public": records[MEMBERS:], "private": private}


def run(decision: Decision, names: dict) -> str:
    """Execute the five lines of the next step, and return why they are given."""
    why, code, _ = decision.next_step
    assert len(code.splitlines()) == 5
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Opacus
        exec(code, names)
    return why


@pytest.mark.parametrize("nats", [None, 0.2])
def test_the_five_lines_apply_the_most_accurate_channel_that_limits_identification(decision, names, nats):
    why = run(of_digits(decision, label_nats=nats), names)
    assert why.startswith("Take natural noise (1 nat a use): it is the most accurate of")
    assert [len(labels) for _, labels in names["loader"]] == [20] * 5
    account = names["engine"].leakage()
    assert (account.joint, account.labels) == pytest.approx((1.0, nats or math.log(10)), rel=1e-6)
    assert names["target"].uses == USES


def test_the_five_lines_apply_dp_sgd_where_it_is_the_most_accurate(decision, names):
    better = valued(decision, 0.85, "dpsgd", "test_accuracy")
    assert run(better, names).startswith("Take DP-SGD (noise multiplier 4): it is the most accurate")
    optimizer = names["optimizer"]
    assert (optimizer.noise_multiplier, optimizer.max_grad_norm, optimizer.param_groups[0]["lr"]) == (4.0, 1.5, 0.05)
    assert names["loader"].batch_sampler.sample_rate == 1.0


def test_without_a_level_that_limits_identification_the_five_lines_ask_for_one_that_does(decision, names):
    near = training("channel", 3.0, shape="natural", capacity=2.5, noise="fresh")
    vague = dataclasses.replace(
        decision, trainings=TRAININGS | {"natural-1.0": near, "dpsgd-4.0": TRAININGS["none-nan"]}
    )
    why = run(vague, names)
    assert why.startswith(
        "No level that was tried limits identification to 50 %. Nearest comes natural noise (1 nat a use)"
    )
    assert "and is right for 80 % of new records. The lines below apply it. Measure a somewhat smaller" in why
    assert (names["target"].nats, names["target"].uses) == (2.5, USES)


def test_where_dp_sgd_comes_nearest_the_five_lines_apply_it(decision, names):
    """A multiplier of 2 in four steps on all records: Φ(Φ⁻¹(.01) + 2.5) at ε, where channels limit nothing."""
    private = training("dpsgd", 2.0, sampling="poisson", batch_size=100, noise_multiplier=0.8, max_grad_norm=1.5)
    vague = dataclasses.replace(
        decision, trainings=TRAININGS | {"natural-1.0": TRAININGS["natural-8.0"], "dpsgd-4.0": private}
    )
    why = run(vague, names)
    most = 100 * stats.norm.cdf(stats.norm.ppf(0.01) + 2.5)
    assert f"Nearest comes DP-SGD (noise multiplier 4), with at most {most + 0.05:.1f} %, and is right for 70 %" in why
    assert "The lines below apply it. Measure a somewhat larger noise multiplier next" in why
    assert names["optimizer"].noise_multiplier == 0.8
    assert f"{most + 0.05:.1f} % (DP)</td>" in decision_page(vague)
    assert "(DP)</td>" not in decision_page(
        dataclasses.replace(
            vague, trainings=TRAININGS | {"dpsgd-4.0": private | {"statement": TRAININGS["dpsgd-4.0"]["statement"]}}
        )
    )


def test_half_takes_the_label_in(decision, names):
    """The lines limit values and label together, or say that labels alone are too much."""
    useless = valued(valued(decision, 0.05, "natural", "test_accuracy"), 0.05, "dpsgd", "test_accuracy")
    assert "Labels alone may reveal more nats than 50 % allows" in useless.next_step[0]
    why = run(of_digits(useless, label_nats=0.2), names)
    assert "limit it to 50 % among 100 by natural noise, labels included" in why
    whole = 0.5 * math.log(0.5 / 0.01) + 0.5 * math.log(0.5 / 0.99)
    assert names["engine"].leakage().record <= whole
    assert names["target"].nats == pytest.approx(whole - 0.2, abs=1e-5)


def test_intervals_of_accuracies_take_the_test_records_in(decision):
    """Wilson's interval where all replicas agree; 85 records alone give ± 4.5 points at .953."""
    few = of_digits(valued(decision, 0.953, "natural", "test_accuracy"), test=85)
    row = next(few.arms.query("defense == 'natural'").itertuples())
    low, high = stats.binomtest(81, 85).proportion_ci(method="wilson")
    assert (row.accuracy_low, row.accuracy_high) == pytest.approx((low, high), abs=2e-3)
    assert 0.08 < row.accuracy_high - row.accuracy_low < 0.1
    assert "all replicas share 85 of these" in decision_page(few)


def test_bounds_of_seeded_noise_are_said_to_be_those_of_secret_noise(decision):
    assert "have noise from a seed, and no bound" in decision_page(decision)


def test_page_leads_to_the_sheet_to_sign_and_says_what_seeded_networks_can_be_signed_for(decision):
    secret = dataclasses.replace(decision, config=decision.config.model_copy(update={"privacy_noise": "secure"}))
    for each, seeded in ((decision, True), (secret, False)):
        page = decision_page(each)
        assert '<a href="statement.html">' in page
        assert ("stays in the house, and not for a release" in page) == seeded


def test_levels_have_their_unit(decision):
    cells = re.findall(r'<tr><td>([^<]*)</td><td class="level">([^<]*)</td>', decision_page(decision))
    assert cells[:4] == [
        ("undefended", ""),
        ("natural", "1 nat a use"),
        ("natural", "8 nats a use"),
        ("DP-SGD", "noise 4"),
    ]
    assert said(decision, "The networks of this comparison have noise from a seed, and no bound.")
    config = decision.config.model_copy(update={"privacy_noise": "secure"})
    secure = dataclasses.replace(decision, config=config)
    assert "from a seed, and no bound" not in decision_page(secure) + " ".join(secure.sentences)


def test_the_page_opens_with_what_to_take_and_never_takes_what_guesses(decision):
    choice = decision.next_step[0]
    head, *_ = decision_page(decision).partition("<h2>Each protection at its levels</h2>")
    assert head.strip().endswith(f"<p><strong>{html.escape(choice, quote=False)}</strong></p>".replace("'", "&#39;"))
    assert "It is right for 80 % of new records (90.3 % without protection)." in choice
    chance = 0.1 + 0.02 * (decision.tables["comparison"]["replica"] % 2)  # mean .11, 95 % from .099
    other = valued(decision, chance, "natural", "test_accuracy")
    assert other.next_step[0].startswith("Take DP-SGD (noise multiplier 4): it is the only one of those tried")
    assert "limits identification to 50 % and beats guessing. It is right for 70 %" in other.next_step[0]
    none = valued(other, chance, "dpsgd", "test_accuracy")
    assert len(none.next_step) == 1
    assert (
        "identification to 50 % and is right more often than a guess, the most frequent label (10 %)"
        in none.next_step[0]
    )
    assert "the most frequent label (80 %)" in dataclasses.replace(decision, majority=0.8).next_step[0]


def test_sentences_name_each_protection_under_its_verdict(decision):
    worth, not_worth, small, undecided = decision.sentences[-4:]
    assert worth.startswith("Worth the cost against membership inference from the last weights, at the learning rates")
    assert "Smaller rates of plain SGD may close such a lead" in worth
    assert "natural (+3.0 points" in worth
    assert not_worth.startswith("Not worth")
    assert "white (-4.0 points" in not_worth
    assert "personalized (+0.1 points" in small
    assert undecided.startswith("Undecided")
    assert all(name in undecided for name in ("DP-SGD", "clipping"))
    none = dataclasses.replace(decision, claims=decision.claims.assign(verdict="undecided")).sentences
    assert not any(text.startswith("Worth") for text in none)
    assert any(text.startswith("No protection is shown to leave more accuracy") for text in none)


def test_the_price_of_deciding_is_that_of_all_replicas_unless_they_should_have_decided(decision):
    row = decision.fronts.set_index("label").loc["DP-SGD"]
    assert "18 replicas would decide, and take about 30 minutes of CPU time" in row["outcome"]  # 6 took 10 minutes
    assert "set <code>replicas</code> in <code>compare.yaml</code>, now 6" in decision_page(decision)
    decided = dataclasses.replace(decision, claims=decision.claims.assign(verdict="reproduced"))
    assert "set <code>replicas</code>" not in decision_page(decided)
    near = dataclasses.replace(decision, claims=decision.claims.assign(blocks_needed=6.0)).fronts
    assert near.set_index("label").loc["DP-SGD", "outcome"].startswith("undecided, but near a decision")


def test_arms_are_means_over_replicas_of_full_trainings_and_the_strongest_attack_alone(decision):
    arms = decision.arms.set_index(["defense", "level"])
    plain = arms.loc[("none", "")]
    assert plain["accuracy"] == pytest.approx(0.9025)
    assert plain["accuracy_low"] < plain["accuracy"] < plain["accuracy_high"]
    assert arms["auc"].tolist() == pytest.approx([0.7, 0.6, 0.6, 0.6])
    assert [bound.epsilon for bound in arms.xs("dpsgd")["bound"]] == [EPSILON]


def with_diverged(decision: Decision, run: str, replicas: int) -> Decision:
    """The decision where so many replicas of a run have networks that all diverged."""
    table = decision.tables["comparison"]
    lost = (table["run"] == run) & (table["replica"] < replicas)
    rows = table[lost & (table["metric"] == "test_accuracy")].assign(metric="diverged", value=1.0)
    return dataclasses.replace(decision, tables={"comparison": pd.concat([table[~lost], rows])})


def test_a_level_at_which_networks_diverged_has_their_number_and_the_reason_if_none_is_left(decision):
    some, every = (with_diverged(decision, "natural-1.0", replicas) for replicas in (2, 6))
    row = next(some.arms.query("defense == 'natural'").itertuples())
    assert (row.diverged, row.accuracy) == (2, pytest.approx(0.8))
    assert "(2 diverged)" in decision_page(some)
    assert "diverged" not in decision_page(decision)
    row = next(every.arms.query("defense == 'natural'").itertuples())
    assert (row.diverged, np.isnan(row.accuracy), np.isnan(row.auc)) == (6, True, True)
    page = decision_page(every)
    assert page.count("every network diverged before its end, at every learning rate that was tried") == 1
    assert "nan" not in page
    assert every.sentences == decision.sentences
    undefended = with_diverged(decision, "none-nan", 6)
    assert decision.sentences[1].startswith("Without protection")
    assert not any(text.startswith("Without protection") or "nan" in text for text in undefended.sentences)


def test_responses_to_labels_are_said_with_their_nats(decision):
    assert not any(text.startswith("Labels are") for text in decision.sentences)
    assert "at most 0.5 nats" in said(of_digits(decision, label_nats=0.5), "Labels are randomized responses")


def test_a_table_has_records_and_no_images(decision):
    rows = [
        {"metric": metric, "variant": variant, "value": 0.5, "defense": "none", "level": np.nan}
        for metric, variant in (("relative_mse", "attack"), ("mse", "attack"), ("mse", "prior"))
    ]
    inverted = pd.DataFrame(rows).assign(unit=-1, chosen=True, status="", dataset="own", model="mlp", replica=0)
    tables = decision.tables | {"gradient_inversion": inverted.assign(rounds=0, batch_size=1)}
    told = said(dataclasses.replace(decision, tables=tables), "From one gradient")
    assert told.endswith("error, pixels from 0 to 1: 0.5 without protection; guessing the mean image errs by 0.5.")
    table = of_digits(dataclasses.replace(decision, tables=tables), reader="table", path="own.csv")
    assert "guessing the mean record is 1" in said(table, "From one gradient")
    assert "image" not in decision_page(table).replace("data:image", "")


def test_the_release_of_whose_nats_most_is_proven_is_named_in_words(decision):
    attacked = {(4.0, "images_nats", 4): 2.0, (1.0, "gradients_nats", 1): 1.0, (1.0, "gain_1", 2): 9.0}
    rows = [
        (*release, variant, nats)
        for release, shown in attacked.items()
        for variant, nats in (("demonstrated", shown), ("allowed", 3.0))
    ]
    naming = pd.DataFrame(rows, columns=["level", "metric", "unit", "variant", "value"])
    told = dataclasses.replace(decision, tables=decision.tables | {"naming": naming})
    assert said(told, "Attacks") == (
        "Attacks prove 2 of the 3 nats about a record that 4 noisy copies may reveal behind natural noise of "
        "4 nats a use: a test of the bound, at other levels than those of the table."
    )


def test_the_columns_of_a_table_are_named_under_its_records(decision):
    drawings = {"beyond/limit_pictures": b"<svg xmlns='http://www.w3.org/2000/svg'/>"}
    named = dataclasses.replace(decision, drawings=drawings, columns=("age", "<b>sex</b>"))
    assert "Values from left to right: age, &lt;b&gt;sex&lt;/b&gt;." in decision_page(named)
    many = dataclasses.replace(named, columns=tuple(f"column {number}" for number in range(43)))
    page = decision_page(many)
    assert '<figure class="records"><img' in page  # which a phone scrolls instead of shrinking it
    assert "column 39 and 3 others." in page
    assert "column 40" not in page
    assert "left to right" not in decision_page(dataclasses.replace(named, columns=()))


def test_candidates_of_owners_are_owners_and_the_lines_of_code_name_them(decision):
    """Two records of each of fifty owners: the right one of fifty is picked more easily than one of a hundred."""
    owned = {"unit": "owner", "rows": 2, "records": 2}
    near = training("channel", 0.7, shape="natural", capacity=1.0, noise="fresh", **owned)
    told = Statement.from_numbers(near["statement"]["replica"])
    near["statement"]["replica"] = dataclasses.replace(told, unit="owner", group=2).numbers()
    people = dataclasses.replace(decision, trainings=TRAININGS | {"natural-1.0": near})
    arm = people.arms.set_index(["defense", "level"]).loc[("natural", "1")]
    fano = optimize.brentq(lambda p: special.rel_entr([p, 1 - p], [0.02, 0.98]).sum() - 1.0, 0.03, 0.99)
    assert (arm["candidates"], arm["identified"]) == (50, pytest.approx(fano))
    told = said(people, "natural, 1 nat a use: ")
    assert "all records of one owner together (at most 2)" in told
    assert "holds the 50 owners of its client as candidates" in told
    assert people.next_step[1].endswith("shuffle=True), owner=owners)")


def test_the_statement_on_paper_names_every_arm_and_the_digest_of_the_records(decision, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = next(iter(decision.config.datasets))
    storage.write_json(output(tmp_path, "prepare", name, "provenance"), {"content": "ab" * 32})
    compare._write_sheet(decision, tmp_path)
    page = (tmp_path / "statement.html").read_text("utf-8")
    assert "ab" * 32 in page
    for label in decision.arms["label"]:
        assert label in page
    assert stat.S_IMODE((tmp_path / "statement.html").stat().st_mode) == 0o600
    assert "ab" * 32 in (tmp_path / "statement.json").read_text("utf-8")
