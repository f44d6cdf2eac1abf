"""What a configuration costs before anything runs: jobs, hours and disk, from measured times of elementary work."""

from leakbound.planning.costs import COLUMNS, PACKAGED, UnitCosts, read_costs, write_costs
from leakbound.planning.estimates import Job, jobs_of, networks
from leakbound.planning.report import Machine, as_text

__all__ = [
    "COLUMNS",
    "PACKAGED",
    "Job",
    "Machine",
    "UnitCosts",
    "as_text",
    "jobs_of",
    "networks",
    "read_costs",
    "write_costs",
]
