process FMWAVE_INDEX {
    tag "${fasta}"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"
    container "${workflow.containerEngine in ['singularity', 'apptainer'] && !task.ext.singularity_pull_docker_container
        ? 'https://depot.galaxyproject.org/singularity/fmwave:0.1.0--pyhdfd78af_0'
        : 'quay.io/biocontainers/fmwave:0.1.0--pyhdfd78af_0'}"

    input:
    tuple val(meta), path(fasta)

    output:
    tuple val(meta), path("*.fmw"), emit: index
    tuple val("${task.process}"), val('fmwave'), eval("fmwave --version | sed 's/fmwave //'"), topic: versions, emit: versions_fmwave

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    def prefix = task.ext.prefix ?: "${fasta.baseName}"
    """
    fmwave index \\
        ${args} \\
        --threads ${task.cpus} \\
        --output ${prefix}.fmw \\
        ${fasta}
    """

    stub:
    def prefix = task.ext.prefix ?: "${fasta.baseName}"
    """
    mkdir ${prefix}.fmw
    touch ${prefix}.fmw/blocks.npy
    """
}
