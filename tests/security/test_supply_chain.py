"""What is installed is what was locked: altered files, missing hashes and known vulnerabilities are noticed."""

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from bad_server import answering

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", " ")
README = (ROOT / "README.md").read_text()


def wheel(folder: Path, content: str) -> Path:
    """A wheel of one module, as an index would serve it."""
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny.py", content)
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "tiny.py,,\n")
    return path


def installed(folder: Path, lock: str) -> subprocess.CompletedProcess:
    """Outcome of the Makefile's own words for a lock, with a folder in place of the index."""
    (folder / "tiny.lock").write_text(lock)
    words = shlex.split(re.search(r"^INSTALL := (.*)$", MAKEFILE, re.M)[1])
    command = [sys.executable, *words, "--isolated", "--no-index", "--find-links", str(folder), "--no-cache-dir"]
    command += ["--target", str(folder / "target"), "-r", str(folder / "tiny.lock")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_wheel_that_was_altered_after_it_was_locked_is_not_installed(tmp_path):
    honest = hashlib.sha256(wheel(tmp_path, "x = 1\n").read_bytes()).hexdigest()
    lock = f"tiny==1.0 --hash=sha256:{honest}\n"
    assert installed(tmp_path, lock).returncode == 0
    assert (tmp_path / "target/tiny.py").read_text() == "x = 1\n"
    (tmp_path / "target/tiny.py").unlink()
    wheel(tmp_path, "import os; os.system('true')\n")
    refused = installed(tmp_path, lock)
    assert refused.returncode != 0
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert not (tmp_path / "target/tiny.py").exists()


@pytest.mark.parametrize("text", [MAKEFILE, README], ids=["Makefile", "README"])
def test_every_install_command_wants_hashes_or_builds_the_project_alone(text):
    commands = re.findall(r"pip install ([^\n&|]*)", text)
    assert len(commands) >= 2
    for command in commands:
        alone = command.replace("--quiet ", "").startswith("--no-deps --no-build-isolation -e .")
        assert "--require-hashes" in command or alone, command


@contextmanager
def advisories(vulnerable: str | None):
    """Address of an index that answers as OSV does and knows one vulnerable package, or none."""
    seen: set[str] = set()

    def answer(request, content):
        package = json.loads(content)["package"]
        seen.add(package["name"])
        found = {"id": "PYSEC-2026-1", "summary": "It leaks.", "affected": [{"package": package}]}
        return 200, json.dumps({"vulns": [found]} if package["name"] == vulnerable else {}).encode()

    with answering(answer) as address:
        yield f"{address}/v1/query", seen


def audit(address: str, root: Path = ROOT) -> subprocess.CompletedProcess:
    """Outcome of the audit that `make check` runs."""
    environment = {**os.environ, "LEAKBOUND_ADVISORIES": address, "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, root / ".ci" / "audit"]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)


def test_audit_fails_when_an_advisory_is_known_and_asks_for_everything_locked():
    with advisories("torch") as (address, seen):
        outcome = audit(address)
    assert outcome.returncode == 1
    assert re.search(r"torch\s+2\.13\.0\s+PYSEC-2026-1", outcome.stdout)
    locks = "\n".join(path.read_text() for path in ROOT.glob("requirements/*.lock"))
    assert {name.lower() for name in re.findall(r"^([a-z0-9._-]+)==", locks, re.M)} <= seen


def test_audit_passes_without_advisories(tmp_path):
    locks = ("requirements/build.lock", "requirements/torch.lock")  # of all it is seen to ask above
    for name in (".ci/audit", *locks):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    with advisories(None) as (address, seen):
        outcome = audit(address, tmp_path)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.count("No known vulnerabilities found") == len(locks)
    assert {"setuptools", "torch"} <= seen


def test_audit_says_that_it_was_skipped_where_no_index_answers():
    with advisories(None) as (address, _):
        pass
    outcome = audit(address)
    assert outcome.returncode == 0
    assert f"audit skipped: {address} does not answer" in outcome.stdout


@pytest.mark.slow
def test_bill_of_materials_names_everything_locked_and_no_folder_of_the_machine(tmp_path):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    target = tmp_path / "sbom.json"
    command = re.search(r"^sbom:.*\n(?:\t.*\n)*?\tPYTHONPATH=src (cyclonedx-py .*)$", MAKEFILE, re.M)[1]
    words = shlex.split(command.replace("results/sbom.json", str(target)).replace(".venv/bin/python", sys.executable))
    own = os.environ | {"PYTHONPATH": "src"}
    # The tool compares each of 700 addresses with the grammar of addresses, which takes most of its time.
    words = [sys.executable, "-m", "cyclonedx_py", *words[1:], "--no-validate"]
    subprocess.run(words, check=True, cwd=ROOT, timeout=120, env=own)
    bill = json.loads(target.read_text())
    some = bill | {"components": bill["components"][::20]}
    assert JsonStrictValidator(SchemaVersion.from_version(bill["specVersion"])).validate_str(json.dumps(some)) is None
    named = {(re.sub(r"[-_.]+", "-", one["name"]).lower(), one["version"]) for one in bill["components"]}
    locked = re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / "requirements/main.lock").read_text(), re.M)
    assert {(name.replace(".", "-"), version) for name, version in locked} <= named
    assert "file:" not in target.read_text()
