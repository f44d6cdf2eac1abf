# leakbound: from images to figures. The rule files are the experiment, in the order of the chain:
#
#   prepare -> covariance -> spectrum -> calibrate -> train -> attack -> tabulate -> claims, figures -> log -> report
#
# Each rule calls one command of the command line; `leakbound step --help` lists them.

from snakemake.utils import min_version

min_version("9.27")

if "studies" not in config:

    configfile: "config/config.yaml"


include: "workflow/rules/common.smk"
include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/attack.smk"
include: "workflow/rules/papers.smk"
include: "workflow/rules/results.smk"


report: "workflow/report/workflow.rst"


# Before the first job of a run; not in dry runs, reports, or on the nodes of a cluster.
onstart:
    in_turn(coordination.lead, Path(CONFIG.root))
    keep_notes_of_secrets()
    drop_default_rate_limit()
    mean_all_if_forced()
    start_warm_process()
    show_progress()


onsuccess:
    tell_what_came_out()


onerror:
    tell_what_ended_it(log)


rule all:
    default_target: True
    input:
        tables=TABLE_FILES,
        claims=CLAIMS,
        figures=FIGURE_FOLDERS,
        tracking=TRACKING,
        report=RESULTS / "report.html",


rule tables:
    input:
        TABLE_FILES,
