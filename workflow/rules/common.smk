# Reads and checks the settings; what several rules need.
import csv
from pathlib import Path

import yaml
from jsonschema import Draft202012Validator
from snakemake.exceptions import WorkflowError


def load_schema(name):
    path = workflow.source_path(f"../schemas/{name}.schema.yaml")
    return yaml.safe_load(Path(path).read_text())


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


def read_units(path):
    """The sheet's rows by "sample-unit", empty cells left out."""
    schema = load_schema("units")
    try:
        with open(path, newline="", encoding="utf-8-sig") as sheet:
            reader = csv.DictReader(
                (line for line in sheet if not line.startswith("#")),
                delimiter="\t",
                restkey="cells without a column",
            )
            rows = list(reader)
    except (OSError, UnicodeDecodeError) as error:
        raise WorkflowError(f"The sheet of units, '{path}' (config key units): {error}")

    # Only the main process checks: with 10 000 units each job would do it again.
    problems = []
    units = {}
    for number, row in enumerate(rows, start=1):
        cells = {column: cell for column, cell in row.items() if cell}
        name = f"{row.get('sample')}-{row.get('unit')}"
        if workflow.is_main_process:
            problems += complaints(cells, schema, f"{path}, unit {number}")
            if name in units:
                problems.append(
                    f"{path}, unit {number}: '{name}' stands there twice. sample and unit "
                    "together (sample-unit) name the output and must differ between rows"
                )
            if cells.get("fq1") and cells.get("fq1") == cells.get("fq2"):
                problems.append(f"{path}, unit {number}: fq1 and fq2 are the same file")
        units[name] = with_defaults(schema, cells)
    if not rows:
        problems.append(
            f"{path}: no unit. The first line names the columns, one line per unit follows"
        )
    stop_on(problems)
    return units


CONFIG_SCHEMA = load_schema("config")
stop_on(complaints(config, CONFIG_SCHEMA, "config"))
config = with_defaults(CONFIG_SCHEMA, config)

UNITS = read_units(config["units"])


# Paths that one step makes and another reads. Through rules.x.output, as usual, a workflow that
# imports this one could not override a step by "use ... with" (Snakemake 9.27).
INDEX = "<results>/index/reference.fmw"
BAM = "<results>/mapped/{unit}.bam"
BAI = f"<results>/mapped/{{unit}}.bam.{config['map']['index_kind']}"
FLAGSTAT = "<results>/stats/{unit}.flagstat.txt"
STATS = "<results>/stats/{unit}.stats.txt"
SUMMARY = "<results>/summary.tsv"


wildcard_constraints:
    unit="[A-Za-z0-9_.-]+",


def reads_of(wildcards):
    unit = UNITS[wildcards.unit]
    return [unit[column] for column in ("fq1", "fq2") if column in unit]


def read_group(wildcards):
    """The @RG line of a unit, with \\t written out as bwa's -R takes it."""
    unit = UNITS[wildcards.unit]
    return "\\t".join(
        [
            "@RG",
            f"ID:{wildcards.unit}",
            f"SM:{unit['sample']}",
            f"LB:{unit.get('library', unit['sample'])}",
            f"PL:{unit['platform']}",
        ]
    )


def reference_mb():
    """Million bases of the reference, at most; 0 while another workflow has yet to make it."""
    path = Path(config["reference"])
    packing = 5 if path.suffix == ".gz" else 1  # gzip on DNA: 1:3.5 to 1:4.5
    return packing * path.stat().st_size / 1e6 if path.exists() else 0


def index_mem_mb(wildcards, attempt):
    """Under 10 bytes a base, and 1 GB for the process and Snakemake's; more with each attempt."""
    return int(attempt * (1000 + 10 * reference_mb()))


def map_mem_mb(wildcards, threads, attempt):
    """Index of under 5 bytes a base, a batch for each thread; more with each attempt."""
    return int(attempt * (1500 + 5 * reference_mb() + 300 * threads))
