"""Wheels for a machine with a GPU, a PyTorch of its own, and no network: what is missing there, and this package.

    python tools/gpu_wheels.py [--out build/gpu-wheels] [--python 3.12] [--have FREEZE]

What is needed follows from the dependencies of the package without extras, Opacus, Snakemake without its solver, and
the versions of the lock, whose hashes pip compares. PyTorch and all that it needs itself are there. ``--have`` names a
file that ``python3 -m pip freeze`` has written on that machine, and only what it lacks is carried; without it the
packages of ``--without`` and all that they need are taken to be there as well: those that such machines usually have
and that would fill the folder.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpu_run import ROOT, SOURCE, source_hash
from leakbound.storage import provenance

USUAL = ("numpy", "scipy", "pandas", "pyarrow", "scikit-learn", "scikit-image", "pillow", "matplotlib")
"""Packages that a machine for training usually has, and that weigh much."""
_EXTRA = ("opacus", "snakemake")  # what a run there needs of the extra ``workflow``
_SOLVER = "pulp"  # of the scheduler that is not used there
_UNBUILT = "connection-pool"  # has no wheel
_GLIBC = (28, 27, 24, 17, 12, 5)  # minor versions of glibc 2 that wheels are built for, newest first
_PINNED = re.compile(r"^([a-z0-9._-]+)==\S+(?: \\\n    --hash=sha256:[0-9a-f]{64})+$", re.M)


def needed(names: Iterable[str], environment: dict[str, str]) -> set[str]:
    """Names of packages and of all that they need, as they are installed here.

    Args:
        names: Requirements, with extras or without.
        environment: Facts of the other machine, for markers.
    """
    found: set[str] = set()
    waiting = [Requirement(name) for name in names]
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        if name not in found:
            found.add(name)
            waiting += _requirements(name, one.extras, environment)
    return found


def _requirements(name: str, extras: set[str], environment: dict[str, str]) -> Iterator[Requirement]:
    """Requirements of a package itself, none of one that is not installed here."""
    try:
        texts = requires(name) or []
    except PackageNotFoundError:
        return
    for text in texts:
        one = Requirement(text)
        if one.marker is None or any(one.marker.evaluate({**environment, "extra": extra}) for extra in ("", *extras)):
            yield one


def missing(environment: dict[str, str], there: Iterable[str], *, exact: bool) -> list[str]:
    """Packages to carry, in alphabetical order.

    Args:
        environment: Facts of the other machine, for markers.
        there: Packages that it has.
        exact: Whether these are all of them; else what they need is there as well.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = [one for one in project["optional-dependencies"]["workflow"] if Requirement(one).name in _EXTRA]
    names = [*project["dependencies"], *extra]
    torch = needed(["torch"], environment)
    have = {canonicalize_name(one) for one in there} if exact else needed(there, environment)
    return sorted(needed(names, environment) - torch - have - {_SOLVER})


def pinned(names: Iterable[str]) -> str:
    """Lines of the lock for some packages, with their hashes.

    Raises:
        SystemExit: If the lock lacks one.
    """
    text = (ROOT / "requirements/main.lock").read_text(encoding="utf-8")
    lines = {str(canonicalize_name(found[1])): found[0] for found in _PINNED.finditer(text)}
    if lacking := sorted(set(names) - lines.keys()):
        sys.exit(f"requirements/main.lock lacks {', '.join(lacking)}: make lock")
    return "\n".join(lines[name] for name in names) + "\n"


def download(names: Iterable[str], python: str, platform: str, out: Path) -> None:
    """Wheels of some packages for another Python and machine."""
    tags = [f"manylinux_2_{minor}_{platform}" for minor in _GLIBC] + [f"manylinux2014_{platform}"]
    words = [
        "download",
        "--only-binary",
        ":all:",
        "--implementation",
        "cp",
        "--python-version",
        python,
        "--dest",
        str(out),
    ]
    _pip([*words, *(word for tag in tags for word in ("--platform", tag))], set(names) - {_UNBUILT})
    if _UNBUILT in names:
        _pip(["wheel", "--no-build-isolation", "--no-binary", ":all:", "--wheel-dir", str(out)], [_UNBUILT])


def _pip(words: list[str], names: Iterable[str]) -> None:
    """Let pip get the versions of the lock, whose hashes it compares."""
    with tempfile.TemporaryDirectory() as folder:
        asked = Path(folder, "asked.txt")
        asked.write_text(pinned(sorted(names)), encoding="utf-8")
        pip = [sys.executable, "-m", "pip", words[0], "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, *words[1:], "-r", str(asked)], check=True)


def build(out: Path) -> None:
    """This project's own wheel, built beside the checkout so that nothing is left in it."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, folder)
        shutil.copytree(ROOT / "src", Path(folder, "src"), ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        subprocess.run([*pip, "--wheel-dir", str(out), folder], check=True)


def main() -> None:
    """Fill the folder, and say what is in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("build/gpu-wheels"), help="folder, emptied first")
    parser.add_argument("--python", default="3.12", help="version of Python there")
    parser.add_argument("--platform", default="x86_64", choices=["x86_64", "aarch64"], help="processor there")
    parser.add_argument("--have", type=Path, help="what `python3 -m pip freeze` says there")
    parser.add_argument("--without", nargs="*", default=USUAL, help="packages that are there if --have is not given")
    asked = parser.parse_args()
    facts = {"python_version": asked.python, "python_full_version": f"{asked.python}.0", "sys_platform": "linux"}
    facts |= {"platform_machine": asked.platform, "platform_system": "Linux", "implementation_name": "cpython"}
    facts |= {"platform_python_implementation": "CPython", "os_name": "posix"}
    have = asked.without
    if asked.have:
        have = re.findall(r"^([A-Za-z0-9._-]+)(?===| @ )", asked.have.read_text(encoding="utf-8"), re.M)
    names = missing(facts, have, exact=asked.have is not None)
    shutil.rmtree(asked.out, ignore_errors=True)
    asked.out.mkdir(parents=True)
    download(names, asked.python, asked.platform, asked.out)
    build(asked.out)
    record = {**provenance.commit(), "source": source_hash(ROOT / "src")}
    (asked.out / SOURCE).write_text(json.dumps(record), encoding="utf-8")
    sizes = {path.name: path.stat().st_size for path in sorted(asked.out.glob("*.whl"))}
    for name, size in sizes.items():
        print(f"{size / 2**20:7.2f} MiB  {name}")
    print(f"{sum(sizes.values()) / 2**20:7.2f} MiB  in {len(sizes)} wheels in {asked.out}")


if __name__ == "__main__":
    main()
