# What the papers need besides trained and attacked runs: closed forms, consensus, federated averaging, illustrations, times.


rule theory:
    """Utility against privacy in closed form (Zeng et al. 2022)."""
    output:
        RESULTS_MADE.files("theory"),
    log:
        RESULTS / "logs/theory.log",
    benchmark:
        RESULTS / "benchmarks/theory.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        results=results_hash("theory"),
    shell:
        'exec leakbound step several --settings "$LEAKBOUND_CONFIGURATION" --rule theory' " > {log} 2>&1"


rule consensus:
    """Private average consensus, simulated and as its observers see it (Wang et al. 2020)."""
    output:
        RESULTS_MADE.files("consensus"),
    log:
        RESULTS / "logs/consensus.log",
    benchmark:
        RESULTS / "benchmarks/consensus.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        results=results_hash("consensus"),
    shell:
        'exec leakbound step several --settings "$LEAKBOUND_CONFIGURATION" --rule consensus' " > {log} 2>&1"


rule federate:
    """Federated averaging of one setting with all its seeds (PMIDP). A killed job resumes from its checkpoint."""
    input:
        images=RESULTS / "data/{dataset}.safetensors",
    output:
        rows=RESULTS / "federated" / FEDERATED_RUN / "rows.parquet",
        provenance=RESULTS / "federated" / FEDERATED_RUN / "provenance.json",
    log:
        RESULTS / "logs/federate" / f"{FEDERATED_RUN}.log",
    benchmark:
        RESULTS / "benchmarks/federate" / f"{FEDERATED_RUN}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.train.threads
    resources:
        mem_mb=memory("train"),
        runtime=minutes("train"),
        gpu=CONFIG.resources.train.gpu,
    params:
        settings=settings("federate", FEDERATED_RUN),
        code=code("federate", FEDERATED_RUN),
    shell:
        "exec leakbound step federate --settings {params.settings:q} --code {params.code} --dataset {input.images}"
        " --rows {output.rows} --provenance {output.provenance} > {log} 2>&1"


rule federated:
    """Tables of federated averaging, and of what all its rounds together reveal."""
    input:
        runs=files_read("federated", "", "federate"),
        images=files_read("federated", "", "prepare"),
    output:
        RESULTS_MADE.files("federated"),
    log:
        RESULTS / "logs/federated.log",
    benchmark:
        RESULTS / "benchmarks/federated.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        results=results_hash("federated"),
    shell:
        'exec leakbound step several --settings "$LEAKBOUND_CONFIGURATION" --rule federated' " > {log} 2>&1"


rule illustrate:
    """Rows of figures that need no training: shapes of noise, noisy images, what a covariance reveals."""
    input:
        images=files_read("illustrate", "", "prepare"),
        moments=files_read("illustrate", "", "covariance"),
    output:
        RESULTS_MADE.files("illustrate"),
    log:
        RESULTS / "logs/illustrate.log",
    benchmark:
        RESULTS / "benchmarks/illustrate.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        results=results_hash("illustrate"),
    shell:
        'exec leakbound step several --settings "$LEAKBOUND_CONFIGURATION" --rule illustrate' " > {log} 2>&1"


rule measure:
    """Training times of the defenses, in turns in one process."""
    input:
        images=files_read("measure", "", "prepare"),
        channels=files_read("measure", "", "calibrate", "spectrum"),
    output:
        rows=RESULTS / "tables/efficiency.parquet",
        provenance=RESULTS / "tables/efficiency.json",
    log:
        RESULTS / "logs/measure.log",
    benchmark:
        RESULTS / "benchmarks/measure.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.efficiency.threads
    resources:
        mem_mb=memory("efficiency"),
        runtime=minutes("efficiency"),
        gpu=CONFIG.resources.efficiency.gpu,
    params:
        settings=settings("measure", "efficiency"),
        code=code("measure", "efficiency"),
        channel_files=channel_options("measure", "efficiency"),
    shell:
        "exec leakbound step measure --settings {params.settings:q} --dataset {input.images} {params.channel_files}"
        " --rows {output.rows} --provenance {output.provenance} > {log} 2>&1"
