# Attacks: membership, model and gradient inversion, audits, as the studies of a run ask for them.


rule attack:
    """Train the reference networks of a run's attackers, and attack its networks, or the gradients of untrained ones.

    One job attacks untrained networks at all levels of a defense: natural-all/n0-b1.
    A killed job resumes: finished attacks are kept, and the training of references has a checkpoint.
    """
    input:
        images=RESULTS / "data/{dataset}.safetensors",
        channel=reads("attack", RUN, "covariance", "spectrum", "calibrate"),
        trained=reads("attack", RUN, "train"),
        estimator=reads("attack", RUN, "estimator"),
        list_is_whole=whole_or_again(RESULTS / "attacks" / f"{RUN}.json"),
    output:
        RESULTS / "attacks" / f"{RUN}.json",
    log:
        RESULTS / "logs/attack" / f"{RUN}.log",
    benchmark:
        RESULTS / "benchmarks/attack" / f"{RUN}.tsv"
    priority: lambda w: in_order(w) + 1  # right after its training
    conda:
        "../../environment.yml"
    threads: max(CONFIG.resources.train.threads, CONFIG.resources.attack.threads)
    resources:
        mem_mb=memory("train", "attack"),
        runtime=minutes("train", "attack"),
        gpu=max(CONFIG.resources.train.gpu, CONFIG.resources.attack.gpu),
    params:
        settings=str(CONFIGURATION),
        run=lambda w: RUN.format(**w),
        results=results_hash("attack", RUN),
        code=codes("attack", RUN),
    shell:
        "exec leakbound step attack {params.run} --configfile {params.settings}"
        " --code {params.code} --out {output} > {log} 2>&1"
