# Reads and checks the settings: config, the sheets of samples and units, the table of GPUs.
import csv
import os
import re
import shlex
import shutil
import tomllib
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator
from snakemake.exceptions import WorkflowError

# In the package, so that `fmwave info --profile` has it; read here as a file, since Snakemake's own
# environment need not have fmwave.
GPU_TABLE = "mapper/cuda/gpus.toml"

INDEX_MARKS = (
    "alt",
    "group",
    "mask",
)  # files in the config's `index`, each an option of fmwave index

PATHVARS = ("results", "logs", "benchmarks")  # of the rules' paths

SHORT_READS = "sr"
PRESET_OF_PLATFORM = {"ONT": "ont", "PACBIO": "hifi"}


def load_yaml(name):
    path = workflow.source_path(f"../{name}.yaml")
    return yaml.safe_load(Path(path).read_text())


def load_schema(name):
    return load_yaml(f"schemas/{name}.schema")


def complaints(instance, schema, place):
    """One line for each thing in `instance` that the schema does not allow."""
    lines = []
    for error in Draft202012Validator(schema).iter_errors(instance):
        key = ".".join(map(str, error.absolute_path))
        where = f"{place}: {key}" if key else place
        if error.validator == "additionalProperties":
            known = ", ".join(error.schema["properties"])
            unknown = sorted(set(error.instance) - set(error.schema["properties"]))
            what = f"unknown key {', '.join(unknown)} (known: {known})"
        elif error.validator == "required":
            missing = [name for name in error.schema["required"] if name not in error.instance]
            what = f"missing: {', '.join(missing)}"
        else:
            hint = error.schema.get("description", error.message)
            what = f"{error.instance!r} is not allowed. Expected: {hint}"
        lines.append(f"{where}: {what}")
    return list(dict.fromkeys(lines))


def stop_on(lines):
    if lines:
        raise WorkflowError("The settings cannot be used:\n  " + "\n  ".join(lines))


def with_defaults(schema, values):
    """`values` with the schema's defaults where a key is absent, at every level."""
    filled = dict(values)
    for key, part in schema.get("properties", {}).items():
        if part.get("type") == "object":
            filled[key] = with_defaults(part, filled.get(key, {}))
        elif "default" in part:
            filled.setdefault(key, part["default"])
    return filled


def with_numbers(schema, cells):
    """`cells` with those turned into numbers that the schema wants to be; others as they are."""
    numbers = {
        key: int(cell)
        for key, cell in cells.items()
        if schema["properties"].get(key, {}).get("type") == "integer" and cell.isdecimal()
    }
    return {**cells, **numbers}


def without_tabs(lines, path):
    """Return one line for each line of a sheet whose cells are separated by something else."""
    if re.fullmatch(r"\w+", lines[0][1].strip() if lines else ""):
        return []  # of one column there is nothing to separate
    names = {" ": "spaces", ",": "commas", ";": "semicolons"}
    found = {}
    for number, line in lines:
        separator = re.search(r"\S([ ,;])\s*\S", line)
        if separator and "\t" not in line:
            found[number] = names[separator[1]]
    return [
        f"{path}, line {n}: {what} between the cells; a tab is expected"
        for n, what in found.items()
    ]


def read_sheet(kind, path):
    """Return the rows of a tab-separated sheet by their line, without empty cells, and errors."""
    schema = load_schema(kind)
    try:
        with open(path, newline="", encoding="utf-8-sig") as sheet:
            lines = [
                (number, line)
                for number, line in enumerate(sheet, start=1)
                if line.strip() and not line.startswith("#")
            ]
    except (OSError, UnicodeDecodeError) as error:
        raise WorkflowError(f"The sheet of {kind}, '{path}' (config key {kind}): {error}")
    stop_on(without_tabs(lines, path))
    reader = csv.DictReader(
        (line for _, line in lines), delimiter="\t", restkey="cells without a column"
    )
    columns = reader.fieldnames or []
    if twice := sorted({name for name in columns if name and columns.count(name) > 1}):
        # Of cells under the same name, only the last would count.
        stop_on([f"{path}, line {lines[0][0]}: column {', '.join(twice)} stands there twice"])
    known = schema["properties"]
    if unknown := [name for name in columns if name and name not in known]:
        stop_on(
            [
                f"{path}, line {lines[0][0]}: unknown column {', '.join(unknown)} "
                f"(known: {', '.join(known)})"
            ]
        )
    rows = {}
    for row in reader:
        cells = {column: cell for column, cell in row.items() if cell}
        rows[lines[reader.line_num - 1][0]] = with_numbers(schema, cells)
    problems = []
    if not rows:
        problems.append(
            f"{path}: no {kind[:-1]}. The first line names the columns, one line each follows"
        )
    # Only the main process checks: with 10 000 units each job would do it again.
    if workflow.is_main_process:
        for number, row in rows.items():
            problems += complaints(row, schema, f"{path}, line {number}")
    return {number: with_defaults(schema, row) for number, row in rows.items()}, problems


