#!/usr/bin/env bash
# Expected: LocalDpMod(epsilon=10, delta=1e-5) adds noise that gives (10, 1e-5).
# Seen:     the noise is that of the classical formula, sensitivity · sqrt(2 ln(1.25/δ)) / ε, whose proof needs ε < 1, and no ε is
#           refused. At ε = 10 the noise has δ = 2.3e-5 and at ε = 20 δ = 1.5e-3, by the exact curve of the Gaussian mechanism;
#           at ε = .5 δ is 1.6e-8, and the noise larger than it need be.
# Versions: flwr 1.42.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    an ε above 1 that such a client states is too small; compute it from the noise (Balle and Wang 2018).
# Source:   https://flower.ai/docs/framework/how-to-use-differential-privacy.html; Balle and Wang 2018, Theorem 8
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export FLWR_HOME=$folder/flwr FLWR_TELEMETRY_ENABLED=0
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet flwr==1.42.0 numpy==2.4.6
"$folder/venv/bin/python" - <<'PY'
import logging
import math
from statistics import NormalDist

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp.mod import LocalDpMod
from flwr.common import Array
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages are made outside a run
normal = NormalDist().cdf


def exact_delta(epsilon, deviation):
    """δ of Gaussian noise at sensitivity 1."""
    return normal(0.5 / deviation - epsilon * deviation) - math.exp(epsilon) * normal(-0.5 / deviation - epsilon * deviation)


def noise(epsilon):
    """Deviation of what LocalDpMod adds to 400,000 weights that did not move."""
    start = ArrayRecord({"weights": Array(np.zeros(400_000))})
    moved = np.zeros(400_000)
    moved[0] = 1e-9  # an update of exactly 0 cannot be clipped
    message = Message(RecordDict({"arrays": start}), dst_node_id=1, message_type="train")
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config={})
    mod = LocalDpMod(clipping_norm=1.0, sensitivity=1.0, epsilon=epsilon, delta=1e-5)

    def client(received, _):
        return Message(RecordDict({"arrays": ArrayRecord({"weights": Array(moved)})}), reply_to=received)

    reply = mod(message, context, client)
    return float(reply.content["arrays"]["weights"].numpy().std())


for epsilon in (0.5, 10.0, 20.0):
    deviation, classical = noise(epsilon), math.sqrt(2 * math.log(1.25e5)) / epsilon
    delta = exact_delta(epsilon, classical)
    print(f"epsilon {epsilon}, delta 1e-5: noise {deviation:.4f}, classical {classical:.4f}, true delta {delta:.2g}")
    assert abs(deviation / classical - 1) < 0.01, "the behaviour has changed: the noise is another"
    assert (delta > 2e-5) == (epsilon > 1)
PY
