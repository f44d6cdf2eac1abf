# Training: all replicas of a run at every candidate learning rate.


rule train:
    """Train all replicas of a run under its defense. A killed job resumes from its checkpoint.

    rates.parquet has a row for each replica, rate and length, and which is chosen; training.parquet the curves (docs/guide.md).
    """
    input:
        images=reads("train", "{run}", "prepare"),
        channel=reads("train", "{run}", "calibrate", "spectrum"),
    output:
        weights=RESULTS / "runs/{run}/weights.safetensors",
        rates=RESULTS / "runs/{run}/rates.parquet",
        curves=RESULTS / "runs/{run}/training.parquet",
        provenance=RESULTS / "runs/{run}/provenance.json",
    log:
        RESULTS / "logs/train/{run}.log",
    benchmark:
        RESULTS / "benchmarks/train/{run}.tsv"
    priority: RULES.training_priority
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.train.threads
    resources:
        mem_mb=memory("train"),
        runtime=minutes("train"),
        gpu=CONFIG.resources.train.gpu,
    params:
        settings=str(CONFIGURATION),
        results=results_hash("train", "{run}"),
        code=codes("train", "{run}"),
    shell:
        "exec leakbound step train {wildcards.run} --configfile {params.settings} --code {params.code} > {log} 2>&1"