def is_imported():
    """Whether another workflow imports or includes this one; its rules may make the reads."""
    here = Path(workflow.current_basedir.get_path_or_uri(secret_free=True))  # rules/
    return here.parent.resolve() != Path(workflow.basedir).resolve()


def problem_of_name(path):
    """Return what keeps Snakemake from taking a path as it is; nothing if it does."""
    if re.search("{.*}", path):
        return "Snakemake takes what is in braces for a wildcard; rename the file, or link to it"
    return ""


def problem_of_file(path):
    """Return what keeps a job from reading a local file; nothing if it is there."""
    if Path(path).is_file():
        return problem_of_name(path)
    return "is a directory" if Path(path).is_dir() else "there is no such file"


def unreadable_reads(units, lines, path):
    """Return one line for each read file that is not there, or that no plugin reads."""
    # Others' rules may make files, and where Snakemake was given a storage they are looked for there.
    in_sight = SHARED_DISK and not is_imported()
    problems = []
    for name, row in units.items():
        for column in ("fq1", "fq2", "bam"):
            reads = row.get(column)
            if not reads:
                continue
            what = problem_of_url(reads) if is_url(reads) else in_sight and problem_of_file(reads)
            if what:
                problems.append(f"{path}, line {lines[name]}: {column}: '{reads}': {what}")
    return problems


def unreadable_settings():
    """Return one line for each path in the config that no plugin reads, or Snakemake changes."""
    files = {"reference": config["reference"]}
    files |= {f"index.{key}": config["index"][key] for key in INDEX_MARKS}
    problems = {
        key: problem_of_url(path) if is_url(path) else problem_of_name(path)
        for key, path in files.items()
    }
    return [f"config: {key}: '{files[key]}': {what}" for key, what in problems.items() if what]


class Rows(dict):
    """Rows of a sheet by name; to ask for one that is not there is a mistake in a target's name.

    Parameters
    ----------
    kind
        What a row is, for the message.
    path
        Of the sheet.
    """

    def __init__(self, kind, path, rows=()):
        super().__init__(rows)
        self._kind, self._path = kind, path

    def __missing__(self, name):
        raise WorkflowError(f"{self._kind} '{name}' is not in {self._path}")


def read_samples(path):
    """Return the rows of the sheet of samples by name, and their errors."""
    rows, problems = read_sheet("samples", path)
    samples = Rows("sample", path)
    for number, row in rows.items():
        name = row.get("sample")
        if name in samples:
            problems.append(f"{path}, line {number}: '{name}' stands there twice")
        samples[name] = row
    return samples, problems


def preset_of(row):
    """The value of fmwave map --preset for a unit: as given, or by its platform."""
    return row.get("preset", PRESET_OF_PLATFORM.get(row.get("platform"), SHORT_READS))


def is_long(row):
    """Whether the reads of a unit are mapped as long ones."""
    return preset_of(row) != SHORT_READS


def true_path(reads):
    """Return a name that a file of reads has but once, however the sheet spells or links it."""
    if is_url(reads) or not workflow.is_main_process:
        return reads
    return os.path.realpath(reads) if SHARED_DISK else os.path.normpath(reads)


def read_units(path):
    """Return the rows of the sheet of units by "sample-unit", and their errors."""
    rows, problems = read_sheet("units", path)
    units, lines = Rows("unit", path), {}
    for number, row in rows.items():
        name = f"{row.get('sample')}-{row.get('unit')}"
        if name in units:
            problems.append(
                f"{path}, line {number}: '{name}' stands there twice. sample and unit "
                "together (sample-unit) name the output and must differ between rows"
            )
        if "fq1" not in row and "bam" not in row:
            problems.append(f"{path}, line {number}: missing: fq1, or bam; one of them is expected")
        if "fq1" in row and "bam" in row:
            problems.append(f"{path}, line {number}: fq1 and bam are both given; give one of them")
        if "bam" in row and "fq2" in row:
            problems.append(f"{path}, line {number}: fq2 beside bam; a bam holds both mates")
        if "fq1" in row and "fq2" in row and true_path(row["fq1"]) == true_path(row["fq2"]):
            problems.append(f"{path}, line {number}: fq1 and fq2 are the same file")
        units[name], lines[name] = row, number
    if workflow.is_main_process:
        problems += unreadable_reads(units, lines, path)
    kinds = {}
    for name, row in units.items():
        if is_long(row):
            if "fq2" in row:
                problems.append(f"{path}, line {lines[name]}: fq2: long reads have no mates")
        kinds.setdefault(row.get("sample"), set()).add(is_long(row))
    problems += [
        f"{path}: sample '{sample}' has units of long and of short reads; make two samples of it"
        for sample, found in kinds.items()
        if len(found) > 1
    ]
    # The same reads twice would count twice as evidence for a variant.
    users = {}
    for name, row in units.items():
        for column in ("fq1", "fq2", "bam"):
            if row.get(column):
                users.setdefault(true_path(row[column]), {}).setdefault(name, row[column])
    for names in users.values():
        if len(names) > 1:
            spellings = " and ".join(f"'{reads}'" for reads in dict.fromkeys(names.values()))
            same = ", one file," if len(set(names.values())) > 1 else ""
            problems.append(
                f"{path}: {spellings}{same} stands in several units: {', '.join(names)}"
            )
    return units, problems


