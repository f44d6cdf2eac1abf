# leakbound: from images to figures. Each rule is one call of the command line; `leakbound --help` lists the same steps.
#
#   prepare -> covariance -> spectrum -> calibrate -> tune -> train -> attack -> tabulate -> claims, plot -> log

from snakemake.utils import min_version

min_version("9.20")

if "studies" not in config:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/channels.smk"
include: "workflow/rules/training.smk"
include: "workflow/rules/attacks.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/tracking.smk"


report: "workflow/report/workflow.rst"


rule all:
    default_target: True
    input:
        figures=FIGURE_FILES,
        claims=CLAIM_FILES,
        tracking=TRACKING_FILES,


rule tables:
    input:
        TABLE_FILES,


rule figures:
    input:
        FIGURE_FILES,
