# Paths, and functions that compute the inputs, parameters and resources of rules.
import math
import os
import re
import shlex

from snakemake import __version__ as SNAKEMAKE_VERSION

# Paths that one step makes and another reads. Through rules.x.output, as usual, a workflow that
# imports this one could not override a step by "use ... with" (Snakemake 9.27).
INDEX = "<results>/index/reference.fmw"
FASTA = "<results>/reference/reference.fa"
COMPILED = "<results>/compiled"
CHUNKS = "<results>/chunks/{unit}"
INSERT_SIZE = "<results>/insert_size/{unit}.json"
PART = "<results>/parts/{unit}.{part}-of-{parts}.bam"
PART_JSON = "<results>/stats/{unit}.{part}-of-{parts}.map.json"
SAMPLE_JSON = "<results>/stats/{sample}.map.json"  # of a sample that is one job

IS_CRAM = config["output"]["format"] == "cram"
ALIGNMENTS = f"<results>/mapped/{{sample}}.{config['output']['format']}"
ALIGNMENTS_INDEX = f"{ALIGNMENTS}.{'crai' if IS_CRAM else config['map']['index_kind']}"

STATISTICS = {
    "flagstat": "<results>/stats/{sample}.flagstat.txt",
    "stats": "<results>/stats/{sample}.stats.txt",
    "idxstats": "<results>/stats/{sample}.idxstats.tsv",
    "coverage": "<results>/stats/{sample}.coverage.tsv",
    "depth": "<results>/stats/{sample}.depth.tsv",
    "identity": "<results>/stats/{sample}.identity.tsv",
}
MARKDUP = "<results>/stats/{sample}.markdup.json"
SUMMARY = "<results>/summary.tsv"
UNITS_SUMMARY = "<results>/units.tsv"
SUMMARY_PAGE = "<results>/summary.html"
VERSIONS = "<results>/versions.tsv"
EFFICIENCY = "<results>/efficiency.tsv"
EFFICIENCY_PAGE = "<results>/efficiency.html"
PLOTS = {
    kind: f"<results>/plots/{kind}.svg"
    for kind in (
        "reads",
        "insert_size",
        "coverage",
        "depth",
        "mapq",
        "read_length",
        "identity",
    )
}
MULTIQC = "<results>/multiqc.html"

UNITS_OF = Rows("sample", config["samples"], {sample: [] for sample in SAMPLES})
for unit, row in UNITS.items():
    UNITS_OF[row["sample"]].append(unit)


def is_long_sample(sample):
    """Whether the reads of a sample are long; its units are alike."""
    return is_long(UNITS[UNITS_OF[sample][0]])


def preset_argument(wildcards):
    """--preset of a unit of long reads; the others take the default."""
    unit = UNITS[unit_of(wildcards)]
    return ["--preset", preset_of(unit)] if is_long(unit) else []


def n_parts(unit):
    """Into how many chunks the reads of a unit are scattered; 1: not at all."""
    return UNITS[unit].get("chunks", config["map"]["chunks"])


# A sample that is one job on the CPU is finished by it. On a GPU it is not: sorting and writing go
# on when the GPU has done its part, for a third of the time, and only the end of a job gives it back.
ONE_JOB = {
    sample
    for sample, units in UNITS_OF.items()
    if GPU is None and len(units) == 1 and n_parts(units[0]) == 1
}
SORTED_PARTS = GPU is None  # for the same reason
ANY_SAMPLE = "[A-Za-z0-9_.]+"


def one_of(samples):
    """Return the wildcard constraint of some samples."""
    if len(samples) == len(SAMPLES):
        return ANY_SAMPLE
    return "|".join(map(re.escape, samples)) or "(?!)"


wildcard_constraints:
    sample=ANY_SAMPLE,
    unit="[A-Za-z0-9_.]+-[A-Za-z0-9_.]+",
    part="[0-9]+",
    parts="[0-9]+",


