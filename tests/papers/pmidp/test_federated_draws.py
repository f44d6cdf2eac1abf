"""Every client draws noise of its own in every round, and so does the server."""

import itertools
import math

import numpy as np
import torch

from leakbound.papers.pmidp.averaging import Federation

WIDE = {"max_param_norm": 1e3, "learning_rate": 1e-9}  # nothing is clipped, and nothing is learned


def noise_of_round(federation: Federation, number: int) -> torch.Tensor:
    """What the uploads of a round hold beside what the server sent, in units of its standard deviation."""
    federation.round = number
    asked = federation.noise()
    uploads, _ = federation._uploads(range(6), asked)
    noise = (uploads - federation.parameters).double()
    return noise / torch.from_numpy(asked.client_std)[:, None]


def test_noise_of_clients_and_rounds_is_independent(make_request):
    """Six clients, two rounds, two replicas: 24 vectors of about 33,000 standard normal numbers, 276 pairs."""
    request = make_request("client", replicas=2, **WIDE)
    drawn = torch.cat([noise_of_round(Federation(request, replica), n) for replica in range(2) for n in range(2)])
    correlations = torch.corrcoef(drawn).numpy()
    # Six standard errors: false alarm 6e-7 over all pairs.
    assert np.abs(correlations - np.eye(24)).max() < 6 / math.sqrt(drawn.shape[1])
    np.testing.assert_allclose(drawn.std(dim=1), 1.0, rtol=0.05)


def test_noise_of_the_server_is_independent_from_round_to_round(make_request):
    federation = Federation(make_request("server", **WIDE), 0)
    sent, std = [federation.parameters], federation.noise().server_std
    while federation.advance() and len(sent) < 4:
        sent.append(federation.parameters)
    steps = [(after - before).double() for before, after in itertools.pairwise(sent)]
    assert len(steps) == 3
    for one, two in itertools.combinations(steps, 2):
        # Five standard errors of a correlation: false alarm 6e-7 each.
        assert abs(torch.corrcoef(torch.stack([one, two]))[0, 1].item()) < 5 / math.sqrt(len(one))
        assert abs(one.std().item() / std - 1) < 0.05
