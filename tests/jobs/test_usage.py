"""Time and memory of jobs: what is written is read, and what Snakemake wrote before is read too."""

import subprocess
import sys
import time

import pytest

from leakbound import storage
from leakbound.jobs.processes import usage


def test_usage_counts_processes_that_were_waited_for(tmp_path):
    began = time.monotonic()
    path = tmp_path / "jobs" / "one.tsv"
    usage.write(path, began)
    alone = usage.read(path)
    burn = "import time; held = bytearray(300_000_000); end = time.process_time() + 0.3\n"
    subprocess.run([sys.executable, "-c", burn + "while time.process_time() < end: pass"], check=True)
    usage.write(path, began)
    found = usage.read(path)
    assert found.cpu_seconds >= alone.cpu_seconds + 0.29
    assert found.seconds >= alone.seconds + 0.29
    assert found.max_rss_mib > 286
    assert not storage.sealed_by(path)


def test_file_of_snakemake_is_read_and_what_it_did_not_see_is_zero(tmp_path):
    path = tmp_path / "old.tsv"
    path.write_text("s\th:m:s\tmax_rss\tmean_load\tcpu_time\n1.5\t0:00:01\tNA\tNA\tNA\n2.5\t0:00:02\t100.25\t1\t2.0\n")
    assert usage.read(path) == (2.5, 100.25, 2.0)
    path.write_text("s\th:m:s\tmax_rss\tmean_load\tcpu_time\n1.5\t0:00:01\tNA\tNA\tNA\n")
    assert usage.read(path) == (1.5, 0, 0)
    path.write_text("")
    with pytest.raises(storage.DamagedFileError, match=r"old\.tsv: cannot be read \(it has no row\)"):
        usage.read(path)
