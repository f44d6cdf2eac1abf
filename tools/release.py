"""Make the files of a release, and check them where nothing else is installed: ``python tools/release.py VERSION``.

Writes the version into pyproject.toml, CITATION.cff and CHANGELOG.md, and the address that CITATION.cff states, unless
it is a placeholder, into pyproject.toml and the badge of README.md. Builds wheel and source archive, and installs
the wheel with the pinned dependencies into an empty environment, in which the library must run. The bill of materials
and checksums are written beside them. Nothing is committed, tagged or uploaded: the last lines say how.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
_ENVIRONMENT = ROOT / "build/release"
_LOCKS = ("torch.lock", "main.lock")
_VERSION = re.compile(r"^version(?P<sign> = \"|: )(?P<version>[^\"\n]+)", re.M)
_PACKAGES = ("leakbound/", "leakbound_lab/")
_UNRELEASED = "## [Unreleased]\n"
_ADDRESS = re.compile(r"^repository-code: (?P<address>\S+)$", re.M)
_PLACEHOLDER = "example.org"
_URLS = re.compile(r"^\[project\.urls\]\n(?:.+\n)*\n", re.M)
_BADGES = re.compile(r"<!-- badges -->.*?<!-- end of badges -->", re.S)
_PROGRAMS = (("--version",), ("risk", "--nats", "60", "--records", "900"), ("demo", "--out", "demo.html"))
"""Calls of the command line that must succeed in the empty environment."""


def current_version(text: str) -> str:
    """Return the version that pyproject.toml or CITATION.cff states in its first such line."""
    match = _VERSION.search(text)
    if match is None:
        raise ValueError("no line begins with version")
    return match["version"]


def check_version(asked: str, current: str) -> None:
    """Refuse a version that is none, or no later one.

    Raises:
        ValueError: With both versions.
    """
    try:
        later = Version(asked) > Version(current)
    except InvalidVersion as error:
        raise ValueError(f"VERSION = {asked!r}: give one like 0.2.0 or 1.0.0rc1") from error
    if not later:
        raise ValueError(f"VERSION = {asked}: the tree has {current}; give a later one")


def with_version(text: str, version: str) -> str:
    """Return pyproject.toml or CITATION.cff with another version."""
    return _VERSION.sub(lambda match: f"version{match['sign']}{version}", text, count=1)


def address(citation: str) -> str | None:
    """Return the address of the repository that CITATION.cff states, None for the placeholder.

    Raises:
        ValueError: If it states none, or none that begins with https.
    """
    match = _ADDRESS.search(citation)
    stated = match["address"].strip("\"'").rstrip("/") if match else ""
    parts = urlsplit(stated)
    if parts.scheme != "https" or not parts.hostname:
        raise ValueError(f"CITATION.cff: repository-code = {stated!r}: give an address that begins with https://")
    return None if parts.hostname.endswith(_PLACEHOLDER) else stated


def with_urls(project: str, repository: str) -> str:
    """Return pyproject.toml with the address of the repository, and of its list of issues, in ``[project.urls]``."""
    table = f'[project.urls]\nRepository = "{repository}"\nIssues = "{repository}/issues"\n\n'
    return _URLS.sub("", project).replace("[project.scripts]\n", f"{table}[project.scripts]\n", 1)


def with_badges(readme: str, repository: str) -> str:
    """Return the README with the badge of its tests, which the host draws: GitLab's, or GitHub's and Forgejo's."""
    if "gitlab" in (urlsplit(repository).hostname or ""):
        picture, page = f"{repository}/badges/main/pipeline.svg", f"{repository}/-/pipelines"
    else:
        picture, page = f"{repository}/actions/workflows/tests.yml/badge.svg", f"{repository}/actions"
    badges = f"<!-- badges -->\n[![tests]({picture})]({page})\n\n<!-- end of badges -->"
    return _BADGES.sub(lambda _: badges, readme, count=1)


def released_changelog(text: str, version: str, day: datetime.date) -> str:
    """Return the changelog with its unreleased changes under a version and a day.

    Raises:
        ValueError: If there are none.
    """
    _, found, after = text.partition(_UNRELEASED)
    changes = re.split(r"^## ", after, maxsplit=1, flags=re.M)[0]
    if not found or "\n- " not in changes:
        raise ValueError("CHANGELOG.md has no change under [Unreleased]: there is nothing to release")
    return text.replace(_UNRELEASED, f"{_UNRELEASED}\n## [{version}] - {day}\n", 1)


