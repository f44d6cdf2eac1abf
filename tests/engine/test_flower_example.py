"""The example for Flower in Flower's own simulation; Flower has an environment of its own: ``make test-flower``."""

import pytest
from test_examples import lines, run

pytest.importorskip("flwr", reason="Flower has an environment of its own: run `make test-flower`")
pytest.importorskip("ray", reason="Flower's simulation engine needs ray: run `make test-flower`")
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_federation_learns_and_its_clients_tell_their_bound():
    text, plain = lines("flower_client.py")
    defended = run(text, "--rounds", "3", "--nats", "60")
    assert defended["accuracy"] > 0.5  # chance is 0.1
    assert 60 < defended["leakage-nats"] <= 60 + 2.303  # labels on top
    assert "leakage-nats" not in run(plain, "--rounds", "1")
