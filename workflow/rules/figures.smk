# Tidy tables, rows of figures that need no training, pictures, and the verdicts on the papers' claims.


rule tabulate:
    input:
        study_inputs,
    output:
        rows=f"{ROOT}/tables/{{study}}.parquet",
    log:
        f"{ROOT}/logs/tabulate/{{study}}.log",
    benchmark:
        f"{ROOT}/benchmarks/tabulate/{{study}}.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=lambda w: as_text(TABLE.table_settings(w.study)),
        root=lambda w: ROOT,
        code=code("figures:tabulate"),
    shell:
        "leakbound tabulate --settings {params.settings:q} --root {params.root} --out {output.rows} > {log} 2>&1"


rule illustrate:
    input:
        lambda w: list(illustration_files(w).values()),
    output:
        rows=f"{ROOT}/illustrations/{{illustration}}.parquet",
    log:
        f"{ROOT}/logs/illustrate/{{illustration}}.log",
    benchmark:
        f"{ROOT}/benchmarks/illustrate/{{illustration}}.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=lambda w: as_text(TABLE.illustration_settings(w.illustration)),
        files=lambda w: options(illustration_files(w)),
        code=lambda w: code(
            "figures:illustrate",
            illustrations=[w.illustration],
            # Some compare all built-in shapes, named or not.
            shapes=["natural", *CONFIG.illustrations[w.illustration].levels],
        ),
    shell:
        "leakbound illustrate --settings {params.settings:q} {params.files} --out {output.rows} > {log} 2>&1"


rule plot:
    input:
        rows=lambda w: figure_rows(TABLE.figures[w.figure]),
    output:
        svg=report(
            f"{ROOT}/figures/{{figure}}.svg",
            category=lambda w: w.figure.partition("/")[0],
            labels=lambda w: {
                "figure": w.figure.partition("/")[2],
                "shows": TABLE.figures[w.figure].title,
            },
            caption="../report/figure.rst",
        ),
        png=f"{ROOT}/figures/{{figure}}.png",
        rows=f"{ROOT}/figures/{{figure}}.parquet",
    log:
        f"{ROOT}/logs/plot/{{figure}}.log",
    benchmark:
        f"{ROOT}/benchmarks/plot/{{figure}}.tsv"
    group:
        "figures"
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=lambda w: as_text(TABLE.figure_settings(w.figure)),
        caption=lambda w: TABLE.caption(w.figure),
        stem=lambda w, output: output.png.removesuffix(".png"),
        code=lambda w: code("figures:plot", plots=[TABLE.figures[w.figure].plot]),
    shell:
        "leakbound plot --settings {params.settings:q} --rows {input.rows} --stem {params.stem} "
        "--shown {output.rows} > {log} 2>&1"


rule claims:
    input:
        sorted({figure_rows(figure) for figure in TABLE.claiming()}),
    output:
        claims=f"{ROOT}/claims.parquet",
        counts=f"{ROOT}/tables/scoreboard.parquet",
        scoreboard=f"{ROOT}/scoreboard.md",
        page=report(
            f"{ROOT}/scoreboard.html",
            category="scoreboard",
            labels={"figure": "all", "shows": "claims and verdicts"},
        ),
    log:
        f"{ROOT}/logs/claims.log",
    benchmark:
        f"{ROOT}/benchmarks/claims.tsv"
    conda:
        "../../environment.yml"
    threads: asked("figures").threads
    resources:
        mem_mb=memory("figures"),
        runtime=runtime("figures"),
    params:
        settings=as_text(TABLE.claims_settings()),
        root=lambda w: ROOT,
        code=code(
            "figures:claims",
            claim_tests=sorted({c.test for f in TABLE.claiming() for c in f.claims}),
        ),
    shell:
        "leakbound claims --settings {params.settings:q} --root {params.root} --out {output.claims} "
        "--scoreboard {output.scoreboard} --page {output.page} --counts {output.counts} > {log} 2>&1"
