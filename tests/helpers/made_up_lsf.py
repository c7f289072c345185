"""A made-up LSF: the commands that snakemake-executor-plugin-lsf calls, which run jobs here.

It accepts what IBM documents of ``bsub``'s options and refuses all else; what it leaves out are
queues, limits and devices. Each job is recorded as it was submitted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

QUEUES = ("normal", "gpu")

_BSUB = """#!{python}
import argparse, json, re, subprocess, sys
from pathlib import Path
jobs = Path("{place}", "jobs")
parser = argparse.ArgumentParser(prog="bsub", allow_abbrev=False)
parser.add_argument("-J", required=True)
parser.add_argument("-o", required=True)
parser.add_argument("-e", required=True)
parser.add_argument("-env", required=True)
parser.add_argument("-P")
parser.add_argument("-q", choices={queues})
parser.add_argument("-W", type=int)
parser.add_argument("-n", type=int)
parser.add_argument("-R", action="append", default=[])
parser.add_argument("-gpu")
parser.add_argument("-wa", choices=["INT", "TERM", "URG", "USR1", "USR2"])
parser.add_argument("-wt", type=int)
parser.add_argument("-cwd", required=True)
parser.add_argument("command")
job = vars(parser.parse_args())
for wanted in job["R"]:
    if not re.fullmatch(r"rusage\\[mem=[0-9.]+\\]|span\\[hosts=1\\]", wanted):
        parser.error("bad resource requirement: " + wanted)
number = 1
while True:  # numbers are given once
    try:
        (jobs / str(number)).mkdir()
        break
    except FileExistsError:
        number += 1
(jobs / str(number) / "job.json").write_text(json.dumps(job))
subprocess.Popen(
    ["bash", "-c",
     'LSB_JOBID="$1" bash -c "$2" >> "$3" 2>&1; echo $? > "$4.part"; mv "$4.part" "$4"', "job",
     str(number), job["command"], job["o"], str(jobs / str(number) / "status")],
    cwd=job["cwd"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    start_new_session=True,
)
print(f"Job <{{number}}> is submitted to queue <{{job['q']}}>.")
"""

_BJOBS = """#!{python}
# bjobs -noheader -o 'jobid stat' -aJ PATTERN; bjobs -noheader -o exit_reason JOB
import sys
from pathlib import Path
jobs = Path("{place}", "jobs")
if "exit_reason" in sys.argv:
    reason = jobs / sys.argv[-1] / "exit_reason"
    print(reason.read_text() if reason.exists() else "-")
    sys.exit()
assert sys.argv[1:4] == ["-noheader", "-o", "jobid stat"], sys.argv
for job in jobs.iterdir():
    status = job / "status"
    state = "RUN" if not status.exists() else "DONE" if status.read_text() == "0\\n" else "EXIT"
    print(job.name, state)
"""

_ADMIN = """#!/bin/bash
echo "MBD configuration at now"
echo "    LSB_SHAREDIR = {place}"
echo "    LSF_CONFDIR = {place}"
echo "    LSF_UNIT_FOR_LIMITS = MB"
"""

_CLUSTERS = """#!/bin/bash
echo "CLUSTER_NAME STATUS MASTER_HOST ADMIN HOSTS SERVERS"
echo "made_up ok here root 1 1"
"""


def make_lsf(place: Path) -> Path:
    """Write the commands, with an empty queue; return the folder to put first on the path."""
    (place / "jobs").mkdir(parents=True)
    (place / "bin").mkdir()
    (place / "made_up" / "logdir").mkdir(parents=True)
    (place / "made_up" / "logdir" / "lsb.events").touch()
    (place / "lsbatch" / "made_up" / "configdir").mkdir(parents=True)
    (place / "lsbatch" / "made_up" / "configdir" / "lsb.params").write_text(
        "DEFAULT_QUEUE = normal\n"
    )
    texts = {"bsub": _BSUB, "bjobs": _BJOBS, "badmin": _ADMIN, "lsclusters": _CLUSTERS}
    for name, text in texts.items():
        program = place / "bin" / name
        program.write_text(text.format(python=sys.executable, place=place, queues=QUEUES))
        program.chmod(0o755)
    return place / "bin"


def submitted(place: Path) -> list[dict[str, Any]]:
    """Return the options of all jobs in the order of their submission."""
    folders = sorted((place / "jobs").iterdir(), key=lambda folder: int(folder.name))
    return [json.loads((folder / "job.json").read_text()) for folder in folders]
