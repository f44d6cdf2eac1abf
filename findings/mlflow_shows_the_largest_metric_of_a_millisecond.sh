#!/usr/bin/env bash
# Expected: of two values of a metric at one step and one time stamp, the one that was logged last is the run's.
# Seen:     the largest is: 2.0 and then 1.0 gives 2.0, in one batch and in two calls. Time stamps have milliseconds, and the step
#           is 0 unless it is given. Equal values are kept once in the history.
# Versions: mlflow-skinny 3.17.2, sqlalchemy 2.0.44, alembic 1.20.1
# Date:     2026-11-29
# Means:    a loss or an attack's error that is corrected within a millisecond stays at its larger value in the table of runs: give steps.
# Source:   mlflow/store/tracking/sqlalchemy_store.py, _update_latest_metrics_if_necessary
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export MLFLOW_DISABLE_TELEMETRY=true
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet mlflow-skinny==3.17.2 sqlalchemy==2.0.44 alembic==1.20.1
cd "$folder"
"$folder/venv/bin/python" - 2> /dev/null <<'PY'
import mlflow
from mlflow.entities import Metric

mlflow.set_tracking_uri("sqlite:///mlflow.db")
client = mlflow.MlflowClient()
now = 1_790_000_000_000
with mlflow.start_run() as run:
    number = run.info.run_id
    client.log_batch(number, metrics=[Metric("batch", 2.0, now, 0), Metric("batch", 1.0, now, 0)])
    for value in (2.0, 1.0, 1.0):
        client.log_metric(number, "calls", value, timestamp=now)
    for step, value in enumerate((2.0, 1.0)):
        client.log_metric(number, "steps", value, timestamp=now, step=step)
found = mlflow.get_run(number).data.metrics
history = [metric.value for metric in client.get_metric_history(number, "calls")]
print(f"2.0 and then 1.0: {found}; history of three calls: {sorted(history)}")
assert found["steps"] == 1.0
assert found["batch"] == found["calls"] == 2.0, "the behaviour has changed"
assert sorted(history) == [1.0, 2.0]
PY