def given(path):
    """A file that the settings name, where no `prefix:` of an importing workflow moves it.

    A URL is read by a storage plugin. All else lies in the default storage if Snakemake was given
    one, as for Kubernetes, whose pods see no disk of ours.
    """
    if is_url(path):
        return storage(path)
    return local(path) if SHARED_DISK else path


def streamed(path):
    """One that jobs read once, from start to end, so that a storage plugin may bring no copy.

    The one that may, for folders (fs 1.1), makes a relative link, which leads nowhere if the place
    of the copies is itself reached by a link.
    """
    copies = workflow.storage_settings.local_storage_prefix
    if SHARED_DISK and not is_url(path) or copies.resolve() != copies.absolute():
        return given(path)
    return access.sequential(given(path))


def read_files(unit):
    return [UNITS[unit][column] for column in ("fq1", "fq2", "bam") if column in UNITS[unit]]


def unit_of(wildcards):
    """The unit of a job, of one for a whole sample too."""
    return wildcards.unit if "unit" in wildcards.keys() else UNITS_OF[wildcards.sample][0]


def given_reads(wildcards):
    return [streamed(path) for path in read_files(unit_of(wildcards))]


def mates_in_order(wildcards):
    """The files of a unit as a param: of inputs Snakemake keeps the set, and not which are first."""
    return read_files(unit_of(wildcards))


def library_of(unit):
    return UNITS[unit].get("library", UNITS[unit]["sample"])


def may_be_paired(unit):
    """Whether a unit has pairs; of a BAM that is only known when it is read."""
    return "fq2" in UNITS[unit] or ("bam" in UNITS[unit] and not is_long(UNITS[unit]))


PAIRED_UNITS_OF = {}  # of each library of each sample
for unit, row in UNITS.items():
    if may_be_paired(unit):
        PAIRED_UNITS_OF.setdefault((row["sample"], library_of(unit)), []).append(unit)


def paired_units(unit):
    """The units with pairs of the library that a unit is from, in the order of the sheet."""
    return PAIRED_UNITS_OF.get((UNITS[unit]["sample"], library_of(unit)), [])


def reads_of_library(wildcards):
    return [streamed(path) for unit in paired_units(wildcards.unit) for path in read_files(unit)]


def chunk_files(unit, folder, chunk):
    """The reads of a chunk, as split_reads.py names them."""
    if "bam" in UNITS[unit]:
        return [f"{folder}/{chunk}.bam"]
    return [f"{folder}/{chunk}_R{mate}.fq.gz" for mate in range(1, len(read_files(unit)) + 1)]


def whole_reads(wildcards):
    """The files of a unit that is mapped in one piece."""
    return given_reads(wildcards) if wildcards.parts == "1" else []


def chunks_of(wildcards):
    """Where the chunks of a scattered unit lie."""
    return CHUNKS if wildcards.parts != "1" else []


def insert_size_of(wildcards):
    """The insert size of a library that several jobs map.

    One job alone estimates the same by itself; and -I in map.extra gives it.
    """
    units = paired_units(wildcards.unit)
    if wildcards.unit not in units or GIVES_INSERT_SIZE or sum(map(n_parts, units)) == 1:
        return []
    return INSERT_SIZE.replace("{unit}", units[0])


def compiled(wildcards):
    """What mapping jobs wait for; how old it is does not matter. A pod would compile for itself."""
    return ancient(COMPILED) if SHARED_DISK else []


def reads_argument(wildcards, input):
    if wildcards.parts == "1":
        return input.reads
    return chunk_files(wildcards.unit, input.chunks, wildcards.part)


def insert_size_argument(wildcards, input):
    return ["--insert-size-from", input.insert_size] if input.insert_size else []


def staging(wildcards, input):
    """The start of a command that then has a copy on the node for the index; or nothing."""
    if not config["scratch"]:
        return []
    script = workflow.source_path("../scripts/stage_index.py")
    return ["python3", str(script), str(input.index), config["scratch"]]


def unrecorded(value):
    """Return a param of which a change makes nothing again, as it does not change results.

    Snakemake keeps no record of params that are functions of `output`: it takes them to follow from
    the paths.
    """
    return lambda wildcards, output: value


