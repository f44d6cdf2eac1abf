"""Time and memory of jobs."""

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


@pytest.mark.parametrize(
    "text", ["", "s\tmax_rss\tcpu_time\n", "s\tmax_rss\n1\t2\n", "s\tmax_rss\tcpu_time\n1\tNA\t2\n"]
)
def test_file_that_is_no_such_table_is_refused(tmp_path, text):
    path = tmp_path / "usage.tsv"
    path.write_text(text)
    with pytest.raises(storage.DamagedFileError, match="no table of time and memory"):
        usage.read(path)
