# Reads and checks the settings: config, the sheets of samples and units, the table of GPUs.
import csv
import re
import shlex
import tomllib
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator
from snakemake.exceptions import WorkflowError

# In the package, so that `fmwave info --profile` has it; read here as a file, since Snakemake's own
# environment need not have fmwave.
GPU_TABLE = "mapper/cuda/gpus.toml"


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


def read_sheet(kind, path):
    """Return the rows of a tab-separated sheet without empty cells, and their errors."""
    schema = load_schema(kind)
    try:
        with open(path, newline="", encoding="utf-8-sig") as sheet:
            reader = csv.DictReader(
                (line for line in sheet if not line.startswith("#")),
                delimiter="\t",
                restkey="cells without a column",
            )
            rows = [{column: cell for column, cell in row.items() if cell} for row in reader]
    except (OSError, UnicodeDecodeError) as error:
        raise WorkflowError(f"The sheet of {kind}, '{path}' (config key {kind}): {error}")
    rows = [with_numbers(schema, row) for row in rows]
    problems = []
    if not rows:
        problems.append(
            f"{path}: no {kind[:-1]}. The first line names the columns, one line each follows"
        )
    # Only the main process checks: with 10 000 units each job would do it again.
    if workflow.is_main_process:
        for number, row in enumerate(rows, start=1):
            problems += complaints(row, schema, f"{path}, {kind[:-1]} {number}")
    return [with_defaults(schema, row) for row in rows], problems


def read_samples(path):
    """Return the rows of the sheet of samples by name, and their errors."""
    rows, problems = read_sheet("samples", path)
    samples = {}
    for number, row in enumerate(rows, start=1):
        name = row.get("sample")
        if name in samples:
            problems.append(f"{path}, sample {number}: '{name}' stands there twice")
        samples[name] = row
    return samples, problems


def read_units(path):
    """Return the rows of the sheet of units by "sample-unit", and their errors."""
    rows, problems = read_sheet("units", path)
    units = {}
    for number, row in enumerate(rows, start=1):
        name = f"{row.get('sample')}-{row.get('unit')}"
        if name in units:
            problems.append(
                f"{path}, unit {number}: '{name}' stands there twice. sample and unit "
                "together (sample-unit) name the output and must differ between rows"
            )
        if ("fq1" in row) == ("bam" in row):
            problems.append(f"{path}, unit {number}: missing: fq1, or bam; one of them is expected")
        if "bam" in row and "fq2" in row:
            problems.append(f"{path}, unit {number}: fq2 beside bam; a bam holds both mates")
        if row.get("fq1") and row.get("fq1") == row.get("fq2"):
            problems.append(f"{path}, unit {number}: fq1 and fq2 are the same file")
        units[name] = row
    # The same reads twice would count twice as evidence for a variant.
    users = {}
    for name, row in units.items():
        for column in ("fq1", "fq2", "bam"):
            if row.get(column):
                users.setdefault(row[column], []).append(name)
    for reads, names in users.items():
        if len(set(names)) > 1:
            problems.append(f"{path}: '{reads}' stands in several units: {', '.join(names)}")
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


def read_gpu(name):
    """The row of the table of GPUs that the config names; None for the CPU."""
    if name == "none":
        return None
    own = config["gpu"]["table"]
    path = own or workflow.source_path(f"../../{GPU_TABLE}")
    try:
        table = tomllib.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise WorkflowError(f"The table of GPUs, '{path}' (config key gpu.table): {error}")
    stop_on(complaints(table, load_schema("gpus"), own or GPU_TABLE))
    if name not in table:
        stop_on([f"config: gpu.model: '{name}' is not in the table of GPUs ({', '.join(table)})"])
    return table[name]


def names_option(words, letter, name, shortest):
    """Whether options of fmwave map name one, as argparse reads them: -aI300, --insert-size=300."""
    return any(
        re.match(f"-[aCYp]*{letter}", word)
        or (word.startswith(shortest) and name.startswith(word.split("=")[0]))
        for word in words
    )


def read_extra(text):
    """Return the words of map.extra; stop on options that the rules cannot take into account."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        stop_on([f"config: map.extra: {text!r}: {error}"])
    if names_option(words, "p", "--interleaved", "--int"):
        stop_on(
            [
                "config: map.extra: --interleaved (-p) is not allowed. Expected: mates in two "
                "files, fq1 and fq2, or in a bam"
            ]
        )
    return words


CONFIG_SCHEMA = load_schema("config")
stop_on(complaints(config, CONFIG_SCHEMA, "config"))
config = with_defaults(CONFIG_SCHEMA, config)
GIVES_INSERT_SIZE = names_option(
    read_extra(config["map"]["extra"]), "I", "--insert-size-from", "--insert-size"
)

SAMPLES, problems_of_samples = read_samples(config["samples"])
UNITS, problems_of_units = read_units(config["units"])
stop_on(problems_of_samples + problems_of_units or unmatched(SAMPLES, UNITS))

GPU = read_gpu(config["gpu"]["model"])