def sort_folder():
    """--tmp-dir of a sort that begins anew with its job.

    What one that is resumed goes on with lies beside the output, where each node finds it.
    """
    return ["--tmp-dir", config["scratch"]] if config["scratch"] else []


def make_scratch():
    """The start of a command that needs the scratch folder."""
    return f"mkdir -p {shlex.quote(config['scratch'])}; " if config["scratch"] else ""


def remove_unfinished(wildcards, output):
    """The start of a command that removes what earlier ones left under temporary names."""
    paths = [Path(str(path)) for path in (output.alignments, output.index)]
    names = [shlex.quote(str(path.with_name(f".{path.name}.fmwave-"))) for path in paths]
    return f"rm -f {names[0]}*.tmp {names[1]}*.tmp; "


def read_group_argument(wildcards):
    """-R and the @RG line of a unit, with \\t written out; a BAM brings its own."""
    name = unit_of(wildcards)
    unit = UNITS[name]
    if "bam" in unit:
        return []
    line = "\\t".join(
        [
            "@RG",
            f"ID:{name}",
            f"SM:{unit['sample']}",
            f"LB:{library_of(name)}",
            f"PL:{unit['platform']}",
        ]
    )
    return ["-R", line]


def parts_of(pattern, sample):
    """`pattern` for each part of each unit of a sample, in input order."""
    return [
        pattern.replace("{unit}", unit)
        .replace("{parts}", str(n_parts(unit)))
        .replace("{part}", str(part))
        for unit in UNITS_OF[sample]
        for part in range(1, n_parts(unit) + 1)
    ]


def parts_of_sample(wildcards):
    """The mapped parts of the sample of a job."""
    return parts_of(PART, wildcards.sample)


def map_statistics(sample):
    """What the mapping jobs of a sample have counted, in input order."""
    if sample in ONE_JOB:
        return [SAMPLE_JSON.replace("{sample}", sample)]
    return parts_of(PART_JSON, sample)


def all_map_statistics():
    """Those of all samples, in the order of the sheet."""
    return [path for sample in SAMPLES for path in map_statistics(sample)]


def job_names():
    """Return the samples, units and parts after which logs are named, and rules of one job."""
    part = "{unit}.{part}-of-{parts}"
    parts = [parts_of(part, sample) for sample in SAMPLES if sample not in ONE_JOB]
    of_one_job = ["index", "plain_reference"]
    return [*SAMPLES, *UNITS, *(name for names in parts for name in names), *of_one_job]


def marks_duplicates(sample):
    choice = SAMPLES[sample].get("mark_duplicates")
    if choice is None:
        return config["duplicates"]["mark"] and not is_long_sample(sample)
    return choice == "yes"


def duplicate_options(wildcards):
    """Options of fmwave that mark duplicates; none if they are not to be marked.

    Of wildcards alone: only then Snakemake keeps them, and makes a sample again if they change.
    """
    if not marks_duplicates(wildcards.sample):
        return []
    settings = config["duplicates"]
    options = ["--markdup", "--mark-supplementary"]
    if settings["optical_distance"]:
        options += ["--optical-distance", str(settings["optical_distance"])]
    if settings["barcode_tag"]:
        options += ["--barcode-tag", settings["barcode_tag"]]
    return options


def count_duplicates(wildcards, output):
    """The option of fmwave that counts duplicates, beside those that mark them."""
    return ["--markdup-stats", output.markdup] if marks_duplicates(wildcards.sample) else []


def without_duplicates(wildcards, output):
    """The shell command that writes the counts of a sample whose duplicates are not marked."""
    if marks_duplicates(wildcards.sample):
        return ""
    return f'; echo \'{{"duplicates": "not marked"}}\' > {shlex.quote(str(output.markdup))}'


def check_read_groups(sample, files, library=""):
    """The shell command that refuses files with read groups of another sample, or with none.

    If a library is named, those of another are refused as well.
    """
    script = workflow.source_path("../scripts/check_read_groups.py")
    options = [f"--library={library}"] if library else []
    return shlex.join(["python3", str(script), *options, sample, *map(str, files)])


