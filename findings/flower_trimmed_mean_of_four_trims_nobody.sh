#!/usr/bin/env bash
# Expected: FedTrimmedAvg(beta=0.2) drops at least the largest and the smallest value of four clients, or says that it cannot.
# Seen:     int(0.2 · 4) = 0 values are cut at each end: 1, 2, 3 and 6 have the mean 3.0, where the two in the middle have
#           2.5. It is a mean without the number of examples, too. From five clients on one is cut at each end.
# Versions: flwr 1.42.0, numpy 2.4.6
# Date:     2026-11-29
# Means:    with up to four clients the default trims nothing; what an average hides of one client is that of a plain average.
# Source:   flwr/serverapp/strategy/fedtrimmedavg.py, trim_mean
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
from flwr.serverapp.strategy import FedTrimmedAvg
from flwr.supercore.task_identity import TaskIdentity

logging.disable(logging.CRITICAL)
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1  # messages are made outside a run


def average(values):
    replies = []
    for number, value in enumerate(values):
        arrays = ArrayRecord({"weights": Array(np.full(2, value))})
        asked = Message(RecordDict(), dst_node_id=number + 1, message_type="train")
        metrics = MetricRecord({"num-examples": 10 ** (number + 1)})
        replies.append(Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=asked))
    arrays, _ = FedTrimmedAvg(beta=0.2).aggregate_train(1, replies)
    return float(arrays["weights"].numpy()[0])


four, five = average([1.0, 2.0, 3.0, 6.0]), average([1.0, 2.0, 3.0, 4.0, 6.0])
print(f"four clients 1, 2, 3 and 6: {four}; five clients 1, 2, 3, 4 and 6: {five}")
assert four == 3.0, "the behaviour has changed"
assert five == 3.0 != np.mean([1.0, 2.0, 3.0, 4.0, 6.0])
PY
