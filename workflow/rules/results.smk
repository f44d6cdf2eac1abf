# Results: tidy tables, verdicts on the papers' claims, figures, MLflow, and one page with everything.


rule tabulate:
    """One tidy table for each study, from the records of its runs."""
    input:
        trained=files_read("tabulate", "", "train"),
        attacked=files_read("tabulate", "", "attack"),
    output:
        RESULTS_MADE.files("tabulate"),
    log:
        RESULTS / "logs/tabulate.log",
    benchmark:
        RESULTS / "benchmarks/tabulate.tsv"
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


# A rule for each paper, figures_tan2024 and so on: all its figures, each as SVG, in the formats that the configuration asks
# for, and with the rows that it shows.
for paper in sorted({figure.paper for figure in TABLE.figures.values()}):
    drawn = {key: figure for key, figure in TABLE.figures.items() if figure.paper == paper}

    rule:
        name:
            f"figures_{paper}"
        input:
            sorted({TABLE.rows_file(figure) for figure in drawn.values()}),
        output:
            pictures=[
                report(TABLE.file("plot", key, "svg"), category=paper, labels=RULES.labels(key))
                for key, figure in drawn.items()
            ],
            others=[path for key in drawn for path in TABLE.drawn(key)[1:]],
        log:
            RESULTS / f"logs/figures/{paper}.log",
        benchmark:
            RESULTS / f"benchmarks/figures/{paper}.tsv"
        conda:
            "../../environment.yml"
        threads: CONFIG.resources.figures.threads
        resources:
            mem_mb=memory("figures"),
            runtime=minutes("figures"),
        params:
            settings=str(CONFIGURATION),
            paper=paper,
            results=results_hash("figures", paper),
        shell:
            "exec leakbound step figures {params.paper} --configfile {params.settings} > {log} 2>&1"


rule log:
    """Write all finished runs to MLflow, one writer at a time. The files stay authoritative."""
    input:
        trained=files_read("log", "", "train"),
        attacked=files_read("log", "", "attack"),
        federated=files_read("log", "", "federate"),
        channels=files_read("log", "", "calibrate"),
    output:
        TRACKED_RUNS,
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
        "exec leakbound step log --configfile {params.settings} > {log} 2>&1"


rule log_figures:
    """Write all figures, tables and verdicts to one MLflow run."""
    input:
        tables=TABLE_FILES,
        claims=CLAIMS,
        figures=FIGURES,
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
        figures=FIGURES,
        tracking=TRACKED_RUNS,
        runs=SHOWN,
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
