rule bam_statistics:
    input:
        bam=rules.fmwave_map.output.bam,
        bai=rules.bam_index.output[0],
    output:
        flagstat="<results>/stats/{unit}.flagstat.txt",
        stats="<results>/stats/{unit}.stats.txt",
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
        flagstat=expand("<results>/stats/{unit}.flagstat.txt", unit=UNITS),
        stats=expand("<results>/stats/{unit}.stats.txt", unit=UNITS),
    output:
        "<results>/summary.tsv",
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
