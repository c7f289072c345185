rule fmwave_compile:
    # Before the mapping jobs of a run, which would all compile at once; a second or two where it
    # has been done. On one machine the first run does it while it maps.
    output:
        COMPILED,  # kept: were it made again for one more sample, all samples would be mapped again
    log:
        "<logs>/compile.log",
    benchmark:
        "<benchmarks>/compile.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: map_threads()
    resources:
        **compile_resources(),
        mem_mb=memory(compile_mem_mb),
        runtime=runtime(30),
    params:
        # Were this job to run again for another device, Snakemake (9.27) would not look at jobs that
        # wait for it for changes of their own.
        device=unrecorded(compile_device()),
    shell:
        JOB + f"if env | grep -E '{NUMBER}' > /dev/null; then"
        " fmwave compile --missing -t {threads} --device {params.device}"
        " || echo 'Not compiled: mapping jobs compile for themselves.'; fi; : > {output:q}"


rule split_reads:
    # Scatter: the chunks are consecutive, so that putting them back together is a merge.
    input:
        reads=given_reads,
    output:
        chunks=temp(directory(CHUNKS)),
    log:
        "<logs>/split_reads/{unit}.log",
    benchmark:
        "<benchmarks>/split_reads/{unit}.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: 1
    resources:
        **disk(reads_mb, bam_mb),
        mem_mb=memory(1500),
        runtime=runtime(split_runtime),
    params:
        n_chunks=lambda wildcards: n_parts(wildcards.unit),
        mates=mates_in_order,
    script:
        "../scripts/split_reads.py"


rule estimate_insert_size:
    # Once for all jobs of a library, named after its first unit: what fmwave map would estimate,
    # were they one run.
    input:
        index=INDEX,
        reads=reads_of_library,
        compiled=compiled,
    output:
        json=INSERT_SIZE,
    log:
        "<logs>/estimate_insert_size/{unit}.log",
    benchmark:
        "<benchmarks>/estimate_insert_size/{unit}.tsv"
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: config["map"]["threads"]
    resources:
        **disk(index_mb, reads_of_library_mb),
        mem_mb=memory(cpu_map_mem_mb),
        runtime=runtime(30),
    params:
        # Files of each unit; the paths themselves are Snakemake's to change.
        units=lambda wildcards: {
            unit: len(read_files(unit)) for unit in paired_units(wildcards.unit)
        },
        extra=config["map"]["extra"],
    script:
        "../scripts/estimate_insert_size.py"


rule fmwave_map:
    input:
        index=INDEX,
        reads=whole_reads,
        chunks=chunks_of,
        insert_size=insert_size_of,
        compiled=compiled,
    output:
        **({"index": temp(f"{PART}.{config['map']['index_kind']}")} if SORTED_PARTS else {}),
        bam=temp(PART),
        json=PART_JSON,
    log:
        "<logs>/map/{unit}.{part}-of-{parts}.log",
    benchmark:
        "<benchmarks>/map/{unit}.{part}-of-{parts}.tsv"
    group:
        group_of_map
    conda:
        "../envs/fmwave.yaml"
    envmodules:
        *config["modules"],
    threads: map_threads()
    resources:
        **map_disk(),
        **map_resources(),
        mem_mb=memory(map_mem_mb),
        small=small(is_small_map),
    params:
        checks=checks,
        staging=staging,
        reads=reads_argument,
        insert_size=insert_size_argument,
        read_group=read_group_argument,
        device=unrecorded(map_device()),
        gpu=unrecorded(gpu_options()),
        gpu_share=unrecorded(gpu_share()),
        preset=preset_argument,
        mates=mates_in_order,
        sort=unrecorded("--sort" if SORTED_PARTS else ""),  # finish_sample merges both
        extra=config["map"]["extra"],
    shell:
        JOB + "echo asked {params.gpu_share}; "
        'echo "CUDA_VISIBLE_DEVICES=${{CUDA_VISIBLE_DEVICES-not set}}"; '
        "{params.checks}{params.staging:q} fmwave map {input.index:q} {params.reads:q}"
        " -o {output.bam:q} {params.sort} -t {threads}"
        " --resume-or-restart"
        " {params.read_group:q} {params.preset} --device {params.device} {params.gpu}"
        " --json-stats {output.json:q} {params.insert_size:q} {params.extra}"
