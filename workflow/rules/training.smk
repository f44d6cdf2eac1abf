# Learning-rate search of equal budget for each defense and level, then the training itself with all its replicas.


rule tune:
    input:
        dataset=lambda w: TABLE.path("data", w.dataset, ".safetensors"),
        channel=lambda w: list(channel_files(tuned_run(w)).values()),
    output:
        trials=f"{ROOT}/tuning/{{dataset}}/{{model}}/{{variant}}/b{{batch_size}}.parquet",
    log:
        f"{ROOT}/logs/tune/{{dataset}}/{{model}}/{{variant}}/b{{batch_size}}.log",
    benchmark:
        f"{ROOT}/benchmarks/tune/{{dataset}}/{{model}}/{{variant}}/b{{batch_size}}.tsv"
    wildcard_constraints:
        model=r"[a-z][a-z0-9_]*",
        variant=r"[a-z0-9_.e+-]+",
        batch_size=r"[0-9]+",
    conda:
        "../../environment.yml"
    threads: asked("tune").threads
    resources:
        mem_mb=memory("tune"),
        runtime=runtime("tune"),
        gpu=asked("tune").gpu,
    params:
        settings=lambda w: as_text(TABLE.tuning_settings(tuned_run(w))),
        channel=lambda w: options(channel_files(tuned_run(w))),
        code=lambda w: code("training:tune", *CONFIG.defense(tuned_run(w).defense).modules(), models=[w.model]),
    shell:
        "leakbound tune --settings {params.settings:q} --dataset {input.dataset} {params.channel} "
        "--out {output.trials} > {log} 2>&1"


rule train:
    input:
        dataset=lambda w: TABLE.path("data", run_of(w).dataset, ".safetensors"),
        channel=lambda w: list(channel_files(run_of(w)).values()),  # empty for a defense without a channel
        trials=lambda w: TABLE.path("tuning", TABLE.tuning_name(run_of(w)), ".parquet"),
    output:
        weights=f"{ROOT}/runs/{{run}}/weights.safetensors",
        rows=f"{ROOT}/runs/{{run}}/training.parquet",
        provenance=f"{ROOT}/runs/{{run}}/provenance.json",
    log:
        f"{ROOT}/logs/train/{{run}}.log",
    benchmark:
        f"{ROOT}/benchmarks/train/{{run}}.tsv"
    conda:
        "../../environment.yml"
    threads: asked("train").threads
    resources:
        mem_mb=memory("train"),
        runtime=runtime("train"),
        gpu=asked("train").gpu,
    params:
        settings=lambda w: as_text(TABLE.training_settings(run_of(w))),
        channel=lambda w: options(channel_files(run_of(w))),
        code=lambda w: code(
            "training:train",
            *CONFIG.defense(run_of(w).defense).modules(),
            models=[run_of(w).model],
        ),
    shell:
        "leakbound train --settings {params.settings:q} --dataset {input.dataset} {params.channel} "
        "--trials {input.trials} --weights {output.weights} --rows {output.rows} "
        "--provenance {output.provenance} --code {params.code} > {log} 2>&1"
