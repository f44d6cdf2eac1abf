# Tables of the three worlds beside the chain: theory, consensus, federated. One rule each, one job for each part.


rule consensus:
    output:
        rows=f"{ROOT}/tables/consensus/{{part}}.parquet",
    log:
        f"{ROOT}/logs/consensus/{{part}}.log",
    benchmark:
        f"{ROOT}/benchmarks/consensus/{{part}}.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=lambda w: as_text(TABLE.world_settings("consensus", w.part)),
        code=code("consensus:consensus"),
    shell:
        "leakbound consensus --settings {params.settings:q} --rows {output.rows} > {log} 2>&1"


rule theory:
    output:
        rows=f"{ROOT}/tables/theory/{{part}}.parquet",
    log:
        f"{ROOT}/logs/theory/{{part}}.log",
    benchmark:
        f"{ROOT}/benchmarks/theory/{{part}}.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=lambda w: as_text(TABLE.world_settings("theory", w.part)),
        code=code("theory:theory"),
    shell:
        "leakbound theory --settings {params.settings:q} --rows {output.rows} > {log} 2>&1"