def unmatched(samples, units):
    """Return the contradictions between the two sheets."""
    used = {row.get("sample") for row in units.values()}
    return [
        f"{config['units']}: sample '{name}' is not in {config['samples']}"
        for name in sorted(used - set(samples), key=str)
    ] + [
        f"{config['samples']}: sample '{name}' has no unit in {config['units']}"
        for name in samples
        if name not in used
    ]


def read_gpu(settings):
    """The row of the table of GPUs that the config names; None for the CPU.

    Of several models, any of which a job may get, it is a row that suits all.
    """
    names = settings["model"] if isinstance(settings["model"], list) else [settings["model"]]
    if names == ["none"]:
        return None
    own = settings["table"]
    path = own or workflow.source_path(f"../../{GPU_TABLE}")
    try:
        table = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise WorkflowError(f"The table of GPUs, '{path}' (config key gpu.table): {error}")
    stop_on(complaints(table, load_schema("gpus"), own or GPU_TABLE))
    stop_on(
        [
            f"config: gpu.model: '{name}' is not in the table of GPUs ({', '.join(table)})"
            for name in names
            if name not in table
        ]
    )
    rows = [table[name] for name in names]
    if len({row["jobs_per_gpu"] for row in rows}) > 1:
        stop_on([f"config: gpu.model: {', '.join(names)}: their jobs_per_gpu differ in the table"])
    suits = {
        "memory_gb": min,
        "sa_sampling": max,
        "batch_bases": min,
        "jobs_per_gpu": min,
        "host_cores": max,
        "host_memory_gb": max,
        "reads_per_second": min,
    }
    gpu = {column: best(row[column] for row in rows) for column, best in suits.items()}
    if settings["cores"] and settings["cores"] < gpu["host_cores"]:
        # With half the cores a run took less than twice as long: benchmarks/results/device_io.md.
        gpu["reads_per_second"] = gpu["reads_per_second"] * settings["cores"] // gpu["host_cores"]
        gpu["host_cores"] = settings["cores"]
    return gpu


def check_partitions(settings):
    """Stop unless the config alone says where mapping jobs run.

    max_wait has two places, and whole GPUs: a profile asks for a share at each attempt.
    """
    places = ("partition", "cpu_partition")
    missing = [key for key in places if not settings[key]]
    if settings["max_wait"] and missing:
        stop_on([f"config: gpu: missing: {', '.join(missing)}; max_wait needs both partitions"])
    if settings["max_wait"] and GPU is not None and GPU["jobs_per_gpu"] > 1:
        stop_on(
            [
                "config: gpu.max_wait: jobs do not leave the queue for the CPU where they share GPUs. "
                "Expected: 0, or a row of the table of GPUs with jobs_per_gpu = 1"
            ]
        )
    if missing == [*places]:
        return
    changing = {"slurm_partition"}
    if settings["max_wait"]:
        changing |= {"slurm_extra", "gpu", "gres"}
    for name in ("fmwave_map", "fmwave_compile"):
        given = workflow.resource_settings.overwrite_resources.get(name, {})
        if twice := sorted(changing & set(given)):
            stop_on(
                [
                    f"config: gpu: {', '.join(twice)} of {name}, in set-resources of the profile or "
                    "the command line, would take the place of what partition, cpu_partition and "
                    "max_wait say. Expected: gone from there"
                ]
            )


def names_option(words, letter, name, shortest):
    """Whether options of fmwave map name one, as argparse reads them: -aI300, --insert-size=300."""
    return any(
        (letter and re.match(f"-[aCYp]*{letter}", word))
        or (word.startswith(shortest) and name.startswith(word.split("=")[0]))
        for word in words
    )


