"""Time and memory of jobs, as Snakemake measures them."""

import pytest

from leakbound import storage
from leakbound.cli.results import Usage, read_usage

HEADER = "s\th:m:s\tmax_rss\tmax_vms\tmax_uss\tmax_pss\tio_in\tio_out\tmean_load\tcpu_time\n"


@pytest.mark.parametrize(
    ("row", "usage"),
    [
        ("12.5\t0:00:12\t801.25\t5000\t1\t1\t0\t-\t97.5\t11.75", Usage(12.5, 801.25, 11.75)),
        ("0.1234\t0:00:00" + "\tNA" * 8, Usage(0.1234, 0.0, 0.0)),  # ended before the first sample
        ("1\t0:00:01\t-\t-\t-\t-\t-\t-\t0\t0", Usage(1.0, 0.0, 0.0)),
    ],
)
def test_time_and_memory_are_those_of_the_benchmark_file(tmp_path, row, usage):
    path = tmp_path / "train.tsv"
    path.write_text(f"{HEADER}{row}\n")
    assert read_usage(path) == usage


@pytest.mark.parametrize(
    "text", ["", HEADER, "s\tmax_rss\n1\t2\n", "s\tmax_rss\tcpu_time\n1\tx\t2\n", "s\tcpu_time\n1\t2\n1\t2\n"]
)
def test_file_that_is_no_such_table_is_refused(tmp_path, text):
    path = tmp_path / "train.tsv"
    path.write_text(text)
    with pytest.raises(storage.DamagedFileError, match="no table of time and memory"):
        read_usage(path)
