# Attacks: membership, model and gradient inversion, audits, as the studies of a run ask for them.


# A rule for each list of attacks, attack_membership_and_model_inversion and so on, for the runs that are attacked so.
for attacked in RULES.attack_lists():

    rule:
        name:
            attacked.rule
        # Train the reference networks of a run's attackers, and attack its networks, or the gradients of an untrained one.
        # A killed job resumes: finished attacks are kept, and the training of references has a checkpoint.
        input:
            images=reads("attack", "{run}", "prepare"),
            channel=reads("attack", "{run}", "covariance", "spectrum", "calibrate"),
            trained=reads("attack", "{run}", "train"),
            estimator=reads("attack", "{run}", "estimator"),
        output:
            rows=expand(RESULTS / "attacks/{{run}}/{attack}.parquet", attack=attacked.attacks),
            arrays=expand(RESULTS / "attacks/{{run}}/{attack}.safetensors", attack=attacked.attacks),
            provenance=expand(RESULTS / "attacks/{{run}}/{attack}.json", attack=attacked.attacks),
            references=expand(
                RESULTS / "references/{{run}}/{file}",
                file=["weights.safetensors", "rates.parquet", "provenance.json"] if attacked.references else [],
            ),
        log:
            RESULTS / "logs/attack/{run}.log",
        benchmark:
            RESULTS / "benchmarks/attack/{run}.tsv"
        wildcard_constraints:
            run=attacked.runs,
        priority: RULES.attack_priority
        conda:
            "../../environment.yml"
        threads: max(CONFIG.resources.train.threads, CONFIG.resources.attack.threads)
        resources:
            mem_mb=memory("train", "attack"),
            runtime=minutes("train", "attack"),
            gpu=max(CONFIG.resources.train.gpu, CONFIG.resources.attack.gpu),
        params:
            settings=str(CONFIGURATION),
            results=results_hash("attack", "{run}"),
            code=codes("attack", "{run}"),
        shell:
            "exec leakbound step attack {wildcards.run} --configfile {params.settings} --code {params.code} > {log} 2>&1"


# A rule for untrained networks whose attacks are short together, attack_untrained_digits-mlp and so on.
for untrained in RULES.untrained():

    rule:
        name:
            untrained.rule
        # Attack the gradients of an untrained network under several defenses and levels. Finished attacks are kept.
        input:
            images=files_read("attack", untrained.name, "prepare"),
            channels=files_read("attack", untrained.name, "covariance", "spectrum", "calibrate"),
            estimator=files_read("attack", untrained.name, "estimator"),
        output:
            rows=RULES.files("attack", untrained.name, ".parquet"),
            arrays=RULES.files("attack", untrained.name, ".safetensors"),
            provenance=RULES.files("attack", untrained.name, ".json"),
        log:
            RESULTS / f"logs/attack/{untrained.name}.log",
        benchmark:
            RESULTS / f"benchmarks/attack/{untrained.name}.tsv"
        priority: untrained.priority
        conda:
            "../../environment.yml"
        threads: max(CONFIG.resources.train.threads, CONFIG.resources.attack.threads)
        resources:
            mem_mb=memory("train", "attack"),
            runtime=minutes("train", "attack"),
            gpu=max(CONFIG.resources.train.gpu, CONFIG.resources.attack.gpu),
        params:
            settings=str(CONFIGURATION),
            networks=untrained.name,
            results=results_hash("attack", untrained.name),
            code=codes("attack", untrained.name),
        shell:
            "exec leakbound step attack {params.networks} --configfile {params.settings} --code {params.code} > {log} 2>&1"


rule attacks:
    """All attacks."""
    input:
        RESULTS_MADE.files("attack", "references"),
