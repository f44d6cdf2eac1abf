#!/usr/bin/env bash
# Expected: the empirical ε of PrivacyGuard's MIAResults.compute_acc_auc_epsilon grows with the attack, up to the logarithm of the number of
#           members, its cap.
# Seen:     values above the cap are set to 0, infinite ones with them: an attack with an AUC of .997 has 6.7, one that separates all 1,000
#           members from all others has .001. compute_metrics_at_error_threshold sets them to the cap, 6.9.
# Versions: privacyguard-platform 0.0.2, torch 2.13.0, scikit-learn 1.9.1, scipy 1.17.1, numpy 2.4.6, tqdm 4.70.1
# Date:     2026-11-30
# Means:    the worst leak passes an audit by the FPR lower bound analysis as none; compare with the AUC, or with the ε of Clopper and Pearson.
# Source:   privacy_guard/analysis/mia/mia_results.py, eps1[eps1 > eps_ub] = 0.0
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0 scikit-learn==1.9.1 scipy==1.17.1 numpy==2.4.6 tqdm==4.70.1
"$folder/venv/bin/python" -m pip install --quiet --no-deps privacyguard-platform==0.0.2
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import torch
from privacy_guard.analysis.mia.mia_results import MIAResults

generator = torch.Generator().manual_seed(0)
noise = torch.randn(2, 1000, generator=generator, dtype=torch.float64)
found = {}
for gap in (1.0, 2.0, 4.0, 10.0):
    results = MIAResults(noise[0] + gap, noise[1])
    _, auc, found[gap] = results.compute_acc_auc_epsilon(1e-5)
    capped = max(results.compute_metrics_at_error_threshold(1e-5, np.linspace(0.01, 1, 100))[4])
    exact = results.compute_acc_auc_ci_epsilon(1e-5)[2]
    print(f"members' scores {gap:g} higher: AUC {auc:.4f}, ε {found[gap]:.3f}; capped {capped:.2f}, Clopper and Pearson {exact:.2f}")
assert found[1.0] < found[2.0] < found[4.0]
assert auc == 1.0 and capped > 6.9 and exact > 5
assert found[10.0] < 0.01, "the behaviour has changed"
PY
