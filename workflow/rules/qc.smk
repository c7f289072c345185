rule alignment_statistics:
    input:
        alignments=ALIGNMENTS,
        index=ALIGNMENTS_INDEX,
        reference=reference_for_cram,
        maps=lambda wildcards: map_statistics(wildcards.sample),
    output:
        **STATISTICS,
    log:
        "<logs>/alignment_statistics/{sample}.log",
    benchmark:
        "<benchmarks>/alignment_statistics/{sample}.tsv"
    group:
        group_of_sample
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        **disk(sample_bam_mb, fasta_for_cram_mb),
        mem_mb=memory(1500),
        runtime=runtime(sample_runtime),
        small=small(is_small_sample),
    params:
        is_long=lambda wildcards: is_long_sample(wildcards.sample),
        has_own_groups=lambda wildcards: any(
            "bam" in UNITS[unit] for unit in UNITS_OF[wildcards.sample]
        ),
    script:
        "../scripts/alignment_statistics.py"


rule summary:
    input:
        **{kind: expand(path, sample=SAMPLES) for kind, path in STATISTICS.items()},
        maps=all_map_statistics(),
    output:
        samples=SUMMARY,
        units=UNITS_SUMMARY,
    log:
        "<logs>/summary.log",
    benchmark:
        "<benchmarks>/summary.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=runtime(10),
    params:
        samples=list(SAMPLES),
        # In the order of `maps`.
        units=[
            {
                "sample": sample,
                "unit": UNITS[unit]["unit"],
                "library": library_of(unit),
                "parts": n_parts(unit),
            }
            for sample in SAMPLES
            for unit in UNITS_OF[sample]
        ],
    script:
        "../scripts/summary.py"


rule summary_page:
    # After all others, so that it can tell the versions of what ran.
    input:
        samples=SUMMARY,
        units=UNITS_SUMMARY,
        maps=all_map_statistics(),
        stats=expand(STATISTICS["stats"], sample=SAMPLES),
        plots=list(PLOTS.values()),
        multiqc=[MULTIQC] if config["report"]["multiqc"] else [],
    output:
        page=report(
            SUMMARY_PAGE,
            caption="../report/summary.rst",
            category="Summary",
            labels={"table": "all samples"},
        ),
        versions=VERSIONS,
    log:
        "<logs>/summary_page.log",
    benchmark:
        "<benchmarks>/summary_page.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=runtime(10),
    params:
        reference=config["reference"],
        snakemake=SNAKEMAKE_VERSION,
    script:
        "../scripts/summary_page.py"


rule efficiency:
    # What jobs asked for and what they used of it. Their logs and benchmarks are no inputs: a job
    # would run again if a user had deleted them.
    input:
        expand(STATISTICS["flagstat"], sample=SAMPLES),
    output:
        table=EFFICIENCY,
        page=report(
            EFFICIENCY_PAGE,
            caption="../report/efficiency.rst",
            category="Summary",
            labels={"table": "all jobs"},
        ),
    log:
        "<logs>/efficiency.log",
    benchmark:
        "<benchmarks>/efficiency.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        mem_mb=memory(1000),
        runtime=runtime(10),
    params:
        benchmarks=str(Path(str(rules.fmwave_index.benchmark)).parent),
        logs=str(Path(str(rules.fmwave_index.log[0])).parent),
        names=job_names(),
        # A function, for --lint: as a mere string it is taken for a prefix of the inputs.
        stats=lambda wildcards, folder=str(Path(str(rules.fmwave_map.output.json)).parent): folder,
    script:
        "../scripts/efficiency.py"


rule plots:
    input:
        summary=SUMMARY,
        stats=expand(STATISTICS["stats"], sample=SAMPLES),
        depth=expand(STATISTICS["depth"], sample=SAMPLES),
        identity=expand(STATISTICS["identity"], sample=SAMPLES),
    output:
        **{
            kind: report(
                path,
                caption=f"../report/{kind}.rst",
                category="Plots",
                labels={"plot": kind.replace("_", " ")},
            )
            for kind, path in PLOTS.items()
        },
    log:
        "<logs>/plots.log",
    benchmark:
        "<benchmarks>/plots.tsv"
    conda:
        "../envs/report.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        mem_mb=memory(2000),
        runtime=runtime(30),
    script:
        "../scripts/plots.py"


rule multiqc:
    input:
        [expand(path, sample=SAMPLES) for kind, path in STATISTICS.items() if kind != "identity"],
        expand(MARKDUP, sample=SAMPLES),
    output:
        report(MULTIQC, caption="../report/multiqc.rst", category="MultiQC"),
    log:
        "<logs>/multiqc.log",
    benchmark:
        "<benchmarks>/multiqc.tsv"
    conda:
        "../envs/report.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        mem_mb=memory(4000),
        runtime=runtime(60),
    params:
        directory=lambda wildcards, output: Path(output[0]).parent,
        name=lambda wildcards, output: Path(output[0]).name,
    shell:
        # A list of files by name: it finds no other run's results.
        JOB
        + (
            "printf '%s\\n' {input:q} | multiqc --force --no-data-dir --file-list /dev/stdin"
            " --no-version-check --cl-config 'extra_fn_clean_exts: [.coverage]'"
            " --outdir {params.directory:q} --filename {params.name:q}"
        )
