rule finish_sample:
    # Gather: parts in input order, merged by library, duplicates marked, one file per sample.
    input:
        parts=parts_of_sample(PART),
        reference=reference_for_cram,
    output:
        alignments=final(ALIGNMENTS),
        index=final(ALIGNMENTS_INDEX),
        markdup=MARKDUP,
    log:
        "<logs>/finish_sample/{sample}.log",
    benchmark:
        "<benchmarks>/finish_sample/{sample}.tsv"
    conda:
        "../envs/fmwave.yaml"
    threads: config["output"]["threads"]
    resources:
        mem_mb=memory(2000),
        runtime=runtime(streaming_runtime(50_000)),
    params:
        libraries=libraries_of_sample,
        mark_duplicates=lambda wildcards: marks_duplicates(wildcards.sample),
        optical_distance=config["duplicates"]["optical_distance"],
    script:
        "../scripts/finish_sample.py"