def same_sources(wheel: Path, archive: Path) -> None:
    """Check that the wheel and the source archive hold the same files of the package, with the same bytes.

    Raises:
        ValueError: With the first files that differ.
    """
    with zipfile.ZipFile(wheel) as built:
        packed = {name: built.read(name) for name in built.namelist() if name.startswith(_PACKAGES)}
    with tarfile.open(archive) as sources:
        files = [
            member
            for member in sources.getmembers()
            if member.isfile() and member.name.partition("/src/")[2].startswith(_PACKAGES)
        ]
        archived = {
            member.name.partition("/src/")[2]: opened.read()
            for member in files
            if (opened := sources.extractfile(member)) is not None
        }
    differing = sorted(name for name in packed.keys() | archived.keys() if packed.get(name) != archived.get(name))
    if differing:
        raise ValueError(f"wheel and source archive differ in {', '.join(differing[:5])}")


def _run(*command: str | Path, folder: Path = ROOT) -> None:
    """Run a command, and end with what it printed if it fails."""
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"{' '.join(map(str, command))}:\n{(done.stdout + done.stderr)[-4000:]}")


def _check_installed(wheel: Path) -> None:
    """Install the wheel and the pinned dependencies into an empty environment, and call the command line there."""
    python = _ENVIRONMENT / "bin/python"
    install = (python, "-m", "pip", "install", "--quiet", "--no-deps")
    hashed = (*install, "--require-hashes", "--no-build-isolation", "-r")
    _run(sys.executable, "-m", "venv", "--clear", _ENVIRONMENT)
    _run(*hashed, ROOT / "requirements/build.lock")
    if shutil.which("nvidia-smi") is None:  # the CPU build of torch, where pip finds it
        subprocess.run([*hashed, ROOT / "requirements/torch.cpu"], capture_output=True, check=False)
    for lock in _LOCKS:
        _run(*hashed, ROOT / "requirements" / lock)
    if subprocess.run([python, "-m", "pip", "check"], capture_output=True, check=False).returncode:
        _run(*hashed, ROOT / "requirements/cuda.lock")
    _run(*install, wheel)
    for words in _PROGRAMS:
        _run(_ENVIRONMENT / "bin/leakbound", *words, folder=_ENVIRONMENT)


def release(
    version: Annotated[str, typer.Argument(help="The new version, such as 0.2.0.")],
    check: Annotated[bool, typer.Option(help="Install and try the wheel in an empty environment.")] = True,
) -> None:
    """Write the version, build and check wheel and source archive, and list what remains to be done."""
    names = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", "README.md")
    project, citation, changelog, readme = (ROOT / name for name in names)
    try:
        status = subprocess.run(
            ["git", "status", "--porcelain"], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
        if status:
            raise ValueError(f"the tree has changes that are not committed:\n{status}")
        check_version(version, current_version(project.read_text(encoding="utf-8")))
        texts = {
            changelog: released_changelog(changelog.read_text(encoding="utf-8"), version, datetime.date.today()),
            project: with_version(project.read_text(encoding="utf-8"), version),
            citation: with_version(citation.read_text(encoding="utf-8"), version),
        }
        if repository := address(texts[citation]):
            texts[project] = with_urls(texts[project], repository)
            texts[readme] = with_badges(readme.read_text(encoding="utf-8"), repository)
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8")
        DIST.mkdir(exist_ok=True)
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST)
        wheel, archive = DIST / f"leakbound-{version}-py3-none-any.whl", DIST / f"leakbound-{version}.tar.gz"
        same_sources(wheel, archive)
        if check:
            _check_installed(wheel)
        bill = DIST / f"leakbound-{version}.sbom.json"
        environment = _ENVIRONMENT if check else ROOT / ".venv"
        told = ("--pyproject", project, "--output-reproducible", "-o", bill, environment / "bin/python")
        _run(ROOT / ".venv/bin/cyclonedx-py", "environment", *told)
        sums = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}" for path in (archive, wheel, bill)]
        (DIST / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf-8")
    except ValueError as error:
        typer.echo(f"release: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo("\n".join(sums))
    if repository is None:
        typer.echo(
            "CITATION.cff: repository-code is a placeholder, so the wheel names no address and the README has no badge."
        )
    typer.echo(f"checked. Now: git commit -am 'Version {version}' && git tag v{version}, push both, upload dist/.")


if __name__ == "__main__":
    typer.run(release)
