#!/usr/bin/env bash
# Expected: a network with PyTorchModelHubMixin that was made with width=np.int64(5) and clip=np.float32(0.5) is saved with 5 and 0.5, or is
#           refused, and is loaded with them.
# Seen:     what JSON does not know is replaced by the default of the signature in config.json, without a word: the network is
#           loaded with width 3 and clip 1.0. np.float64(0.5), which is a float, stays; a dtype does not.
# Versions: huggingface_hub 2.4.0, torch 2.13.0, numpy 2.4.6, safetensors 0.8.0
# Date:     2026-11-30
# Means:    a clipping norm or a level of noise that came out of a computation is another one in the hands of who loads the network: call
#           float() and int() first, and compare config.json.
# Source:   huggingface_hub/hub_mixin.py, ModelHubMixin.__new__; https://huggingface.co/docs/huggingface_hub/package_reference/mixins
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export HF_HOME=$folder/hub HF_HUB_OFFLINE=1
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet huggingface_hub==2.4.0 torch==2.13.0 numpy==2.4.6 safetensors==0.8.0
cd "$folder"
"$folder/venv/bin/python" -W error::UserWarning - <<'PY'
import json
from pathlib import Path

import numpy as np
import torch
from huggingface_hub import PyTorchModelHubMixin


class Network(torch.nn.Module, PyTorchModelHubMixin):
    def __init__(self, width=3, clip=1.0, level=1.0):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.settings = {"width": width, "clip": clip, "level": level}


network = Network(width=np.int64(5), clip=np.float32(0.5), level=np.float64(0.25))
network.save_pretrained("network")
saved, loaded = json.loads(Path("network/config.json").read_text()), Network.from_pretrained("network").settings
print(f"made with {network.settings}\nconfig.json {saved}\nloaded with {loaded}")
assert loaded["level"] == 0.25
assert (loaded["width"], loaded["clip"]) == (3, 1.0), "the behaviour has changed"
PY
