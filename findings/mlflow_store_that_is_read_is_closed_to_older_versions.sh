#!/usr/bin/env bash
# Expected: a SQLite store of MLflow 2.22 is changed by `mlflow db upgrade` alone; 3.17 refuses it until then, or reads it as it is.
# Seen:     a search by 3.17 brings the tables to its own schema, in place and unasked; afterwards 2.22 fails with "Can't locate revision".
#           Runs keep the folder of their artifacts by its full path: once the project is moved they list none, without an error.
# Versions: mlflow-skinny 2.22.0, mlflow-skinny 3.17.2, sqlalchemy 2.0.44, alembic 1.20.1
# Date:     2026-11-29
# Means:    copy mlflow.db before a newer version looks at it; where a team shares a store, all upgrade at once.
# Source:   https://mlflow.org/docs/latest/ml/tracking/backend-stores/ (upgrades by mlflow db upgrade)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export MLFLOW_DISABLE_TELEMETRY=true
for version in 2.22.0 3.17.2; do
    python3 -m venv "$folder/$version"
done
"$folder/2.22.0/bin/python" -m pip install --quiet mlflow-skinny==2.22.0 sqlalchemy==2.0.44 alembic==1.20.1
"$folder/3.17.2/bin/python" -m pip install --quiet mlflow-skinny==3.17.2 sqlalchemy==2.0.44 alembic==1.20.1
mkdir "$folder/project" "$folder/moved"
cd "$folder/project"
cat > write.py <<'PY'
import mlflow

mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.set_experiment("levels")
with mlflow.start_run():
    mlflow.log_metric("loss", 1.5)
    mlflow.log_text("text", "note.txt")
PY
cat > read.py <<'PY'
import mlflow

mlflow.set_tracking_uri("sqlite:///mlflow.db")
(run,) = mlflow.search_runs(experiment_names=["levels"], output_format="list")
print(run.data.metrics, [file.path for file in mlflow.MlflowClient().list_artifacts(run.info.run_id)])
PY
old=$folder/2.22.0/bin/python new=$folder/3.17.2/bin/python
"$old" write.py 2> /dev/null
echo "2.22 reads its store: $("$old" read.py 2> /dev/null)"
seen=$("$new" read.py 2> /dev/null) || { echo "3.17 refuses the store: the behaviour has changed"; exit 1; }
echo "3.17 reads it: $seen"
test "$seen" = "{'loss': 1.5} ['note.txt']"
if "$old" read.py > log.txt 2>&1; then echo "2.22 still reads it: the behaviour has changed"; exit 1; fi
echo "2.22 afterwards: $(grep -o "Can't locate revision" log.txt | head -n 1)"
mv mlflow.db mlruns read.py "$folder/moved"
cd "$folder/moved"
moved=$("$new" read.py 2> /dev/null)
echo "3.17 after the project has moved: $moved"
test "$moved" = "{'loss': 1.5} []"
