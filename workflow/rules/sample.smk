rule map_sample:
    # A sample that is one job on the CPU: mapped, sorted, marked and indexed by it.
    input:
        index=INDEX,
        reads=given_reads,
        reference=reference_for_cram,
        compiled=compiled,
    output:
        alignments=final(ALIGNMENTS),
        index=final(ALIGNMENTS_INDEX),
        markdup=MARKDUP,
        json=SAMPLE_JSON,
    log:
        "<logs>/map/{sample}.log",
    benchmark:
        "<benchmarks>/map/{sample}.tsv"
    wildcard_constraints:
        sample=one_of([sample for sample in SAMPLES if sample in ONE_JOB]),
    group:
        group_of_sample
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: config["map"]["threads"]
    resources:
        **map_disk(),
        mem_mb=memory(sorting_map_mem_mb),
        runtime=runtime(map_runtime),
        small=small(is_small_sample),
    params:
        checks=checks,
        staging=staging,
        read_group=read_group_argument,
        preset=preset_argument,
        mates=mates_in_order,
        reference=reference_option,
        duplicates=duplicate_options,
        counts=count_duplicates,
        extra=config["map"]["extra"],
        afterwards=without_duplicates,
    shell:
        JOB
        + (
            "{params.checks}{params.staging:q} fmwave map {input.index:q} {input.reads:q}"
            " -o {output.alignments:q} --sort -t {threads}"
            " --resume-or-restart {params.read_group:q} {params.preset} {params.reference:q}"
            " {params.duplicates:q} {params.counts:q} --device cpu"
            " --json-stats {output.json:q} {params.extra}{params.afterwards}"
        )


rule finish_sample:
    # Gather: the parts of a sample, in input order, to one file, duplicates marked by library.
    input:
        parts=parts_of_sample,
        reference=reference_for_cram,
    output:
        alignments=final(ALIGNMENTS),
        index=final(ALIGNMENTS_INDEX),
        markdup=MARKDUP,
    log:
        "<logs>/finish_sample/{sample}.log",
    benchmark:
        "<benchmarks>/finish_sample/{sample}.tsv"
    wildcard_constraints:
        sample=one_of([sample for sample in SAMPLES if sample not in ONE_JOB]),
    group:
        group_of_sample
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: config["output"]["threads"]
    resources:
        **finish_disk(),
        mem_mb=memory(finish_mem_mb),
        runtime=runtime(sample_runtime),
        small=small(is_small_sample),
    params:
        check=lambda wildcards, input: check_read_groups(wildcards.sample, input.parts),
        make_scratch=unrecorded(make_scratch()),
        remove_unfinished=remove_unfinished,
        tmp_dir=unrecorded(sort_folder()),
        reference=reference_option,
        duplicates=duplicate_options,
        counts=count_duplicates,
        afterwards=without_duplicates,
    shell:
        JOB
        + (
            # Remove what a killed merge has left. One that still runs would fail when it renames its file.
            "{params.check}; {params.make_scratch}{params.remove_unfinished}"
            "fmwave merge {input.parts:q} -o {output.alignments:q} -t {threads} {params.tmp_dir:q}"
            " {params.reference:q} {params.duplicates:q} {params.counts:q}{params.afterwards}"
        )
