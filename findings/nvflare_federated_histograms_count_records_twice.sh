#!/usr/bin/env bash
# Expected: NVFlare's federated statistics of 1,000 values between 0 and .001 have a histogram of 1,000 records and their standard deviation.
# Seen:     all results are rounded to four decimals, the edges of the bins too. Edges that round to the same numbers are one bin under
#           several names: 1,000 records of two sites are 1,149, and 3,391 where the range is .0002. A standard deviation of .0003 is the
#           root of a variance that was rounded to 0.
# Versions: nvflare 2.9.0, numpy 2.4.6, pandas 3.1.1
# Date:     2026-11-30
# Means:    scale features in small units (concentrations, rates) before such statistics, or a covariance for noise is taken from zeros.
# Source:   nvflare/app_common/statistics/numeric_stats.py, accumulate_hists and get_global_stats
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet nvflare==2.9.0 numpy==2.4.6 pandas==3.1.1
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PY'
import numpy as np
import pandas as pd
from nvflare.app_common.app_constant import StatisticsConstants
from nvflare.app_common.statistics.numeric_stats import get_global_stats
from nvflare.app_opt.statistics.df.df_core_statistics import DFStatisticsCore


class Site(DFStatisticsCore):
    def __init__(self, values):
        super().__init__()
        self.data = {"train": pd.DataFrame({"value": values})}

    def initialize(self, *_):
        pass


def federated(sites, top):
    """The rounds of a statistics job: sums first, then what needs the global mean and range."""

    def asked(**statistics):
        return {
            name: {f"site-{number}": {"train": {"value": call(site)}} for number, site in enumerate(sites)}
            for name, call in statistics.items()
        }

    first = asked(count=lambda site: site.count("train", "value"), sum=lambda site: site.sum("train", "value"), mean=lambda _: None)
    result = get_global_stats({}, first, StatisticsConstants.STATS_1st_STATISTICS, {})
    mean, count = (result[name]["train"]["value"] for name in ("mean", "count"))
    second = asked(
        var=lambda site: site.variance_with_mean("train", "value", mean, count),
        stddev=lambda _: None,
        histogram=lambda site: site.histogram("train", "value", 20, 0.0, top),
    )
    result = get_global_stats(result, second, StatisticsConstants.STATS_2nd_STATISTICS, {})
    records = sum(bucket.sample_count for bucket in result["histogram"]["train"]["value"].bins)
    return int(count), int(records), result["stddev"]["train"]["value"]


generator = np.random.default_rng(0)
found = {}
for top in (1.0, 0.001, 0.0002):
    values = generator.uniform(0, top, (2, 500))
    count, records, deviation = federated([Site(half) for half in values], top)
    found[top] = (records, deviation)
    print(f"values to {top}: {count} records, {records} in the histogram; standard deviation {deviation}, of all {values.std(ddof=1):.2g}")
    assert count == 1000
assert found[1.0][0] == 1000 and abs(found[1.0][1] - 12**-0.5) < 0.02
assert found[0.0002][0] > 3000 > found[0.001][0] > 1100, "the behaviour has changed"
assert found[0.001][1] == 0.0
PY
