process FMWAVE_MAP {
    tag "${meta.id}"
    label 'process_high'
    label 'process_gpu'

    conda "${moduleDir}/environment.yml"
    container "${workflow.containerEngine in ['singularity', 'apptainer'] && !task.ext.singularity_pull_docker_container
        ? 'https://depot.galaxyproject.org/singularity/fmwave:0.1.0--pyhdfd78af_0'
        : 'quay.io/biocontainers/fmwave:0.1.0--pyhdfd78af_0'}"

    input:
    tuple val(meta), path(reads)
    tuple val(meta2), path(index)
    tuple val(meta3), path(fasta)
    val output_fmt
    val sort_bam

    output:
    tuple val(meta), path("*.bam"), emit: bam, optional: true
    tuple val(meta), path("*.cram"), emit: cram, optional: true
    tuple val(meta), path("*.sam"), emit: sam, optional: true
    tuple val(meta), path("*.paf"), emit: paf, optional: true
    tuple val(meta), path("*.{bai,csi,crai}"), emit: index, optional: true
    tuple val(meta), path("*.json"), emit: json
    tuple val("${task.process}"), val('fmwave'), eval("fmwave --version | sed 's/fmwave //'"), topic: versions, emit: versions_fmwave

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    def prefix = task.ext.prefix ?: "${meta.id}"
    def device = task.accelerator ? 'cuda' : 'cpu'
    def sort = sort_bam ? '--sort' : ''
    def reference = output_fmt == 'cram' ? "--reference ${fasta}" : ''
    if (output_fmt == 'cram' && !fasta) {
        error("CRAM output needs the reference, in FASTA")
    }
    """
    fmwave map \\
        ${args} \\
        ${sort} \\
        ${reference} \\
        --device ${device} \\
        --threads ${task.cpus} \\
        --json-stats ${prefix}.json \\
        --output ${prefix}.${output_fmt} \\
        ${index} \\
        ${reads}
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    def suffix = output_fmt == 'cram' ? 'crai' : 'bai'
    def touch_index = sort_bam && output_fmt in ['bam', 'cram'] ? "touch ${prefix}.${output_fmt}.${suffix}" : ''
    """
    touch ${prefix}.${output_fmt}
    touch ${prefix}.json
    ${touch_index}
    """
}
