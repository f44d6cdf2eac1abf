# Data: images with fixed splits, and the noise channels that are calibrated to them.


rule prepare:
    """Images of a dataset: a private pool of members, test records and the attacker's own records."""
    output:
        images=RESULTS / "data/{dataset}.safetensors",
        provenance=RESULTS / "data/{dataset}.json",
    log:
        RESULTS / "logs/prepare/{dataset}.log",
    benchmark:
        RESULTS / "benchmarks/prepare/{dataset}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.prepare.threads
    resources:
        mem_mb=memory("prepare"),
        runtime=minutes("prepare"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("prepare", "{dataset}"),
        # Other original files make the dataset again.
        originals=lambda w: originals(RESULTS_MADE.job("prepare", w.dataset), TABLE),
    shell:
        "exec leakbound step prepare {wildcards.dataset} --configfile {params.settings} > {log} 2>&1"


rule covariance:
    """Mean and covariance of the attacker's records, from which channels are made, and of the members."""
    input:
        images=RESULTS / "data/{dataset}.safetensors",
    output:
        RESULTS / "covariance/{dataset}/aux.safetensors",
        RESULTS / "covariance/{dataset}/members.safetensors",
    log:
        RESULTS / "logs/covariance/{dataset}.log",
    benchmark:
        RESULTS / "benchmarks/covariance/{dataset}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.covariance.threads
    resources:
        mem_mb=memory("covariance"),
        runtime=minutes("covariance"),
        gpu=CONFIG.resources.covariance.gpu,
    params:
        settings=str(CONFIGURATION),
        results=results_hash("covariance", "{dataset}"),
    shell:
        "exec leakbound step covariance {wildcards.dataset} --configfile {params.settings} > {log} 2>&1"


rule spectrum:
    """Decompose a covariance as far as a shape of noise needs it, once for all capacities."""
    input:
        moments=reads("spectrum", "{dataset}/{family}", "covariance"),
    output:
        RESULTS / "spectra/{dataset}/{family}.safetensors",
    log:
        RESULTS / "logs/spectrum/{dataset}/{family}.log",
    benchmark:
        RESULTS / "benchmarks/spectrum/{dataset}/{family}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.calibrate.threads
    resources:
        mem_mb=memory("calibrate"),
        runtime=minutes("calibrate"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("spectrum", "{dataset}/{family}"),
    shell:
        "exec leakbound step spectrum {wildcards.dataset}/{wildcards.family} --configfile {params.settings} > {log} 2>&1"


rule calibrate:
    """Noise of a shape that reveals at most a capacity: the channel."""
    input:
        spectrum=reads("calibrate", "{dataset}/{channel}", "spectrum"),
        members=RESULTS / "covariance/{dataset}/members.safetensors",
    output:
        channel=RESULTS / "channels/{dataset}/{channel}.safetensors",
        provenance=RESULTS / "channels/{dataset}/{channel}.json",
    log:
        RESULTS / "logs/calibrate/{dataset}/{channel}.log",
    benchmark:
        RESULTS / "benchmarks/calibrate/{dataset}/{channel}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.calibrate.threads
    resources:
        mem_mb=memory("calibrate"),
        runtime=minutes("calibrate"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("calibrate", "{dataset}/{channel}"),
    shell:
        "exec leakbound step calibrate {wildcards.dataset}/{wildcards.channel} --configfile {params.settings}"
        " > {log} 2>&1"


rule estimator:
    """A network that estimates images from their noisy versions, trained on the attacker's own records."""
    input:
        images=RESULTS / "data/{dataset}.safetensors",
        moments=RESULTS / "covariance/{dataset}/aux.safetensors",
        spectra=reads("estimator", "{dataset}", "spectrum"),
    output:
        estimator=RESULTS / "estimators/{dataset}.safetensors",
        provenance=RESULTS / "estimators/{dataset}.json",
    log:
        RESULTS / "logs/estimator/{dataset}.log",
    benchmark:
        RESULTS / "benchmarks/estimator/{dataset}.tsv"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.estimator.threads
    resources:
        mem_mb=memory("estimator"),
        runtime=minutes("estimator"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("estimator", "{dataset}"),
    shell:
        "exec leakbound step estimator {wildcards.dataset} --configfile {params.settings} > {log} 2>&1"
