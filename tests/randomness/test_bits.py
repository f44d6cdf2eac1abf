"""Which bytes do not depend on the processor, the threads or the kernels of BLAS, as far as one machine tells."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the variables choose among kernels of x86-64"),
]

SCRIPT = """
import sys
import numpy as np, torch
from safetensors.numpy import save_file
from leakbound.channels import estimate_moments, shapes
from leakbound.randomness.seeding import numpy_generator, torch_generator
from leakbound.randomness.sources import SeededNoise

torch.set_num_threads(int(sys.argv[2]))
source = lambda: SeededNoise(torch_generator(0, "noise"))
generator = numpy_generator(0, "records")
records = generator.standard_normal((1000, 256)) * 0.95 ** np.arange(256) @ generator.standard_normal((256, 256))
white = shapes.White.calibrate(shapes.White.decompose(estimate_moments([records])), 2.0)
torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(6272, 10))
images = numpy_generator(0, "images").standard_normal((64, 3, 32, 32)).astype(np.float32)
network(torch.from_numpy(images)).square().mean().backward()
save_file({
    "records": numpy_generator(0, "records").standard_normal((1000, 256)),
    "noise": source().normal((64, 3, 32, 32), torch.float32).numpy(),
    "noise in float64": source().normal((64, 3, 32, 32), torch.float64).numpy(),
    "samples": source().uniform(10_000).numpy(),
    "noise covariance": np.ascontiguousarray(white.noise_covariance()),
    "gradient": network[0].weight.grad.numpy(),
}, sys.argv[1])
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Results of one script by what was set: variables of kernels, and threads."""
    folder = tmp_path_factory.mktemp("bits")
    ways = {
        "as is": {},
        "again": {},
        "plain kernels": {"ATEN_CPU_CAPABILITY": "default"},
        "older BLAS": {"OPENBLAS_CORETYPE": "Prescott"},
        "two threads": {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    }
    found = {}
    for name, variables in ways.items():
        path, threads = folder / f"{name}.safetensors", variables.get("OMP_NUM_THREADS", "1")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **variables}
        subprocess.run([sys.executable, "-c", SCRIPT, path, threads], env=environment, check=True)
        found[name] = load_file(path)
    return found


def test_the_same_machine_gives_the_same_bytes(made):
    assert {name: values.tobytes() for name, values in made["as is"].items()} == {
        name: values.tobytes() for name, values in made["again"].items()
    }


@pytest.mark.parametrize("way", ["plain kernels", "older BLAS", "two threads"])
def test_draws_that_decide_and_noise_in_float64_are_the_same_bytes_everywhere(made, way):
    for name in ("records", "noise in float64", "samples"):
        assert made[way][name].tobytes() == made["as is"][name].tobytes(), name


@pytest.mark.parametrize("way", ["older BLAS", "two threads"])
def test_noise_in_float32_depends_on_the_processor_alone(made, way):
    assert made[way]["noise"].tobytes() == made["as is"]["noise"].tobytes()


def test_other_kernels_change_last_digits_and_no_more(made):
    assert np.abs(made["plain kernels"]["noise"] - made["as is"]["noise"]).max() < 1e-5
    for way in ("plain kernels", "older BLAS", "two threads"):
        for name, relative in {"noise covariance": 1e-6, "gradient": 1e-4}.items():
            scale = np.abs(made["as is"][name]).max()
            assert np.abs(made[way][name] - made["as is"][name]).max() < relative * scale, (way, name)
