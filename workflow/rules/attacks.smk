# Attacks on a trained network, or, where a run has 0 rounds, on the gradients of an untrained one.


rule attack:
    input:
        dataset=lambda w: TABLE.path("data", run_of(w).dataset, ".safetensors"),
        files=lambda w: list(attack_files(run_of(w)).values()),
    output:
        rows=f"{ROOT}/attacks/{{run}}/{{attack}}.parquet",
        arrays=f"{ROOT}/attacks/{{run}}/{{attack}}.safetensors",
        provenance=f"{ROOT}/attacks/{{run}}/{{attack}}.json",
    log:
        f"{ROOT}/logs/attack/{{run}}/{{attack}}.log",
    benchmark:
        f"{ROOT}/benchmarks/attack/{{run}}/{{attack}}.tsv"
    conda:
        "../../environment.yml"
    threads: asked("attack").threads
    resources:
        mem_mb=memory("attack"),
        runtime=runtime("attack"),
        gpu=asked("attack").gpu,
    params:
        settings=lambda w: as_text(TABLE.attack_settings(w.attack, run_of(w))),
        files=lambda w: options(attack_files(run_of(w))),
        code=lambda w: code("attacks:attack", *CONFIG.attacks.all()[w.attack].modules(), models=[run_of(w).model]),
    shell:
        "leakbound attack --settings {params.settings:q} --dataset {input.dataset} {params.files} "
        "--rows {output.rows} --arrays {output.arrays} --provenance {output.provenance} > {log} 2>&1"
