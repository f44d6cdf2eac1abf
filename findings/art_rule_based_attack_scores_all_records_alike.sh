#!/usr/bin/env bash
# Expected: MembershipInferenceBlackBoxRuleBased of ART with probabilities=True gives each record a probability of membership of its own: the
#           confidence of a right prediction, one less it of a wrong one, so that both columns sum to 1.
# Seen:     of a network with two classes all records have one row, made of the last right and the last wrong one: .27 and .19. The AUC is .5
#           where the rule without probabilities has .67. With three classes rows are 0 and 1 and follow the rule.
# Versions: adversarial-robustness-toolbox 1.20.1, scikit-learn 1.6.1, numpy 2.4.6, packaging 26.4
# Date:     2026-11-30
# Means:    an undefended binary classifier looks as if nothing could be inferred; take the decisions (probabilities=False), or the confidence in
#           the label yourself, before the attack is compared with a bound.
# Source:   art/attacks/inference/membership_inference/black_box_rule_based.py, prob[:, predicted_class] = pred_prob
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet adversarial-robustness-toolbox==1.20.1 scikit-learn==1.6.1 numpy==2.4.6 packaging==26.4
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
from art.attacks.inference.membership_inference import MembershipInferenceBlackBoxRuleBased
from art.estimators.classification import SklearnClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

generator = np.random.default_rng(0)
member = np.repeat([1, 0], 100)


def attacked(classes):
    records, labels = generator.normal(size=(200, 40)), generator.integers(0, classes, 200)
    model = LogisticRegression(C=100).fit(records[:100], labels[:100])
    attack = MembershipInferenceBlackBoxRuleBased(SklearnClassifier(model))
    decisions, rows = attack.infer(records, labels), attack.infer(records, labels, probabilities=True)
    right = model.predict(records) == labels
    assert np.array_equal(decisions, right)
    confidence = model.predict_proba(records).max(axis=1)
    return decisions, rows, np.where(right, confidence, 1 - confidence)


decisions, rows, by_hand = attacked(2)
scores = {"rows of ART": rows[:, 1], "decisions of ART": decisions, "confidence by hand": by_hand}
aucs = {name: roc_auc_score(member, score) for name, score in scores.items()}
for name, auc in aucs.items():
    print(f"two classes, {name}: AUC {auc:.3f}")
print(f"different rows: {len(np.unique(rows, axis=0))}; the row {rows[0].round(3)}, its sum {rows[0].sum():.3f}")
assert len(np.unique(rows, axis=0)) == 1 and aucs["rows of ART"] == 0.5, "the behaviour has changed"
assert aucs["decisions of ART"] > 0.6 and aucs["confidence by hand"] > 0.6

decisions, rows, _ = attacked(3)
print(f"three classes: AUC {roc_auc_score(member, rows[:, 1]):.3f} of rows, {roc_auc_score(member, decisions):.3f} of decisions")
assert np.array_equal(rows[:, 1], decisions)
PY
