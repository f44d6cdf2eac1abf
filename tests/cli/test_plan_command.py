import subprocess
import sys
from pathlib import Path

from calling import called

REPOSITORY = Path(__file__).parents[2]
CODE = "import sys; from leakbound.cli.command_line import app; app(sys.argv[1:], standalone_mode=False); "


def test_plan_is_made_without_torch():
    words = ("plan", "--configfile", "config/small.yaml", "-j", "4")
    command = [sys.executable, "-c", f"{CODE}print('torch' in sys.modules)", *words]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "Wall time with 4 jobs side by side" in result.stdout
    assert result.stdout.endswith("False\n")


def test_device_of_the_plan_is_the_one_asked_for(monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    words = ("plan", "--configfile", "config/config.yaml")
    assert "on a CPU" in called(*words).out
    assert "on a GPU" in called(*words, "--device", "cuda").out
    assert "on a GPU" in called("plan", "--configfile", "config/one_gpu_hour.yaml").out


def test_table_of_another_file_is_used(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    table = tmp_path / "costs.csv"
    packaged = Path("src/leakbound/jobs/costs.csv").read_text()
    table.write_text("\n".join(line for line in packaged.splitlines() if "step_white,mlp" not in line))
    planned = called("plan", "--configfile", "config/config.yaml", "--table", table).out
    assert f"times from {table}" in planned
    assert "step_white of mlp: not measured, taken as 0.0823 times that of lenet" in planned
