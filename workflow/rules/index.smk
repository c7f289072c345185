rule fmwave_index:
    input:
        fasta=local(config["reference"]),
    output:
        directory(INDEX),
    log:
        "<logs>/index.log",
    benchmark:
        "<benchmarks>/index.tsv"
    conda:
        "../envs/fmwave.yaml"
    threads: config["index"]["threads"]
    resources:
        mem_mb=index_mem_mb,
        runtime=lambda wildcards, attempt: 120 * attempt,
    shell:
        # The index build takes its number of threads from numba.
        "NUMBA_NUM_THREADS={threads} fmwave index {input.fasta:q} -o {output:q} > {log:q} 2>&1"
