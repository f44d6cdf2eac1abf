"""Features of a frozen encoder behind a channel: its assumption, its bound and an attack, on images and on texts."""

import numpy as np
import pytest
from test_examples import lines, run

from leakbound import Capacity, Channel
from leakbound.accounting.risk import demonstrated_information, naming_bound

NATS, CANDIDATES = 4.0, 64


@pytest.fixture(scope="module", params=["images", "text"])
def features(request) -> dict[str, np.ndarray]:
    """Of the records that the encoder has learned from, of other public ones, and of private ones."""
    script: dict = {"__name__": "example"}
    exec(compile(lines("embeddings.py")[0], "example", "exec"), script)
    records, labels = (script["digits"] if request.param == "images" else script["paragraphs"])()
    order = np.random.default_rng(0).permutation(len(records))
    learned, public, private = np.array_split(order, 3)
    encoder = script["image_encoder" if request.param == "images" else "text_encoder"]
    encode = encoder(records[learned], labels[learned])
    return {"learned": encode(records[learned]), "public": encode(records[public]), "private": encode(records[private])}


def told(channel: Channel, rows: np.ndarray) -> float:
    """Capacity of a natural channel for the law that has the covariance of these rows, in nats."""
    variance = channel.calibration_.channel.variances[0]
    return 0.5 * float(np.linalg.slogdet(np.eye(rows.shape[1]) + np.cov(rows.T, bias=True) / variance)[1])


def test_a_channel_that_is_calibrated_on_other_public_records_keeps_its_capacity_on_private_ones(features):
    channel = Channel(Capacity(NATS)).fit(features["public"])
    assert told(channel, features["public"]) == pytest.approx(NATS, rel=0.05)  # but for shrinkage of the covariance
    assert told(channel, features["private"]) < 1.1 * NATS


def test_naming_private_records_by_their_noisy_features_stays_below_the_bound(features):
    channel = Channel(Capacity(NATS)).fit(features["public"])
    rng, private = np.random.default_rng(1), features["private"]
    trials, hits = 500, {"noisy": 0, "clean": 0}
    for _ in range(trials):
        listed = private[rng.choice(len(private), CANDIDATES, replace=False)]
        for kind, seen in (("noisy", channel.transform(listed[:1])), ("clean", listed[:1])):
            hits[kind] += int(np.square(listed - seen).sum(axis=1).argmin() == 0)
    assert hits["clean"] > 0.99 * trials  # undefended features name their record
    assert 0.25 < demonstrated_information(hits["noisy"], trials, CANDIDATES) < NATS
    assert hits["noisy"] / trials < naming_bound(NATS, CANDIDATES)


@pytest.mark.parametrize(("what", "least"), [("images", 0.9), ("text", 0.55)])
def test_a_classifier_learns_from_protected_features(what, least, capsys):
    text, plain = lines("embeddings.py")
    undefended, defended = run(plain, what), run(text, what, "--nats", "10")
    assert least < defended < undefended + 0.05
    assert "at most 10.000 nats" in capsys.readouterr().out
