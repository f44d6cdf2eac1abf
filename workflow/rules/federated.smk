# Federated averaging under a mutual-information budget: each run is trained once, whatever tables show it.

from leakbound.jobs.federated_runs import all_runs, run_settings
from leakbound.jobs.federated_runs import table_settings as federated_table
from leakbound.jobs.federated_runs import tracking_settings as federated_tracking

FEDERATED = all_runs(CONFIG.federated) if CONFIG.federated else {}
FEDERATED_FIGURES = {key: figure.table for key, figure in TABLE.figures.items() if figure.table}
if CONFIG.tracking.enabled:
    TRACKING_FILES += [f"{ROOT}/tracking/federated/{slug}.json" for slug in FEDERATED]


wildcard_constraints:
    federated_run=r"[a-z][a-z0-9_]*/[a-z][a-z0-9_]*/[a-z0-9.e+-]+/n[0-9]+",


rule federate:
    input:
        dataset=lambda w: TABLE.path("data", FEDERATED[w.federated_run].dataset, ".safetensors"),
    output:
        rows=f"{ROOT}/federated/{{federated_run}}/rows.parquet",
        provenance=f"{ROOT}/federated/{{federated_run}}/provenance.json",
    log:
        f"{ROOT}/logs/federate/{{federated_run}}.log",
    benchmark:
        f"{ROOT}/benchmarks/federate/{{federated_run}}.tsv"
    conda:
        "../../environment.yml"
    threads: asked("train").threads
    resources:
        mem_mb=memory("train"),
        runtime=runtime("train"),
        gpu=asked("train").gpu,
    params:
        settings=lambda w: as_text(run_settings(CONFIG, FEDERATED[w.federated_run])),
        code=lambda w: code("federated:federate", models=[FEDERATED[w.federated_run].model]),
    shell:
        "leakbound federate --settings {params.settings:q} --dataset {input.dataset} --rows {output.rows} "
        "--provenance {output.provenance} --code {params.code} > {log} 2>&1"


rule federated:
    input:
        federated_inputs,
    output:
        rows=f"{ROOT}/tables/federated/{{part}}.parquet",
    log:
        f"{ROOT}/logs/federated/{{part}}.log",
    benchmark:
        f"{ROOT}/benchmarks/federated/{{part}}.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=lambda w: as_text(federated_table(CONFIG, w.part)),
        root=lambda w: ROOT,
        code=lambda w: code("federated:federated", models=sorted(set(CONFIG.federated.models.values()))),
    shell:
        "leakbound federated --settings {params.settings:q} --root {params.root} --rows {output.rows} > {log} 2>&1"


rule log_federated:
    input:
        rows=f"{ROOT}/federated/{{federated_run}}/rows.parquet",
        provenance=f"{ROOT}/federated/{{federated_run}}/provenance.json",
    output:
        marker=f"{ROOT}/tracking/federated/{{federated_run}}.json",
    log:
        f"{ROOT}/logs/log_federated/{{federated_run}}.log",
    benchmark:
        f"{ROOT}/benchmarks/log_federated/{{federated_run}}.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        tracking=1,
    params:
        settings=lambda w: as_text(federated_tracking(CONFIG, FEDERATED[w.federated_run], FEDERATED_FIGURES)),
        code=code("federated:log_federated"),
        root=lambda w: ROOT,
    shell:
        "leakbound log-federated --settings {params.settings:q} --root {params.root} "
        "--marker {output.marker} > {log} 2>&1"
