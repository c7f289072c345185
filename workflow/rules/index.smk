rule fmwave_index:
    input:
        **index_marks(),
        fasta=given(config["reference"]),
    output:
        directory(INDEX),
    log:
        "<logs>/index.log",
    benchmark:
        "<benchmarks>/index.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: config["index"]["threads"]
    resources:
        **disk(fasta_mb, index_mb),
        mem_mb=memory(index_mem_mb),
        runtime=runtime(reference_runtime),
    params:
        marks=mark_options,
        sampling=index_sampling(),
    shell:
        # --device cpu: a job that asked for no GPU takes none, even if it sees one.
        JOB
        + (
            "fmwave index {input.fasta:q} -o {output:q} -t {threads} --device cpu"
            " {params.marks} {params.sampling}"
        )


rule plain_reference:
    # htslib reads neither gzip nor a path that changes: CRAM needs plain FASTA with an index.
    input:
        fasta=given(config["reference"]),
    output:
        fasta=FASTA,
        fai=f"{FASTA}.fai",
    log:
        "<logs>/plain_reference.log",
    benchmark:
        "<benchmarks>/plain_reference.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        **disk(fasta_mb, plain_fasta_mb),
        mem_mb=memory(1000),
        runtime=runtime(reference_runtime),
    script:
        "../scripts/plain_reference.py"