def reference_for_cram(wildcards):
    return FASTA if IS_CRAM else []


def check_own_read_groups(wildcards, input):
    """As a start of a command, that check of reads in BAM; FASTQ has none of its own."""
    unit = UNITS[unit_of(wildcards)]
    if "bam" not in unit:
        return ""
    reads = reads_argument(wildcards, input) if "parts" in wildcards.keys() else input.reads
    return f"{check_read_groups(unit['sample'], reads, unit.get('library', ''))}; "


def makes_bam_index(wildcards):
    """Whether a mapping job, or what follows it, writes an index of map.index_kind."""
    return not IS_CRAM or (SORTED_PARTS and "parts" in wildcards.keys())


def checks(wildcards, input):
    """As a start of a command, what is checked before a job maps."""
    own_groups = check_own_read_groups(wildcards, input)
    if not makes_bam_index(wildcards):
        return own_groups
    script = workflow.source_path("../scripts/check_index_kind.py")
    command = ["python3", str(script), str(input.index), config["map"]["index_kind"]]
    return f"{shlex.join(command)}; {own_groups}"


def reference_option(wildcards, input):
    return ["--reference", input.reference] if IS_CRAM else []


def final(path):
    """Write-protected if the config says so: then only by hand can it be replaced."""
    return protected(path) if config["output"]["protect"] else path


# What jobs need, for the resource functions of attempts.smk: upper bounds. Sizes of files that
# another workflow has yet to make count as 0.

BYTES_A_READ = {
    ".gz": 40,
    ".bgz": 40,
    ".bam": 40,
    ".cram": 15,
}  # few, so that reads are rather over-counted
BYTES_A_PLAIN_READ = 200
STREAMED_READS_PER_SECOND = 50_000  # of a rule that reads records through, or merges them
CPU_READS_PER_SECOND = 5000  # of one thread; docs/performance.md: 16 000 on the worst reference

# Long reads are counted by their bases, and those as short reads of so many bases.
BASES_A_SHORT_READ = 150
BYTES_A_BASE = {".gz": 0.4, ".bgz": 0.4, ".bam": 0.3, ".cram": 0.15}  # few, as above
BYTES_A_PLAIN_BASE = 1
CPU_BASES_PER_SECOND = 2e6  # of one thread; benchmarks/results/long_reads.md: 5 M and more


def size_of(path):
    if is_url(path) or not SHARED_DISK:
        return size_in_storage(path)
    path = Path(path)
    return path.stat().st_size if path.exists() else 0


def million_bases(unit):
    bases_by_kind = (
        size_of(path) / BYTES_A_BASE.get(Path(path).suffix, BYTES_A_PLAIN_BASE)
        for path in read_files(unit)
    )
    return sum(bases_by_kind) / 1e6


def million_reads(unit):
    if is_long(UNITS[unit]):
        return million_bases(unit) / BASES_A_SHORT_READ
    bytes_by_kind = (
        size_of(path) / BYTES_A_READ.get(Path(path).suffix, BYTES_A_PLAIN_READ)
        for path in read_files(unit)
    )
    return sum(bytes_by_kind) / 1e6


def sample_million_reads(sample):
    return sum(map(million_reads, UNITS_OF[sample]))


def million_reads_of_part(wildcards):
    """Those of the unit or part of a mapping job."""
    unit = unit_of(wildcards)
    return million_reads(unit) / int(wildcards.get("parts", n_parts(unit)))


def reference_mb(size_mb=None):
    """Million bases of the reference, at most."""
    path = config["reference"]
    packing = 5 if path.endswith(".gz") else 1  # gzip on DNA: 1:3.5 to 1:4.5
    return packing * (size_of(path) / 1e6 if size_mb is None else size_mb)


MAX_BAI_LENGTH = 2**29  # bases of a contig; fmwave writes .csi if one is longer


