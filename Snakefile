# leakbound: from images to figures. Each rule is one call of the command line; `leakbound --help` lists the same steps.
#
#   prepare -> covariance -> spectrum -> calibrate -> tune -> train -> attack -> tabulate -> claims, plot -> log -> report

from snakemake.utils import min_version

min_version("9.27")

if "studies" not in config:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/channels.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/attacks.smk"
include: "workflow/rules/efficiency.smk"
include: "workflow/rules/worlds.smk"
include: "workflow/rules/federated.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/tracking.smk"
include: "workflow/rules/report.smk"


report: "workflow/report/workflow.rst"


# Before the first job of a run; not in dry runs, reports, or on the nodes of a cluster.
onstart:
    in_turn(coordination.lead, Path(ROOT))
    drop_default_rate_limit()


rule all:
    default_target: True
    input:
        tables=TABLE_FILES,
        figures=FIGURE_FILES,
        claims=CLAIM_FILES,
        tracking=TRACKING_FILES,
        report=REPORT_FILE,


rule tables:
    input:
        TABLE_FILES,


rule figures:
    input:
        FIGURE_FILES,
