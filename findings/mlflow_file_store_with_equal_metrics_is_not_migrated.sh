#!/usr/bin/env bash
# Expected: `mlflow migrate-filestore`, to which 3.17 sends owners of a folder mlruns of 2.22 because it migrates losslessly, takes every run.
# Seen:     a run that logged one value of a metric twice in a millisecond at one step, as a loop without steps does, breaks it off: the
#           folder kept both, the database wants them to differ. Not one run of the folder arrives, the others neither. With steps all do.
# Versions: mlflow-skinny 2.22.0, mlflow-skinny 3.17.2, sqlalchemy 2.0.44, alembic 1.20.1
# Date:     2026-11-30
# Means:    log with steps from the start; for old folders set MLFLOW_ALLOW_FILE_STORE=true, or drop equal lines of the metric's file first.
# Source:   https://mlflow.org/docs/latest/self-hosting/migrate-from-file-store; mlflow/store/tracking/dbmodels/models.py, SqlMetric
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export MLFLOW_DISABLE_TELEMETRY=true
for version in 2.22.0 3.17.2; do
    python3 -m venv "$folder/$version"
done
"$folder/2.22.0/bin/python" -m pip install --quiet mlflow-skinny==2.22.0 sqlalchemy==2.0.44 alembic==1.20.1
"$folder/3.17.2/bin/python" -m pip install --quiet mlflow-skinny==3.17.2 sqlalchemy==2.0.44 alembic==1.20.1
cd "$folder"
cat > write.py <<'PY'
import sys

import mlflow

folder, steps = sys.argv[1:]
mlflow.set_tracking_uri(folder)
mlflow.set_experiment("levels")
with mlflow.start_run():
    mlflow.log_metric("loss", 1.5)
with mlflow.start_run():
    for batch in range(1000):
        mlflow.log_metric("clipped", 1.0, step=batch if steps == "steps" else None)
PY
cat > count.py <<'PY'
import sys

import mlflow

mlflow.set_tracking_uri(sys.argv[1])
print(len(mlflow.search_runs(search_all_experiments=True, output_format="list")))
PY
for kind in steps none; do
    2.22.0/bin/python write.py "$kind" "$kind" 2> /dev/null
    3.17.2/bin/mlflow migrate-filestore --source "$kind" --target "sqlite:///$kind.db" > "$kind.txt" 2>&1 && code=0 || code=$?
    3.17.2/bin/python count.py "sqlite:///$kind.db" > "$kind-runs.txt" 2> /dev/null
    echo "$kind: exit $code, runs in the database: $(cat "$kind-runs.txt")"
done
grep -o "UNIQUE constraint failed: metrics.key, metrics.timestamp, metrics.step" none.txt | head -n 1 || { echo "the behaviour has changed"; exit 1; }
test "$(cat steps-runs.txt none-runs.txt)" = $'2\n0'
