rule fmwave_map:
    input:
        index=INDEX,
        reads=local(reads_of),
    output:
        bam=BAM,
        bai=BAI,
        json="<results>/stats/{unit}.map.json",
    log:
        "<logs>/map/{unit}.log",
    benchmark:
        "<benchmarks>/map/{unit}.tsv"
    conda:
        "../envs/fmwave.yaml"
    threads: config["map"]["threads"]
    resources:
        mem_mb=map_mem_mb,
        runtime=lambda wildcards, attempt: 240 * attempt,
    params:
        read_group=read_group,
        extra=config["map"]["extra"],
    shell:
        "fmwave map {input.index:q} {input.reads:q} -o {output.bam:q} --sort -t {threads}"
        " -R {params.read_group:q} --json-stats {output.json:q} {params.extra} > {log:q} 2>&1"
