import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RUN = """
import sys
from leakbound.cli.command_line import app

try:
    app(sys.argv[1:])
finally:
    sys.stderr.write(f"torch: {'torch' in sys.modules}")
"""


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN, *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)


def test_plan_is_made_without_torch():
    result = run("plan", "--configfile", "config/small.yaml", "-j", "4")
    assert result.returncode == 0, result.stderr
    assert "Wall time with 4 jobs side by side" in result.stdout
    assert result.stderr.endswith("torch: False")


def test_device_of_the_plan_is_the_one_asked_for():
    words = ("plan", "--configfile", "config/config.yaml")
    assert "on a CPU" in run(*words).stdout
    assert "on a GPU" in run(*words, "--device", "cuda").stdout
    assert "on a GPU" in run("plan", "--configfile", "config/one_gpu_hour.yaml").stdout


def test_table_of_another_file_is_used(tmp_path):
    table = tmp_path / "costs.csv"
    packaged = (REPOSITORY / "src/leakbound/jobs/costs.csv").read_text()
    table.write_text("\n".join(line for line in packaged.splitlines() if "step_white,mlp" not in line))
    result = run("plan", "--configfile", "config/config.yaml", "--table", str(table))
    assert f"times from {table}" in result.stdout
    assert "step_white of mlp: not measured, taken as 0.0823 times that of lenet" in result.stdout
