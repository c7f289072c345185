# Memory and time of a job that is tried again: more only where the job before lacked them.
#
# Snakemake tells a resource function the number of an attempt, not why the attempt before it
# failed. Each rule's log therefore begins with the scheduler's number of the job (`JOB` for shell
# rules, scripts/rule_log.py for the others), and the main process asks the scheduler how that job
# ended, just before it is submitted again. Without a number or an answer, the same is asked for.
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

JOB_NUMBERS = ("SLURM_JOB_ID", "JOB_ID", "LSB_JOBID")  # of Slurm, Grid Engine and LSF
NUMBER = "^(" + "|".join(JOB_NUMBERS) + ")=[0-9]+$"

# The start of a shell rule: all it says goes to its log, which begins with host, job and what was
# asked for, as scripts/efficiency.py reads it. That is the first request: Snakemake does not tell
# the process of a job that its resources have grown.
JOB = (
    f"exec > {{log:q}} 2>&1; echo \"host $(hostname)\"; env | grep -E '{NUMBER}' || true; "
    "echo asked threads={threads} mem_mb={resources.mem_mb} runtime={resources.runtime}; "
)

# How a scheduler, or a program that got no memory, says so; in the log or in the answer to QUERIES.
NO_MEMORY = re.compile(
    r"\bMemoryError\b|memory is exhausted|Cannot allocate memory|Unable to allocate|bad_alloc"
    r"|LLVM ERROR: out of memory"  # of programs; that of a GPU is another
    r"|^OUT_OF_MEMORY|JobState=OUT_OF_MEMORY|oom[-_]kill event"  # Slurm
    r"|TERM_MEMLIMIT",  # LSF
    re.MULTILINE,
)
NO_TIME = re.compile(
    r"^TIMEOUT|JobState=TIMEOUT|CANCELLED AT .* DUE TO TIME LIMIT|TERM_RUNLIMIT", re.MULTILINE
)
QUERIES = {
    # squeue and scontrol know a job for some minutes after its end, without accounting too. A
    # step out of memory may leave the job FAILED: sacct knows the steps, Slurm's own log tells.
    "SLURM_JOB_ID": (
        ("scontrol", "show", "job", "--oneliner"),
        ("sacct", "--noheader", "--parsable2", "--format=State", "--jobs"),
    ),
    "JOB_ID": (("qacct", "-j"),),
    "LSB_JOBID": (("bjobs", "-noheader", "-o", "exit_reason"),),
}
TAIL = 20_000  # bytes of a log; what ended a job stands in its last lines


class History(NamedTuple):
    """What came before an attempt of a job."""

    log: tuple[int, ...]  # identity of the log as it was; a job that never began leaves it alone
    no_memory: int = 0  # attempts that ended for want of it
    no_time: int = 0
    no_start: int = 0  # attempts that ended in the queue


HISTORIES = {}  # by rule, wildcards and attempt


def text_of(path):
    """Return the end of a text file, nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, Path(path).stat().st_size - TAIL))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def head_of(path):
    try:
        with open(path, "rb") as file:
            return file.read(1000).decode(errors="replace")
    except OSError:
        return ""


def answer(command):
    """Return what a scheduler's command prints, nothing if it fails."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout


def seconds(text):
    """Return a duration of Grid Engine in seconds: 90, 90s, 90.000s."""
    found = re.match(r"[0-9]+", text)
    return int(found[0]) if found else 0


def end_in_grid_engine(account):
    """Return (lacked memory, lacked time) by qacct, which tells both by one line.

    Memory is that of h_vmem here: the only limit that sge-submit sets beside that of time.
    """
    if not re.search(r"^failed +37 |enforced h_rt", account, re.MULTILINE):
        return False, False
    took = re.search(r"^ru_wallclock +(\S+)", account, re.MULTILINE)
    limit = re.search(r"^category .*\bh_rt=([0-9]+)", account, re.MULTILINE)
    in_time = took and limit and seconds(took[1]) < seconds(limit[1])
    return bool(in_time), not in_time


ENDS = {}  # what the scheduler told


def end_of_job(kind, number, attempt):
    """Return what the scheduler tells of a job that has failed, and whether it lacked memory or time.

    It is asked once for all jobs of a group, which share number and attempt, unless it has not told
    anything yet.
    """
    key = kind, number, attempt
    if key in ENDS:
        return ENDS[key]
    text, no_memory, no_time = "", False, False
    for query in QUERIES[kind]:
        told = answer([*query, number])
        if kind == "JOB_ID":
            no_memory, no_time = end_in_grid_engine(told)
        messages = re.search(r" StdOut=(.*?)(?= \w+=|$)", told, re.MULTILINE)  # Slurm's own log
        text += f"\n{told}\n{text_of(messages[1]) if messages else ''}"
    if text.strip():
        ENDS[key] = text, no_memory, no_time
    return text, no_memory, no_time


def what_lacked(log, attempt):
    """Return (memory, time): whether the job that wrote a log ended for want of them.

    It is asked for before that attempt.
    """
    text = text_of(log)
    job = re.search(NUMBER, head_of(log), re.MULTILINE)
    no_memory = no_time = False
    if job:
        told, no_memory, no_time = end_of_job(*job[0].split("="), attempt)
        text += told
    return no_memory or bool(NO_MEMORY.search(text)), no_time or bool(NO_TIME.search(text))


def identity(path):
    """Return something that differs between a file and the one that replaces it."""
    try:
        state = Path(path).stat()
    except OSError:
        return ()
    return state.st_ino, state.st_mtime_ns, state.st_size


def history(rule, wildcards, attempt):
    """Return what came before an attempt; asked for once, before it is submitted."""
    key = rule, tuple(wildcards.items()), attempt
    if key not in HISTORIES:
        log = str(workflow.get_rule(rule).expand_log(wildcards)[0])
        now = identity(log)
        before = HISTORIES.get((*key[:2], attempt - 1))
        if before is None:
            HISTORIES[key] = History(now)
        elif now in ((), before.log):
            HISTORIES[key] = before._replace(log=now, no_start=before.no_start + 1)
        else:
            memory, time = what_lacked(log, attempt)
            HISTORIES[key] = before._replace(
                log=now, no_memory=before.no_memory + memory, no_time=before.no_time + time
            )
    return HISTORIES[key]


def growing(need, count, cap):
    """Return a resource function: `need` times 1, 2, 3 … by a count of the history, up to a cap.

    Parameters
    ----------
    need
        A number, or a function of wildcards, input and threads that returns it.
    count
        Field of History.
    cap
        The most that is asked for, at the first attempt too; 0: no cap.
    """

    def resource(wildcards, input, threads, attempt, rulename):
        size = need(wildcards, input, threads) if callable(need) else need
        times = 1
        # In the process of a job nothing depends on it, and the log is the job's own.
        if workflow.is_main_process:
            times += getattr(history(rulename, wildcards, attempt), count)
        return min(int(size * times), cap or math.inf)

    return resource


def memory(need):
    """Return the resource function mem_mb of a rule: more after want of memory."""
    return growing(need, "no_memory", config["resources"]["max_mem_mb"])


def runtime(need):
    """Return the resource function runtime of a rule, in minutes: more after a time-out."""
    return growing(need, "no_time", config["resources"]["max_runtime"])
