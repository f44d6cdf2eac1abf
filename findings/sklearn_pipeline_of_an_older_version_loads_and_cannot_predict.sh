#!/usr/bin/env bash
# Expected: a pipeline saved under scikit-learn 1.4 either predicts under 1.9, with a warning, or is refused when it is loaded.
# Seen:     it loads with warnings, and fails at the first prediction if it holds a SimpleImputer ('_fill_dtype'); without one it
#           predicts the same to the last bit. skops, which carries no code, does the same. A NumPy generator of 2.4 cannot be
#           unpickled under 1.26 at all, one of 1.26 can under 2.4.
# Versions: scikit-learn 1.4.2, numpy 1.26.4, scikit-learn 1.9.1, numpy 2.4.6, skops 0.16.0
# Date:     2026-11-29
# Means:    keep the versions with a saved pipeline and try one prediction after loading; a saved state of random numbers goes only forward.
# Source:   https://scikit-learn.org/stable/model_persistence.html#security-maintainability-limitations
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/old"
python3 -m venv "$folder/new"
"$folder/old/bin/python" -m pip install --quiet scikit-learn==1.4.2 numpy==1.26.4 skops==0.16.0
"$folder/new/bin/python" -m pip install --quiet scikit-learn==1.9.1 numpy==2.4.6 skops==0.16.0
cd "$folder"
cat > write.py <<'PY'
import pickle
import sys

import numpy as np
import skops.io
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

rows = np.random.default_rng(0).normal(size=(60, 3))
classes = (rows.sum(1) > 0).astype(int)
for name, parts in {"imputed": [SimpleImputer()], "plain": []}.items():
    model = make_pipeline(*parts, StandardScaler(), LogisticRegression()).fit(rows, classes)
    skops.io.dump(model, f"{name}.skops")
    with open(f"{name}.pkl", "wb") as file:
        pickle.dump((model, rows, model.predict_proba(rows)), file)
with open(f"generator-{sys.argv[1]}.pkl", "wb") as file:
    pickle.dump(np.random.default_rng(3), file)
PY
cat > read.py <<'PY'
import pickle

import numpy as np
import skops.io

found = {}
for name in ("plain", "imputed"):
    with open(f"{name}.pkl", "rb") as file:
        pickled, rows, expected = pickle.load(file)
    trusted = skops.io.get_untrusted_types(file=f"{name}.skops")
    for kind, model in {"pickle": pickled, "skops": skops.io.load(f"{name}.skops", trusted=trusted)}.items():
        try:
            found[name, kind] = "same" if np.array_equal(model.predict_proba(rows), expected) else "other"
        except AttributeError as error:
            found[name, kind] = str(error)
        print(f"{name}, {kind}: loaded; predictions: {found[name, kind]}")
assert found["plain", "pickle"] == found["plain", "skops"] == "same"
for kind in ("pickle", "skops"):
    assert "_fill_dtype" in found["imputed", kind], "the behaviour has changed"
with open("generator-old.pkl", "rb") as file:
    assert pickle.load(file).normal() == np.random.default_rng(3).normal()
PY
old/bin/python -W ignore write.py old
new/bin/python -W ignore read.py
new/bin/python -W ignore write.py new
if old/bin/python -c 'import pickle; pickle.load(open("generator-new.pkl", "rb"))' 2> log.txt; then
    echo "a generator of NumPy 2.4 is read by 1.26: the behaviour has changed"
    exit 1
fi
echo "generator of NumPy 2.4 under 1.26: $(tail -n 1 log.txt)"
grep -q "is not a known BitGenerator" log.txt
