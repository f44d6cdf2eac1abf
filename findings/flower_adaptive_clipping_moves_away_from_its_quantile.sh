#!/usr/bin/env bash
# Expected: Flower's adaptive clipping moves the clipping norm to the quantile of the updates' norms that was asked for, here their median 1.
# Seen:     the bit that is averaged says that an update was clipped; the rule is for one that was not. A norm below the median shrinks in each
#           round, one above it grows: from .5 to .001 and from 2 to 880 in 60 rounds. The noise of a round is scaled to the norm of the next
#           one: where all updates are clipped it is 9.5 % less than the multiplier says, at a rate of 1 it is 39 % less.
# Versions: flwr 1.42.0, numpy 2.4.6
# Date:     2026-11-30
# Means:    training stops (an update of norm .001 under its noise) or noise drowns it, and a shrinking norm has less noise than ε was computed for;
#           clip at a fixed norm, or multiply the noise by exp(rate / 2).
# Source:   flwr/supercore/differential_privacy.py, adaptive_clip_inputs_inplace; flwr/serverapp/strategy/dp_adaptive_clipping.py;
#           arXiv 1905.03871, Algorithm 1
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export FLWR_HOME=$folder/flwr FLWR_TELEMETRY_ENABLED=0
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet flwr==1.42.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import logging

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common import Array
from flwr.serverapp.strategy import DifferentialPrivacyServerSideAdaptiveClipping, FedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.run_id = TaskIdentity.node_id = TaskIdentity.task_id = 1
generator = np.random.default_rng(0)
np.random.seed(0)
clients = 20


def strategy(norm, rate=0.2):
    settings = dict(noise_multiplier=1.0, num_sampled_clients=clients, clip_norm_lr=rate, clipped_count_stddev=1.0)
    return DifferentialPrivacyServerSideAdaptiveClipping(FedAvg(), initial_clipping_norm=norm, **settings)


def average(server, norms, size):
    server.current_arrays = ArrayRecord({"weights": Array(np.zeros(size))})
    replies = []
    for norm in norms:
        update = np.zeros(size)
        update[0] = norm
        content = {"arrays": ArrayRecord({"weights": Array(update)}), "metrics": MetricRecord({"num-examples": 1})}
        asked = Message(content=RecordDict({}), dst_node_id=1, message_type="train")
        replies.append(Message(content=RecordDict(content), reply_to=asked))
    return server.aggregate_train(1, replies)[0].to_numpy_ndarrays()[0]


ends = {}
for start in (0.5, 2.0):
    server = strategy(start)
    for _ in range(60):
        average(server, generator.lognormal(0.0, 0.2, clients), 10)
    ends[start] = server.clipping_norm
    print(f"median of the updates' norms 1, clipping norm {start} at first: {ends[start]:.4f} after 60 rounds")
assert ends[0.5] < 0.01 and ends[2.0] > 100, "the behaviour has changed"
for rate in (0.2, 1.0):
    server = strategy(1.0, rate)
    noise = average(server, np.full(clients, 10.0), 100_000)[1:].std() * clients
    print(f"rate {rate}: noise {noise:.3f} where a clipping norm of 1 needs {server.noise_multiplier:.3f}")
    assert abs(noise / (server.noise_multiplier * server.clipping_norm) - 1) < 0.02
    assert noise < 0.95 * server.noise_multiplier
PY
