# One offline page with all figures, verdicts, runs and provenance; points of its planes lead to the runs in MLflow.

from leakbound.storage.provenance import settings_hash


rule report_page:
    input:
        figures=FIGURE_FILES,
        claims=CLAIM_FILES,
        runs=[TABLE.path("tracking", slug, ".json") for slug in LOGGED],
    output:
        page=REPORT_FILE,
    log:
        f"{ROOT}/logs/report.log",
    benchmark:
        f"{ROOT}/benchmarks/report.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=lambda w: as_text(CONFIG.model_dump(mode="json")),
        captions=lambda w: settings_hash(
            {key: [figure.title, TABLE.caption(key)] for key, figure in TABLE.figures.items()}
        ),
        parts=lambda w: settings_hash(page_parts()),
        code=code("report:report"),
    shell:
        "leakbound report --settings {params.settings:q} --out {output.page} > {log} 2>&1"
