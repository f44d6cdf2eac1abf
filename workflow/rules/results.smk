# Results: tidy tables, verdicts on the papers' claims, figures, MLflow, and one page with everything.


rule tabulate:
    """One tidy table for each study, from the records of its runs."""
    input:
        trained=files_read("tabulate", "", "train"),
        # The list that an attack's job declares stands for its files.
        attacked=sorted({snakemake_target(MADE_BY[path], path) for path in files_read("tabulate", "", "attack")}),
    output:
        RESULTS_MADE.files("tabulate"),
    log:
        RESULTS / "logs/tabulate.log",
    benchmark:
        RESULTS / "benchmarks/tabulate.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("tabulate"),
    shell:
        "exec leakbound step tabulate --configfile {params.settings} > {log} 2>&1"


rule claims:
    """Test every claim of the papers on the rows of its figure."""
    input:
        sorted({TABLE.rows_file(figure) for figure in TABLE.claiming()}),
    output:
        out=RESULTS / "claims.parquet",
        scoreboard=RESULTS / "scoreboard.md",
        counts=RESULTS / "tables/scoreboard.parquet",
    log:
        RESULTS / "logs/claims.log",
    benchmark:
        RESULTS / "benchmarks/claims.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("claims"),
    shell:
        "exec leakbound step claims --configfile {params.settings} > {log} 2>&1"


rule figures:
    """Draw all figures of a paper, each as SVG and PNG with the rows that it shows."""
    input:
        shown_tables,
    output:
        report(
            directory(RESULTS / "figures/{paper}"),
            patterns=["{figure}.svg"],
            category="{paper}",
            labels=lambda w: {"figure": w.figure, "shows": TABLE.figures[f"{w.paper}/{w.figure}"].title},
            caption="../report/figure.rst",
        ),
    log:
        RESULTS / "logs/figures/{paper}.log",
    benchmark:
        RESULTS / "benchmarks/figures/{paper}.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("figures", "{paper}"),
        captions=lambda w: {
            figure.id: TABLE.caption_markup(key) for key, figure in TABLE.figures.items() if figure.paper == w.paper
        },
    shell:
        "exec leakbound step figures {wildcards.paper} --configfile {params.settings} > {log} 2>&1"


rule log:
    """Write all finished runs to MLflow, one writer at a time. The files stay authoritative."""
    input:
        trained=files_read("log", "", "train"),
        attacked=sorted({snakemake_target(MADE_BY[path], path) for path in files_read("log", "", "attack")}),
        federated=files_read("log", "", "federate"),
        channels=files_read("log", "", "calibrate"),
        list_is_whole=whole_or_again(RESULTS / "tracking.json"),
    output:
        RESULTS / "tracking.json",
    log:
        RESULTS / "logs/log.log",
    benchmark:
        RESULTS / "benchmarks/log.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    resources:
        tracking=1,
    params:
        settings=str(CONFIGURATION),
        results=results_hash("log"),
    shell:
        "exec leakbound step log --configfile {params.settings} --out {output} > {log} 2>&1"


rule log_figures:
    """Write all figures, tables and verdicts to one MLflow run."""
    input:
        tables=TABLE_FILES,
        claims=CLAIMS,
        figures=FIGURE_FOLDERS,
    output:
        RESULTS / "tracking/figures.json",
    log:
        RESULTS / "logs/log_figures.log",
    benchmark:
        RESULTS / "benchmarks/log_figures.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    resources:
        tracking=1,
    params:
        settings=str(CONFIGURATION),
        results=results_hash("log_figures"),
    shell:
        "exec leakbound step log-figures --configfile {params.settings} > {log} 2>&1"


rule report:
    """One offline page with all figures, verdicts, runs and their provenance."""
    input:
        tables=TABLE_FILES,
        claims=CLAIMS,
        figures=FIGURE_FOLDERS,
        tracking=TRACKED_RUNS,
        trained=[path for path in RESULTS_MADE.files("train") if not path.endswith("weights.safetensors")],
        attacked=sorted(
            {snakemake_target(job, path) for job in RESULTS_MADE.of("attack") for path in job.outputs.values()}
        ),
        federated=RESULTS_MADE.files("federate", "measure"),
    output:
        RESULTS / "report.html",
    log:
        RESULTS / "logs/report.log",
    benchmark:
        RESULTS / "benchmarks/report.tsv"
    localrule: True
    conda:
        "../../environment.yml"
    threads: CONFIG.resources.figures.threads
    resources:
        mem_mb=memory("figures"),
        runtime=minutes("figures"),
    params:
        settings=str(CONFIGURATION),
        results=results_hash("report"),
        # The report is made again if its page changes.
        page=lambda w: page_hash(RESULTS_MADE.job("report", "report"), TABLE),
    shell:
        "exec leakbound step report --configfile {params.settings} > {log} 2>&1"
