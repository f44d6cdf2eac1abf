# Spectra that a shape of noise needs, once per dataset; noise calibrated to each capacity.


rule spectrum:
    input:
        moments=f"{ROOT}/covariance/{{dataset}}.safetensors",
    output:
        spectrum=f"{ROOT}/spectra/{{dataset}}/{{family}}.safetensors",
    log:
        f"{ROOT}/logs/spectrum/{{dataset}}/{{family}}.log",
    benchmark:
        f"{ROOT}/benchmarks/spectrum/{{dataset}}/{{family}}.tsv"
    group:
        "channels"
    conda:
        "../../environment.yml"
    threads: asked("calibrate").threads
    resources:
        mem_mb=memory("calibrate"),
        runtime=runtime("calibrate"),
    params:
        settings=lambda w: as_text(TABLE.spectrum_settings(w.family)),
        code=lambda w: code("channels:spectrum", shapes=[TABLE.spectrum_settings(w.family)["shape"]]),
    shell:
        "leakbound spectrum --settings {params.settings:q} --moments {input.moments} --out {output.spectrum} > {log} 2>&1"


rule calibrate:
    input:
        spectrum=f"{ROOT}/spectra/{{dataset}}/{{family}}.safetensors",
    output:
        channel=f"{ROOT}/channels/{{dataset}}/{{family}}-{{level}}.safetensors",
    log:
        f"{ROOT}/logs/calibrate/{{dataset}}/{{family}}-{{level}}.log",
    benchmark:
        f"{ROOT}/benchmarks/calibrate/{{dataset}}/{{family}}-{{level}}.tsv"
    group:
        "channels"
    conda:
        "../../environment.yml"
    threads: asked("calibrate").threads
    resources:
        mem_mb=memory("calibrate"),
        runtime=runtime("calibrate"),
    params:
        settings=lambda w: as_text(TABLE.channel_settings(f"{w.dataset}/{w.family}-{w.level}")),
        code=lambda w: code("channels:calibrate", shapes=[TABLE.spectrum_settings(w.family)["shape"]]),
    shell:
        "leakbound calibrate --settings {params.settings:q} --spectrum {input.spectrum} "
        "--out {output.channel} > {log} 2>&1"