def known_index_kind():
    """The index that BAM will get, by the reference's .fai or its size; nothing if neither tells."""
    fasta = config["reference"]
    size = size_of(fasta)
    if size and SHARED_DISK and not is_url(fasta):
        fai = Path(f"{fasta}.fai")
        try:
            if fai.stat().st_mtime >= Path(fasta).stat().st_mtime:
                longest = max(int(line.split("\t")[1]) for line in fai.read_text().splitlines())
                return "csi" if longest > MAX_BAI_LENGTH else "bai"
        except (OSError, ValueError, IndexError):
            pass  # the index of fmwave will tell: check_index_kind.py
    is_plain = Path(fasta).suffix not in BYTES_A_READ
    return "bai" if is_plain and 0 < size <= MAX_BAI_LENGTH else ""


def check_index_kind():
    """Stop if BAM will get another index than the config says, where that is known."""
    given, kind = config["map"]["index_kind"], known_index_kind()
    writes_bam = not IS_CRAM or (SORTED_PARTS and len(ONE_JOB) < len(SAMPLES))
    if writes_bam and kind not in ("", given):
        stop_on(
            [
                f"config: map.index_kind: {given}: {config['reference']} has "
                f"{'a contig' if kind == 'csi' else 'no contig'} of more than {MAX_BAI_LENGTH} "
                f"bases, and BAM gets a .{kind}. Expected: {kind}"
            ]
        )


if workflow.is_main_process:
    check_index_kind()


def minutes(reads_in_millions, reads_per_second, start=15):
    """Twice the time the reads should take, and some minutes for start and compilation."""
    return math.ceil(start + 2 * reads_in_millions * 1e6 / reads_per_second / 60)


# Small jobs go to the scheduler several at a time: the parts of a sample that follow each other, and
# as many samples as `group-components` of the profile says. They run one after another, by the
# resource `small`, of which a group has 1. The time of a group is the sum of its jobs': the quarter
# of an hour that others may take to start would make hours of a dozen. Not where jobs share no disk:
# each is a pod of its own there. Nor with gpu.max_wait, for which each job has a deadline, nor with
# output.protect: a group that runs again would meet its own finished files.
SMALL_START_MINUTES = 2
GROUPS_SMALL = SHARED_DISK and not (config["gpu"]["max_wait"] or config["output"]["protect"])


def is_small(reads_in_millions, reads_per_second):
    """Whether reads should take less time than what makes a job of its own."""
    most = config["resources"]["small_minutes"]
    # Reads that another workflow has yet to make count as 0, and may be many.
    return GROUPS_SMALL and 0 < reads_in_millions * 1e6 / reads_per_second < 60 * most


def is_small_map(wildcards):
    """Whether a mapping job is small: of a unit in one piece."""
    in_one_piece = wildcards.get("parts", "1") == "1"
    return in_one_piece and is_small(million_reads_of_part(wildcards), map_rate(wildcards))


def is_small_sample(wildcards):
    """Whether what makes the file of a sample is a small job: mapping all of it, or merging."""
    if wildcards.sample in ONE_JOB:
        return is_small_map(wildcards)
    return is_small(sample_million_reads(wildcards.sample), STREAMED_READS_PER_SECOND)


def group_of(name, is_in):
    """Return the group of a rule's jobs; None of those that are not small."""

    def group(wildcards):
        # One sample's failure does not stop the others of its group. Snakemake (9.27) keeps from the
        # process of a group that it was asked to keep going, and has settings when jobs are made.
        if workflow.remote_exec:
            workflow.execution_settings.keep_going = True
        return name if is_in(wildcards) else None

    return group


# Jobs with a GPU, and those that wait for them, do not go into one group.
group_of_map = group_of("small_maps", is_small_map)
group_of_sample = group_of("small_samples", is_small_sample)


def small(which):
    """Return the resource `small` of a rule, of which a group runs one job at a time."""
    return lambda wildcards: int(which(wildcards))


def index_mem_mb(wildcards, input, threads):
    """11 bytes a base at most, 12 beyond 2^32 bases, and 1 GB for the process and Snakemake's."""
    megabases = reference_mb(input.size_mb)
    return 1000 + (11 if megabases < 4200 else 12) * megabases