# Options of fmwave map that map.extra must not have: letter, name, the shortest form of the name,
# and what does the same. Put behind the rules' own, they would win over the sheets' samples and the
# files that rules expect.
NOT_EXTRA = (
    ("p", "--interleaved", "--int", "mates in two files, fq1 and fq2, or in a bam"),
    ("", "--preset", "--p", "the column preset of units"),
    ("R", "--read-group", "--rea", "the columns sample, unit, platform and library of units"),
    ("", "--lane", "--l", "a line of the sheet of units for each lane"),
    ("", "--batch", "--batch", "lines of the sheets of samples and units"),
    ("o", "--output", "--ou", "pathvars.results"),
    ("O", "--output-format", "--output-", "output.format"),
    ("", "--json-stats", "--js", "nothing; the counts are in results/stats"),
    ("", "--sort", "--sor", "nothing; samples are sorted and indexed"),
    ("", "--markdup", "--markd", "duplicates.mark, or mark_duplicates in the sheet of samples"),
    ("", "--markdup-stats", "--markdup-", "nothing; the counts are in results/stats"),
    ("", "--optical-distance", "--op", "duplicates.optical_distance"),
    ("", "--barcode-tag", "--bar", "duplicates.barcode_tag"),
    ("", "--mark-supplementary", "--mark-", "nothing; duplicates.mark marks these records, too"),
    ("", "--remove-duplicates", "--rem", "nothing; samtools view -F 0x400 leaves duplicates out"),
    ("", "--reference", "--ref", "the config key reference"),
    ("", "--input-reference", "--inp", "REF_PATH in the environment, where htslib looks"),
    ("", "--resume", "--resume", "nothing; jobs go on where an earlier attempt ended"),
    ("", "--resume-or-restart", "--resume-o", "nothing; the rules give it"),
    ("", "--tmp-dir", "--tm", "scratch"),
    ("t", "--threads", "--th", "map.threads, or host_cores in the table of GPUs"),
    ("", "--device", "--dev", "gpu.model and gpu.device"),
    ("", "--jobs-per-device", "--jo", "jobs_per_gpu in the table of GPUs"),
)


def read_extra(text):
    """Return the words of map.extra; stop on options that the rules cannot take into account."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        stop_on([f"config: map.extra: {text!r}: {error}"])
    stop_on(
        [
            f"config: map.extra: {name}{f' (-{letter})' if letter else ''} is not allowed. "
            f"Expected: {instead}"
            for letter, name, shortest, instead in NOT_EXTRA
            if names_option(words, letter, name, shortest)
        ]
    )
    return words


def unused_pathvars(pathvars):
    """Return one line for each pathvar that no rule uses, nor another pathvar in its path."""
    paths = " ".join(pathvars.values())
    return [
        f"config: pathvars: unknown key {name} (known: {', '.join(PATHVARS)})"
        for name in pathvars
        if name not in PATHVARS and f"<{name}>" not in paths
    ]


def jobs_use_programs_here():
    """Whether jobs use the programs that Snakemake's main process sees."""
    own_software = workflow.deployment_settings.deployment_method  # conda, apptainer, modules
    return SHARED_DISK and not own_software


def check_extra(words, presets):
    """Stop on words of map.extra that fmwave map refuses with any of the units' presets."""
    if not (words and workflow.is_main_process and jobs_use_programs_here()):
        return
    try:
        from mapper.cli.map import problem_of_options
    except ImportError:  # Snakemake's own environment need not have fmwave
        return
    if any(set("$`*") & set(word) for word in words):
        return  # the shell of the job makes others of them
    problems = [problem_of_options([*words, "--preset", preset]) for preset in sorted(presets)]
    stop_on([f"config: map.extra: {problem}" for problem in dict.fromkeys(problems) if problem])


def check_multiqc():
    """Stop if MultiQC is wanted and missing, where jobs see the programs that are here."""
    if workflow.is_main_process and jobs_use_programs_here() and shutil.which("multiqc") is None:
        stop_on(
            [
                "config: report.multiqc: MultiQC is not installed: pip install multiqc, or "
                "pip install -e '.[multiqc]' in the folder of this repository; or set it to false"
            ]
        )


CONFIG_SCHEMA = load_schema("config")
stop_on(complaints(config, CONFIG_SCHEMA, "config") or unused_pathvars(config.get("pathvars", {})))
config = with_defaults(CONFIG_SCHEMA, config)
if workflow.is_main_process:
    stop_on(unreadable_settings())
if config["report"]["multiqc"]:
    check_multiqc()
EXTRA_WORDS = read_extra(config["map"]["extra"])
GIVES_INSERT_SIZE = names_option(EXTRA_WORDS, "I", "--insert-size-from", "--insert-size")

SAMPLES, problems_of_samples = read_samples(config["samples"])
UNITS, problems_of_units = read_units(config["units"])
stop_on(problems_of_samples + problems_of_units or unmatched(SAMPLES, UNITS))
check_extra(EXTRA_WORDS, {preset_of(row) for row in UNITS.values()})

GPU = read_gpu(config["gpu"])
check_partitions(config["gpu"])
