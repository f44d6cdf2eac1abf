# Images of a dataset, split into members, test and the attacker's own; their mean and covariance.


rule prepare:
    output:
        dataset=f"{ROOT}/data/{{dataset}}.safetensors",
        provenance=f"{ROOT}/data/{{dataset}}.json",
    log:
        f"{ROOT}/logs/prepare/{{dataset}}.log",
    benchmark:
        f"{ROOT}/benchmarks/prepare/{{dataset}}.tsv"
    group:
        "data"
    conda:
        "../../environment.yml"
    threads: asked("prepare").threads
    resources:
        mem_mb=memory("prepare"),
        runtime=runtime("prepare"),
    params:
        settings=lambda w: as_text(TABLE.prepare_settings(w.dataset)),
        originals=lambda w: originals(w.dataset),
        code=lambda w: code("data:prepare", datasets=[CONFIG.datasets[w.dataset].reader or w.dataset]),
    shell:
        "leakbound prepare --settings {params.settings:q} --out {output.dataset} "
        "--provenance {output.provenance} > {log} 2>&1"


rule covariance:
    input:
        dataset=f"{ROOT}/data/{{dataset}}.safetensors",
    output:
        moments=f"{ROOT}/covariance/{{dataset}}.safetensors",
    log:
        f"{ROOT}/logs/covariance/{{dataset}}.log",
    benchmark:
        f"{ROOT}/benchmarks/covariance/{{dataset}}.tsv"
    group:
        "data"
    conda:
        "../../environment.yml"
    threads: asked("covariance").threads
    resources:
        mem_mb=memory("covariance"),
        runtime=runtime("covariance"),
    params:
        code=code("data:covariance"),
    shell:
        "leakbound covariance --dataset {input.dataset} --out {output.moments} > {log} 2>&1"
