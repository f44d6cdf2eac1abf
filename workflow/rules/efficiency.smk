# Training times of the defenses, taken in turns in one process: compare them within the job, not with other jobs.


rule measure:
    input:
        dataset=[TABLE.path("data", CONFIG.efficiency.dataset, ".safetensors")] if CONFIG.efficiency else [],
        channels=lambda w: [path for files in timed_channels(w).values() for path in files.values()],
    output:
        rows=f"{ROOT}/tables/efficiency.parquet",
        provenance=f"{ROOT}/tables/efficiency.json",
    log:
        f"{ROOT}/logs/efficiency.log",
    benchmark:
        f"{ROOT}/benchmarks/efficiency.tsv"
    conda:
        "../../environment.yml"
    threads: asked("efficiency").threads
    resources:
        mem_mb=memory("efficiency"),
        runtime=runtime("efficiency"),
        gpu=asked("efficiency").gpu,
    params:
        settings=lambda w: as_text(TABLE.efficiency_settings()),
        channels=lambda w: " ".join(
            f"--{role} {name}={path}" for name, files in timed_channels(w).items() for role, path in files.items()
        ),
        code=code("planning:measure", models=CONFIG.efficiency.models if CONFIG.efficiency else []),
    shell:
        "leakbound measure --settings {params.settings:q} --dataset {input.dataset} {params.channels} "
        "--rows {output.rows} --provenance {output.provenance} > {log} 2>&1"
