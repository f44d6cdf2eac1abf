# Training: all replicas of a run at every candidate learning rate.


rule train:
    """Train all replicas of a run under its defense. A killed job resumes from its checkpoint.

    rates.parquet has a row for each replica, rate and length, and which is chosen; training.parquet the curves (docs/guide.md).
    """
    input:
        images=RESULTS / "data/{dataset}.safetensors",
        channel=reads("train", RUN, "calibrate", "spectrum"),
    output:
        weights=RESULTS / "runs" / RUN / "weights.safetensors",
        rates=RESULTS / "runs" / RUN / "rates.parquet",
        curves=RESULTS / "runs" / RUN / "training.parquet",
        provenance=RESULTS / "runs" / RUN / "provenance.json",
    log:
        RESULTS / "logs/train" / f"{RUN}.log",
    benchmark:
        RESULTS / "benchmarks/train" / f"{RUN}.tsv"
    priority: in_order
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.train.threads
    resources:
        mem_mb=memory("train"),
        runtime=minutes("train"),
        gpu=CONFIG.resources.train.gpu,
    params:
        settings=str(CONFIGURATION),
        run=lambda w: RUN.format(**w),
        results=results_hash("train", RUN),
        code=codes("train", RUN),
    shell:
        "exec leakbound step train {params.run} --configfile {params.settings} --code {params.code} > {log} 2>&1"
