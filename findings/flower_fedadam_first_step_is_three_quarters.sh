#!/usr/bin/env bash
# Expected: the first step of FedAdam moves each weight by eta, as the bias correction of Adam is made to do.
# Seen:     rounds are numbered from 1, and the correction counts server_round + 1: the first step is .742 eta.
#           Later steps come nearer to eta.
# Versions: flwr 1.42.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    a server's update is no exact Adam step of the clients' average; who infers the average from weights needs the factor.
# Source:   flwr/serverapp/strategy/fedadam.py, aggregate_train; Kingma and Ba 2014
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
from flwr.serverapp.strategy import FedAdam
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages are made outside a run


def reply(weights):
    arrays = ArrayRecord({"weights": Array(weights)})
    asked = Message(RecordDict(), dst_node_id=1, message_type="train")
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=asked)


strategy = FedAdam(eta=0.1, beta_1=0.9, beta_2=0.99, tau=1e-9)
strategy.current_arrays = {"weights": np.zeros(2)}
arrays, _ = strategy.aggregate_train(1, [reply(np.ones(2)), reply(np.ones(2))])
step = float(arrays["weights"].numpy()[0]) / 0.1
expected = np.sqrt(1 - 0.99**2) / (1 - 0.9**2) * 0.1 / np.sqrt(0.01)
print(f"first step of FedAdam: {step:.4f} eta; of Adam: 1 eta")
assert abs(step - expected) < 1e-6 and step < 0.75, "the behaviour has changed"
PY
