# One rule for each step: all rules are alike, because a step's file says what distinguishes its jobs from those of others.

for step in JOBS.steps.values():

    rule:
        name:
            step.name
        input:
            lambda w, step=step: job_of(step, w).input_files(),
        output:
            **patterns(step),
        log:
            f"{ROOT}/{log_and_benchmark(step.name)[0]}",
        wildcard_constraints:
            name=names_of(step.name),
        group:
            step.group
        localrule: step.local
        conda:
            "../../environment.yml"
        threads: 1 if step.resources is None else getattr(CONFIG.resources, step.resources).threads
        resources:
            **requests(step),
        params:
            **parameters(step),
            command=step.name.replace("_", "-"),
            usage=f"{ROOT}/{log_and_benchmark(step.name)[1]}",
        shell:
            "leakbound --usage {params.usage} step {params.command} --settings {params.settings:q} {params.files} > {log} 2>&1"
