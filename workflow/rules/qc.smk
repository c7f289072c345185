rule bam_statistics:
    input:
        bam=BAM,
        bai=BAI,
    output:
        flagstat=FLAGSTAT,
        stats=STATS,
        idxstats="<results>/stats/{unit}.idxstats.tsv",
    log:
        "<logs>/bam_statistics/{unit}.log",
    benchmark:
        "<benchmarks>/bam_statistics/{unit}.tsv"
    conda:
        "../envs/fmwave.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, attempt: 120 * attempt,
    script:
        "../scripts/bam_statistics.py"


rule summary:
    input:
        flagstat=expand(FLAGSTAT, unit=UNITS),
        stats=expand(STATS, unit=UNITS),
    output:
        SUMMARY,
    log:
        "<logs>/summary.log",
    benchmark:
        "<benchmarks>/summary.tsv"
    conda:
        "../envs/fmwave.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, attempt: 1000 * attempt,
        runtime=lambda wildcards, attempt: 10 * attempt,
    params:
        units=list(UNITS),
    script:
        "../scripts/summary.py"
