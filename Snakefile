# leakbound: from images to figures. Each job is one call of the command line; `leakbound step --help` lists the same steps.
#
#   prepare -> covariance -> spectrum -> calibrate -> train -> references -> attack -> tabulate -> claims, plot -> log -> report
#
# What jobs there are, the settings of each, what it reads and writes, stand in src/leakbound/cli/steps, one file for each kind.

from snakemake.utils import min_version

min_version("9.27")

if "studies" not in config:

    configfile: "config/config.yaml"


include: "workflow/rules/jobs.smk"
include: "workflow/rules/steps.smk"


report: "workflow/report/workflow.rst"


# Before the first job of a run; not in dry runs, reports, or on the nodes of a cluster.
onstart:
    in_turn(coordination.lead, Path(ROOT))
    keep_notes_of_secrets()
    drop_default_rate_limit()
    start_warm_process()
    show_progress()


onsuccess:
    tell_what_came_out()


onerror:
    tell_what_killed(log)


rule all:
    default_target: True
    input:
        [path for name, step in JOBS.steps.items() if step.final for path in JOBS.files(name)],


rule tables:
    input:
        [path for path in JOBS.files() if path.startswith(f"{ROOT}/tables/")],


rule figures:
    input:
        JOBS.files("plot"),
