# What the papers need besides trained and attacked runs: closed forms, consensus, federated averaging, illustrations, times.


rule theory:
    """Utility against privacy in closed form (Zeng et al. 2022)."""
    output:
        RESULTS_MADE.files("theory"),
    log:
        RESULTS / "logs/theory.log",
    benchmark:
        RESULTS / "benchmarks/theory.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("theory"),
    shell:
        "exec leakbound step theory --configfile {params.settings} > {log} 2>&1"


rule consensus:
    """Private average consensus, simulated and as its observers see it (Wang et al. 2020)."""
    output:
        RESULTS_MADE.files("consensus"),
    log:
        RESULTS / "logs/consensus.log",
    benchmark:
        RESULTS / "benchmarks/consensus.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("consensus"),
    shell:
        "exec leakbound step consensus --configfile {params.settings} > {log} 2>&1"


rule federate:
    """Federated averaging of one setting with all its seeds (PMIDP). A killed job resumes from its checkpoint."""
    input:
        images=reads("federate", "{run}", "prepare"),
    output:
        rows=RESULTS / "federated/{run}/rows.parquet",
        provenance=RESULTS / "federated/{run}/provenance.json",
    log:
        RESULTS / "logs/federate/{run}.log",
    benchmark:
        RESULTS / "benchmarks/federate/{run}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.train.threads
    resources:
        mem_mb=memory("train"),
        runtime=minutes("train"),
        gpu=CONFIG.resources.train.gpu,
    params:
        settings=str(CONFIGURATION),
        results=results_hash("federate", "{run}"),
        code=codes("federate", "{run}"),
    shell:
        "exec leakbound step federate {wildcards.run} --configfile {params.settings} --code {params.code} > {log} 2>&1"


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
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("federated"),
    shell:
        "exec leakbound step federated --configfile {params.settings} > {log} 2>&1"


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
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("illustrate"),
    shell:
        "exec leakbound step illustrate --configfile {params.settings} > {log} 2>&1"


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
        settings=str(CONFIGURATION),
        results=results_hash("measure"),
    shell:
        "exec leakbound step measure --configfile {params.settings} > {log} 2>&1"
