"""The files of a release state one version, and hold the same sources."""

import datetime
import io
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))
import release  # noqa: E402

CHANGES = "# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A thing.\n\n## [0.1.0] - 2026-01-01\n\n- First.\n"


@pytest.mark.parametrize("name", ["pyproject.toml", "CITATION.cff"])
def test_the_version_of_a_file_is_replaced_and_nothing_else(name):
    text = (ROOT / name).read_text()
    changed = release.with_version(text, "9.8.7")
    assert release.current_version(changed) == "9.8.7"
    assert release.with_version(changed, release.current_version(text)) == text
    assert [line for line in changed.splitlines() if line not in text.splitlines()] in (
        ['version = "9.8.7"'],
        ["version: 9.8.7"],
    )


def test_both_files_state_the_same_version():
    stated = {release.current_version((ROOT / name).read_text()) for name in ("pyproject.toml", "CITATION.cff")}
    assert len(stated) == 1


def test_one_file_holds_the_address_and_a_placeholder_goes_nowhere():
    citation, project, readme = ((ROOT / name).read_text() for name in ("CITATION.cff", "pyproject.toml", "README.md"))
    assert release.address(citation) is None  # until the project has a host
    assert "example.org" not in project + readme
    stated = release.address(
        re.sub(r"(?m)^repository-code: .*$", "repository-code: https://codehost.test/a/b/", citation)
    )
    assert stated == "https://codehost.test/a/b"
    for wrong in ("http://codehost.test/a", "git@codehost.test:a/b", ""):
        with pytest.raises(ValueError, match="repository-code"):
            release.address(f"repository-code: {wrong}\n")
    told = tomllib.loads(release.with_urls(project, stated))["project"]
    assert told["urls"] == {"Repository": stated, "Issues": f"{stated}/issues"}
    assert {**told, "urls": None} == {**tomllib.loads(project)["project"], "urls": None}
    again = release.with_urls(release.with_urls(project, "https://old.test/x"), stated)
    assert again == release.with_urls(project, stated)


@pytest.mark.parametrize(
    ("host", "picture"),
    [("codehost.test", "/actions/workflows/tests.yml/badge.svg"), ("gitlab.com", "/badges/main/pipeline.svg")],
)
def test_the_badge_is_the_hosts_and_is_replaced_by_the_next(host, picture):
    readme = (ROOT / "README.md").read_text()
    told = release.with_badges(readme, f"https://{host}/a/b")
    assert f"(https://{host}/a/b{picture})" in told
    assert release.with_badges(release.with_badges(readme, "https://old.test/x"), f"https://{host}/a/b") == told
    assert told.partition("<!-- end of badges -->")[2] == readme.partition("<!-- end of badges -->")[2]


@pytest.mark.parametrize(("asked", "said"), [("0.1.0", "give a later one"), ("0.0.9", "0.1.0"), ("next", "'next'")])
def test_a_version_that_is_none_or_not_later_is_refused(asked, said):
    with pytest.raises(ValueError, match=said):
        release.check_version(asked, "0.1.0")
    release.check_version("0.2.0rc1", "0.1.0")


def test_unreleased_changes_move_under_the_version_and_older_ones_stay():
    text = release.released_changelog(CHANGES, "0.2.0", datetime.date(2026, 2, 3))
    before, after = text.split("## [0.2.0] - 2026-02-03\n")
    assert before.endswith("## [Unreleased]\n\n")
    assert after == CHANGES.partition("## [Unreleased]\n")[2]
    with pytest.raises(ValueError, match="nothing to release"):
        release.released_changelog(text, "0.3.0", datetime.date(2026, 2, 4))


@pytest.mark.parametrize("archived", [{"a.py": b"1"}, {"a.py": b"1", "b.py": b"3"}, {"a.py": b"1", "b.py": b"2"}])
def test_a_file_that_the_wheel_and_the_sources_do_not_share_is_named(tmp_path, archived):
    packed = {"a.py": b"1", "b.py": b"2"}
    with zipfile.ZipFile(tmp_path / "wheel.whl", "w") as wheel:
        for name, content in packed.items():
            wheel.writestr(f"leakbound/{name}", content)
    with tarfile.open(tmp_path / "sources.tar.gz", "w:gz") as sources:
        for name, content in archived.items():
            member = tarfile.TarInfo(f"leakbound-1/src/leakbound/{name}")
            member.size = len(content)
            sources.addfile(member, io.BytesIO(content))
    if archived == packed:
        release.same_sources(tmp_path / "wheel.whl", tmp_path / "sources.tar.gz")
    else:
        with pytest.raises(ValueError, match=r"differ in leakbound/b\.py"):
            release.same_sources(tmp_path / "wheel.whl", tmp_path / "sources.tar.gz")