def reference_runtime(wildcards, input, threads):
    """25 Mbp a minute: the index build reached more on each reference of docs/performance.md."""
    return math.ceil(15 + reference_mb(input.size_mb) / 25)


def alt_beside_reference():
    """The .alt file that fmwave index finds by itself: as an input, so that its changes count."""
    fasta = config["reference"]
    if is_url(fasta) or not SHARED_DISK:
        return ""
    names = (f"{fasta}.alt", f"{fasta.removesuffix('.gz')}.alt")
    return next(filter(os.path.exists, names), "")


def index_marks():
    """The files that mark contigs and regions of the reference, by option of fmwave index."""
    files = {option: config["index"][option] for option in INDEX_MARKS}
    files["alt"] = files["alt"] or alt_beside_reference()
    return {option: given(path) for option, path in files.items() if path}


def mark_options(wildcards, input):
    return " ".join(f"--{option} {shlex.quote(str(input[option]))}" for option in index_marks())


def index_sampling():
    """The suffix array sampling that the GPU has memory for; by default fmwave's own.

    By itself, so that Snakemake keeps it, and makes the index again for a GPU of less memory.
    """
    return f"--sa-sampling {GPU['sa_sampling']}" if GPU else ""


def index_bytes_a_base():
    """At most; docs/index-format.md. For a GPU the suffix array is sampled more densely."""
    return 2 + 8 / GPU["sa_sampling"] if GPU else 5


