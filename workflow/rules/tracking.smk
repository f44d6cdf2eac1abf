# MLflow is a window on the files: these rules write what finished jobs have left, one writer at a time.


rule log:
    input:
        records=lambda w: run_records(run_of(w)),
        channel=lambda w: channel_files(run_of(w)).get("channel", []),
    output:
        marker=f"{ROOT}/tracking/{{run}}.json",
    log:
        f"{ROOT}/logs/log/{{run}}.log",
    benchmark:
        f"{ROOT}/benchmarks/log/{{run}}.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        tracking=1,
    params:
        settings=lambda w: as_text(TABLE.tracking_settings(w.run)),
        code=tracking_code("log"),
        root=lambda w: ROOT,
    shell:
        "leakbound log --settings {params.settings:q} --root {params.root} --marker {output.marker} > {log} 2>&1"


rule log_figures:
    input:
        tables=TABLE_FILES,
        figures=FIGURE_FILES,
        claims=CLAIM_FILES,
    output:
        marker=f"{ROOT}/tracking/figures.json",
    log:
        f"{ROOT}/logs/log/figures.log",
    benchmark:
        f"{ROOT}/benchmarks/log/figures.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    threads: 1
    resources:
        tracking=1,
    params:
        preset=CONFIG.preset,
        code=tracking_code("log_figures"),
        uri=CONFIG.tracking.uri,
        root=lambda w: ROOT,
    shell:
        "leakbound log-figures --preset {params.preset} --uri {params.uri:q} --root {params.root} "
        "--marker {output.marker} > {log} 2>&1"
