#!/usr/bin/env bash
# Expected: an epoch that StatefulDataLoader resumes from its state visits each record once, before and after together.
# Seen:     so it is with shuffle=True. With SubsetRandomSampler, as clients of a split have it, a new order is drawn and as many batches of
#           it are skipped: of 100 records 21 come twice, and 21 never.
# Versions: torchdata 0.11.0, torch 2.13.0, numpy 2.4.6
# Date:     2026-11-30
# Means:    a record that may be used once an epoch is used twice: a limit on uses, or an ε for batches without repetition, does not hold over
#           a restart. Use Subset and shuffle=True, or a sampler with a generator that is seeded by the epoch.
# Source:   torchdata/stateful_dataloader/README.md of v0.11.0 (fast-forward of the sampler); torchdata/stateful_dataloader/sampler.py
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet torch==2.13.0
"$folder/venv/bin/python" -m pip install --quiet torchdata==0.11.0 numpy==2.4.6
"$folder/venv/bin/python" -W ignore - <<'PY'
import torch
from torch.utils.data import Subset, SubsetRandomSampler
from torchdata.stateful_dataloader import StatefulDataLoader

records, client = list(range(200)), list(range(0, 200, 2))


def visits(dataset, **how):
    torch.manual_seed(0)
    loader = StatefulDataLoader(dataset, batch_size=10, **how)
    batches = iter(loader)
    before = [number for _ in range(5) for number in next(batches).tolist()]
    state = loader.state_dict()
    torch.manual_seed(1)  # another process draws other numbers
    resumed = StatefulDataLoader(dataset, batch_size=10, **how)
    resumed.load_state_dict(state)
    after = [number for batch in resumed for number in batch.tolist()]
    return torch.tensor(before + after).bincount(minlength=200)[client]


shuffled = visits(Subset(records, client), shuffle=True)
sampled = visits(records, sampler=SubsetRandomSampler(client))
twice, never = int((sampled == 2).sum()), int((sampled == 0).sum())
print(f"100 records, resumed after 50: shuffle=True {int((shuffled == 1).sum())} once; sampler {twice} twice, {never} never")
assert (shuffled == 1).all()
assert twice == never > 10, "the behaviour has changed"
PY