def map_threads():
    if GPU is None:
        return config["map"]["threads"]
    return max(1, GPU["host_cores"] // GPU["jobs_per_gpu"])


def cpu_map_mem_mb(wildcards, input, threads):
    """The index, a batch for each thread, and the rest."""
    return 2500 + index_bytes_a_base() * reference_mb() + 300 * threads


SORT_MB_A_THREAD = 768  # what fmwave takes to sort without --memory; the rest goes to a file
MERGE_MB_A_THREAD = 100  # of records that are merged
PROCESS_MB = 1500  # fmwave without records, and Snakemake's own process of a job


def sorting_map_mem_mb(wildcards, input, threads):
    """That of mapping, and the records."""
    return cpu_map_mem_mb(wildcards, input, threads) + SORT_MB_A_THREAD * threads


def finish_mem_mb(wildcards, input, threads):
    each = MERGE_MB_A_THREAD + (0 if SORTED_PARTS else SORT_MB_A_THREAD)
    return PROCESS_MB + each * threads


def map_mem_mb(wildcards, input, threads):
    """Return the value for the CPU, or on a GPU that of the table; of jobs of both kinds, both."""
    if GPU is None:
        return sorting_map_mem_mb(wildcards, input, threads)
    on_cpu = cpu_map_mem_mb(wildcards, input, threads) if config["gpu"]["max_wait"] else 0
    return max(on_cpu, 1000 * GPU["host_memory_gb"] / GPU["jobs_per_gpu"])


# What a job puts on the disk of its node, in MB: temporary files and a copy of the index; where
# nodes share no disk, all that it reads and makes.

# BAM of mapped reads for each byte of their files, at most, and the temporary file of a sort, which
# is smaller: benchmarks/results/sorted_output.md. Real reads had 1.1 to 2.1 for a byte of gzip, reads
# of 50 bases in repeats 2.9; for one of CRAM that was aligned 6.4, for one of plain text 0.6.
BAM_BYTES_A_BYTE = {".gz": 3, ".bgz": 3, ".bam": 3, ".cram": 7}
BAM_BYTES_A_PLAIN_BYTE = 1
RESUMED_SORT_BYTES_A_READ = 330  # not compressed: benchmarks/results/resume.md
KMER_TABLE_MB = 100  # of the index of a small reference: docs/index-format.md
POD_MB = 2000  # compiled code, logs, and the plugins that Snakemake installs first


def fasta_mb(wildcards):
    return size_of(config["reference"]) / 1e6


def plain_fasta_mb(wildcards):
    return reference_mb()


def fasta_for_cram_mb(wildcards):
    return reference_mb() if IS_CRAM else 0


def index_mb(wildcards):
    return KMER_TABLE_MB + index_bytes_a_base() * reference_mb()


def reads_mb(wildcards):
    return sum(map(size_of, read_files(unit_of(wildcards)))) / 1e6


def reads_of_library_mb(wildcards):
    files = (path for unit in paired_units(wildcards.unit) for path in read_files(unit))
    return sum(map(size_of, files)) / 1e6


def unit_bam_mb(unit):
    sizes = (
        size_of(path) * BAM_BYTES_A_BYTE.get(Path(path).suffix, BAM_BYTES_A_PLAIN_BYTE)
        for path in read_files(unit)
    )
    return sum(sizes) / 1e6


def bam_mb(wildcards):
    """BAM of a unit. What is split from its reads takes no more."""
    return unit_bam_mb(unit_of(wildcards))


def sample_bam_mb(wildcards):
    """BAM of a sample, or the temporary file of a sort that begins anew with its job."""
    return sum(map(unit_bam_mb, UNITS_OF[wildcards.sample]))


def resumed_sort_mb(wildcards):
    """What a sort while mapping goes on with; it lies beside the output."""
    return RESUMED_SORT_BYTES_A_READ * million_reads_of_part(wildcards) if SORTED_PARTS else 0


def disk(*files, temporary=None):
    """Return the resource disk_mb of a rule, as a keyword; none if its jobs need no disk of a node.

    Half as much again after each attempt: Kubernetes ends a pod that takes more, without a word why.

    Parameters
    ----------
    files
        Functions of wildcards that return what a job reads and makes. They count where nodes share
        no disk.
    temporary
        The same of what lies on the node everywhere.
    """
    needs = [temporary] if temporary else []
    if not SHARED_DISK:
        needs += [*files, lambda wildcards: POD_MB]
    if not needs:
        return {}

    def disk_mb(wildcards, attempt):
        return math.ceil((1 + attempt) / 2 * sum(need(wildcards) for need in needs))

    return {"disk_mb": disk_mb}


def map_disk():
    """The disk of jobs that map; in a scratch folder lies a copy of the index."""
    copy = index_mb if config["scratch"] else None
    files = (index_mb, reads_mb, bam_mb, resumed_sort_mb, fasta_for_cram_mb)
    return disk(*files, temporary=copy)


def finish_disk():
    """The disk of jobs that merge: parts and their sample. What a GPU has mapped is sorted, too."""
    sort = None if SORTED_PARTS else sample_bam_mb
    return disk(sample_bam_mb, sample_bam_mb, fasta_for_cram_mb, temporary=sort)


def split_runtime(wildcards, input, threads):
    return minutes(million_reads(wildcards.unit), 100_000)


def cpu_map_rate(wildcards, threads):
    """Reads per second on the CPU; long ones count as those of `million_reads`."""
    if is_long(UNITS[unit_of(wildcards)]):
        return CPU_BASES_PER_SECOND / BASES_A_SHORT_READ * threads
    return CPU_READS_PER_SECOND * threads


def map_rate(wildcards):
    """Reads per second of a mapping job, at least."""
    if GPU is None:
        return cpu_map_rate(wildcards, map_threads())
    return GPU["reads_per_second"] / GPU["jobs_per_gpu"]


def cpu_map_runtime(wildcards, input, threads):
    return minutes(million_reads_of_part(wildcards), cpu_map_rate(wildcards, threads))


def map_runtime(wildcards, input, threads):
    start = [SMALL_START_MINUTES] if is_small_map(wildcards) else []
    return minutes(million_reads_of_part(wildcards), map_rate(wildcards), *start)


def partition(on_gpu):
    """Return the resource slurm_partition, as a keyword; none if the config leaves it to the profile."""
    name = config["gpu"]["partition" if on_gpu else "cpu_partition"]
    return {"slurm_partition": name} if name else {}


def map_resources():
    """Resources of a mapping job: runtime, and where it runs.

    Of those that may wait for a GPU in vain, an attempt that ended in the queue is followed by one
    on the CPU: Slurm takes a job out of the queue that can no longer end before its deadline.
    """
    gpus = (
        1 if GPU is not None and GPU["jobs_per_gpu"] == 1 else 0
    )  # 0: the profile asks for a share
    most = config["gpu"]["max_wait"]
    if GPU is None or not most:
        return {"gpu": gpus, "runtime": runtime(map_runtime), **partition(GPU is not None)}
    on_gpu, on_cpu = runtime(map_runtime), runtime(cpu_map_runtime)

    def waited(wildcards, attempt, rulename):
        if workflow.is_main_process:
            return history(rulename, wildcards, attempt).no_start > 0
        # In a job, whose step asks for a GPU again: only if the job has one.
        return not {"SLURM_JOB_GPUS", "SLURM_STEP_GPUS"} & set(os.environ)

    def minutes_of_job(wildcards, input, threads, attempt, rulename):
        which = on_cpu if waited(wildcards, attempt, rulename) else on_gpu
        return which(wildcards, input, threads, attempt, rulename)

    def deadline(wildcards, input, threads, attempt, rulename):
        if waited(wildcards, attempt, rulename):
            return ""
        in_time = most + on_gpu(wildcards, input, threads, attempt, rulename)
        return f"--deadline=now+{in_time}minutes"

    def by_device(gpu, cpu):
        return lambda wildcards, attempt, rulename: (
            cpu if waited(wildcards, attempt, rulename) else gpu
        )

    return {
        "gpu": by_device(gpus, 0),
        "runtime": minutes_of_job,
        "slurm_extra": deadline,
        "slurm_partition": by_device(config["gpu"]["partition"], config["gpu"]["cpu_partition"]),
    }


def gpu_share():
    """Return what a mapping job asks of GPUs, for its log."""
    if GPU is None:
        return "gpus=0"
    share = "1" if GPU["jobs_per_gpu"] == 1 else f"1/{GPU['jobs_per_gpu']}"
    models = config["gpu"]["model"]
    return f"gpus={share}x{models if isinstance(models, str) else ','.join(models)}"


def map_device():
    """Return --device. Who names a GPU model wants no run on the CPU, which takes ten times longer."""
    if GPU is None:
        return "cpu"
    if config["gpu"]["device"] != "auto":
        return config["gpu"]["device"]
    if config["gpu"]["max_wait"]:
        # Slurm names the GPUs of a job in one of these, of a job step in the other.
        return '"$([ -n "${SLURM_JOB_GPUS-}${SLURM_STEP_GPUS-}" ] && echo cuda:any || echo cpu)"'
    return "cuda:any"


def compile_mem_mb(wildcards, input, threads):
    """Each of the processes that compile, three at most, and what Snakemake takes."""
    return 500 + 1000 * min(threads, 3)


def compile_resources():
    """Resources of the job that compiles: a GPU if mapping jobs will have one.

    Not if they may go to the CPU: they would all wait for it.
    """
    on_gpu = GPU is not None and not config["gpu"]["max_wait"]
    return {"gpu": int(on_gpu and GPU["jobs_per_gpu"] == 1), **partition(on_gpu)}


def compile_device():
    """Return --device of fmwave compile: a job that sees no GPU compiles for the CPU."""
    of_cpu = GPU is None or config["gpu"]["max_wait"] or config["gpu"]["device"] == "cpu"
    return "cpu" if of_cpu else "auto"


def gpu_options():
    """Return the options of a run by the row of its GPU; they do not change its result."""
    if GPU is None:
        return ""
    return f"--batch-bases {GPU['batch_bases']} --jobs-per-device {GPU['jobs_per_gpu']}"


def sample_runtime(wildcards, input, threads):
    """Minutes of a rule that reads a sample's records through."""
    start = [SMALL_START_MINUTES] if is_small_sample(wildcards) else []
    return minutes(sample_million_reads(wildcards.sample), STREAMED_READS_PER_SECOND, *start)
