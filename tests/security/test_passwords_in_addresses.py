"""A password in an address is refused before it reaches command lines, files and messages. Other addresses are kept."""

import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import yaml

from calling import refusal
from leakbound_lab.config import reading
from leakbound_lab.config.messages import ConfigError
from leakbound_lab.config.whole import TrackingConfig

ROOT = Path(__file__).parents[2]
SECRET = "hunter2-hunter2"
REFUSED = [
    f"postgresql://alice:{SECRET}@db.example.org/mlflow",
    f"postgresql://alice%3A{SECRET}@db.example.org/mlflow",
    f"postgresql://alice%253a{SECRET}@db.example.org/mlflow",
    f"postgresql://alice:{SECRET}/with?slash#@db.example.org/mlflow",
    f"mysql://localhost/mlflow?passwd={SECRET}",
    f"postgresql:///mlflow?user=alice&password={SECRET}",
    f"postgresql:///mlflow?%70assword={SECRET}",
    f"postgresql:///mlflow?pass%2577ord%3D{SECRET}",
    f"postgresql:///host=db%20password%20=%20{SECRET}",
    f"mssql+pyodbc:///?odbc_connect=DRIVER%3Dx%3BUID%3Dalice%3BPWD%3D{SECRET}",
    f"HTTP://alice:{SECRET}@tracking.example.org:5000",
    f"https://{SECRET}@tracking.example.org",
    f"https://tracking.example.org/?access_token={SECRET}",
    f"postgresql://alice:hunter%402@db.example.org/?%70assword={SECRET}",
    f"postgresql://alice:at@{SECRET}@db.example.org/mlflow",
]
ALLOWED = [
    "sqlite:///results/mlflow.db",
    "sqlite:////home/alice@work/results/mlflow.db",
    "postgresql://alice@db.example.org:5432/mlflow?passfile=/home/alice/.pgpass&sslmode=verify-full",
    "postgresql://alice%40example.org@db.example.org/mlflow",
    "postgresql://db.example.org:5432/mlflow?passfile=/home/alice%40work/.pgpass",
    "https://tracking.example.org:8443/mlflow",
]


def configuration(folder: Path, **tracking: object) -> Path:
    """The quick preset with other settings of the tracker."""
    values = yaml.safe_load((ROOT / "config" / "config.yaml").read_text())
    values["tracking"] |= tracking
    path = folder / "given.yaml"
    path.write_text(yaml.safe_dump(values))
    return path


@pytest.mark.parametrize("setting", ["uri", "ui"])
@pytest.mark.parametrize("address", REFUSED)
def test_password_is_refused_in_any_spelling_and_not_repeated(tmp_path, address, setting):
    path = configuration(tmp_path, **{setting: address})
    with pytest.raises(ConfigError) as caught:
        reading.load(path)
    assert f"tracking.{setting} = " in str(caught.value)
    for text in (str(caught.value), "".join(traceback.format_exception(caught.value))):
        assert SECRET not in text
    if setting == "uri":
        assert "MLFLOW_TRACKING_PASSWORD" in str(caught.value)
        assert "~/.pgpass" in str(caught.value)


@pytest.mark.parametrize("address", ALLOWED)
def test_address_without_a_password_is_taken_as_it_is(address):
    assert TrackingConfig(uri=address).uri == address


@pytest.mark.parametrize(
    "values",
    [
        f"postgresql://alice:{SECRET}@db/mlflow",
        {"uri": [f"postgresql://alice:{SECRET}@db/mlflow"]},
        {"uri": f"postgresql://alice:{SECRET}{'x' * 3000}@db/mlflow"},
        {"url": f"postgresql://alice:{SECRET}@db/mlflow"},
        {f"postgresql://alice:{SECRET}@db/mlflow": 1},
        {"enabled": f"password={SECRET}"},
        {"enabled": f"postgresql://alice:{SECRET}{'x' * 40}@{'h' * 80}/mlflow"},  # the @ is where a message is cut
    ],
)
def test_mistakes_about_other_things_do_not_print_a_password_either(tmp_path, values):
    path = configuration(tmp_path)
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "tracking": values}))
    with pytest.raises(ConfigError) as caught:
        reading.load(path)
    assert "tracking" in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_commands_and_the_workflow_refuse_it_and_print_nothing_of_it(tmp_path):
    path = configuration(tmp_path, uri=REFUSED[0])
    for words in (["config"], ["sync"], ["ui"], ["plan"]):
        assert SECRET not in refusal(*words, "--configfile", path)
    assert SECRET not in refusal("step", "log-figures", "--configfile", path)
    assert not (tmp_path / "m").exists()
    run = [sys.executable, "-m", "snakemake", "-n", "-p", "-j1", "--configfile", path, "--directory", tmp_path]
    run += ["-s", ROOT / "workflow/Snakefile", "--workflow-profile", "none"]
    workflow = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert workflow.returncode != 0
    assert "tracking.uri" in workflow.stdout  # where Snakemake prints all of a dry run
    assert SECRET not in workflow.stdout + workflow.stderr
