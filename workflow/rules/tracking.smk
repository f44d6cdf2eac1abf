# MLflow is a window on the files: these rules write what finished jobs have left, one writer at a time.


rule log:
    input:
        lambda w: [path for paths in TABLE.run_files(run_of(w)).values() for path in paths],
    output:
        marker=f"{ROOT}/tracking/{{run}}.json",
    params:
        settings=lambda w: as_text(TABLE.tracking_settings(w.run)),
        root=ROOT,
    log:
        f"{ROOT}/logs/log/{{run}}.log",
    benchmark:
        f"{ROOT}/benchmarks/log/{{run}}.tsv"
    conda:
        "../../environment.yml"
    localrule: True
    threads: 1
    resources:
        tracking=1,
    shell:
        "leakbound log --settings {params.settings:q} --root {params.root} --marker {output.marker} > {log} 2>&1"


rule log_figures:
    input:
        figures=FIGURE_FILES,
        claims=CLAIM_FILES,
    output:
        marker=f"{ROOT}/tracking/figures.json",
    params:
        preset=CONFIG.preset,
        uri=CONFIG.tracking.uri,
        root=ROOT,
    log:
        f"{ROOT}/logs/log/figures.log",
    benchmark:
        f"{ROOT}/benchmarks/log/figures.tsv"
    conda:
        "../../environment.yml"
    localrule: True
    threads: 1
    resources:
        tracking=1,
    shell:
        "leakbound log-figures --preset {params.preset} --uri {params.uri:q} --root {params.root} "
        "--marker {output.marker} > {log} 2>&1"
