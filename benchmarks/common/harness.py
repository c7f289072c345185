"""What the benchmarks share: measuring, scoring, reporting."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import functools
import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
DATA = ROOT / "resources" / "benchmarks"  # large, made by benchmarks/common/data.py, not in git
SHARED = ROOT.parent / "shared"


class BenchmarkError(Exception):
    """Something the person at the keyboard has to put right."""


Main = Callable[[Sequence[str] | None], int]
"""A program: from its arguments (None: the command line's) to its exit status."""


def reports_errors(main: Main) -> Callable[..., int]:
    """Decorate a program: a BenchmarkError ends it with a message and status 1."""

    @functools.wraps(main)
    def reporting(arguments: Sequence[str] | None = None) -> int:
        try:
            return main(arguments)
        except BenchmarkError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1

    return reporting


def subcommands(
    about: str | None, programs: Mapping[str, Callable[..., int]]
) -> Callable[..., int]:
    """Return a program that runs the one which its first argument names; `about` is its help."""

    def main(arguments: Sequence[str] | None = None) -> int:
        words = sys.argv[1:] if arguments is None else list(arguments)
        if words and words[0] in programs:
            return programs[words[0]](words[1:])
        print(about or "", f"Parts: {', '.join(programs)}", sep="\n")
        return 0 if words[:1] in (["-h"], ["--help"]) else 2

    return main


# ------------------------------------------------------------------------------ measuring


@dataclass(frozen=True)
class Measurement:
    """Cost of one process and of the children it waited for."""

    wall_s: float
    cpu_s: float  # user + system
    peak_rss_mb: float  # of the largest single process, MB = 10^6 bytes
    exit_status: int
    ended_at_limit: bool = False


def measure(
    command: Sequence[str | Path], log: Path, stdout: Path | None = None,
    limit_s: float | None = None,
) -> Measurement:  # fmt: skip
    """Run a command; standard error goes to ``log``, standard output to ``stdout`` or ``log``.

    After ``limit_s`` seconds it is ended.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    # Python's modules come compiled, as from an installed package (results/first_run.md).
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with log.open("wb") as messages, (stdout or log).open("ab" if stdout is None else "wb") as out:
        start = time.perf_counter()
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=out, stderr=messages,
            env=environment,
        )  # fmt: skip
        ended = threading.Event()
        limit = None
        if limit_s is not None:
            limit = threading.Timer(limit_s, _end, (process.pid, ended))
            limit.start()
        try:
            _, status, usage = os.wait4(process.pid, 0)
        finally:
            if limit is not None:
                limit.cancel()
                limit.join()
        wall_s = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    return Measurement(
        wall_s=round(wall_s, 3),
        cpu_s=round(usage.ru_utime + usage.ru_stime, 3),
        peak_rss_mb=round(usage.ru_maxrss * 1024 / 1e6, 1),
        exit_status=process.returncode,
        ended_at_limit=ended.is_set(),
    )


def back_memory(n_bytes: int) -> None:
    """Have the host of a virtual machine back that much of the free memory.

    Another process touches it and ends. Where free memory is reported to the host (free page
    reporting of virtio-balloon), the host takes it after two seconds, and to touch it again costs
    2 ms a megabyte, as against 0.1 on a machine that has its memory: that is then most of the
    difference between two runs of which one keeps more in memory.
    """
    if n_bytes:
        touch = f"import mmap; m = mmap.mmap(-1, {n_bytes}); m.madvise(mmap.MADV_HUGEPAGE)"
        pages = f"for at in range(0, {n_bytes}, mmap.PAGESIZE): m[at] = 1"
        subprocess.run([sys.executable, "-c", f"{touch}\n{pages}"], check=True)


def _end(process: int, ended: threading.Event) -> None:
    """Kill a process that may have ended just now."""
    ended.set()
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


def tail(log: Path, n_lines: int = 5) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-n_lines:])


# -------------------------------------------------------------------------------- scoring


def kit(script: str) -> Path:
    """Return a script of the evaluation kit; FMWAVE_EVAL names its folder."""
    folder = Path(os.environ.get("FMWAVE_EVAL", SHARED / "eval"))
    path = folder / script
    if not path.is_file():
        raise BenchmarkError(
            f"{path} is not there. The evaluation kit (simulate.py, synth_genome.py, mapeval.py) "
            "is looked for in ../shared/eval beside the checkout, or where FMWAVE_EVAL says."
        )
    return path


def evaluate(alignments: Path, ref: Path, truth: Path | None = None) -> dict[str, Any]:
    """Score a SAM or BAM file with mapeval.py: places against the truth, and the SAM rules."""
    out = alignments.with_suffix(".eval.json")
    out.unlink(missing_ok=True)
    command: list[str | Path] = [sys.executable, kit("mapeval.py"), "--no-table"]
    command += ["--ref", ref, "--json", out]
    if truth:
        command += ["--truth", truth]
    command.append(alignments)
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if not out.exists():
        raise BenchmarkError(f"mapeval.py on {alignments}: {run.stderr.strip()}")
    result: dict[str, Any] = json.loads(out.read_text())
    return result


# ------------------------------------------------------------------------------ reporting


def machine() -> dict[str, Any]:
    """Describe where the numbers come from."""
    cpu = platform.processor()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE)
        cpu = names[0] if names else cpu
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


UNKNOWN = "unknown"
"""Commit of a tree that nobody has named."""


def commit() -> str:
    """Return the short commit of this very tree, with "-dirty" if tracked files differ.

    Where it is no checkout (a copy on another machine), what FMWAVE_COMMIT says, else UNKNOWN; a
    repository that happens to lie around the copy is not asked.
    """
    if shutil.which("git"):
        top = _git("rev-parse", "--show-toplevel")
        if top and Path(top).resolve() == ROOT.resolve():
            return _git("describe", "--always", "--dirty", "--exclude=*") or UNKNOWN
    return os.environ.get("FMWAVE_COMMIT", "").strip() or UNKNOWN


def _git(*arguments: str) -> str:
    """Return what git prints of this tree; nothing if it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def known_commit(text: str) -> str:
    """Return a commit for results; as argparse's `type`, refuse a text that is none."""
    if not re.fullmatch(r"[0-9a-f]{7,40}(-dirty)?", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no commit (7 to 40 hexadecimal digits); where there is no git, give "
            "--commit or FMWAVE_COMMIT"
        )
    return text


def add_commit(parser: argparse.ArgumentParser) -> None:
    """Add the option --commit; a run that knows none ends before it begins."""
    parser.add_argument(
        "--commit", type=known_commit, default=commit(), help="where there is no git"
    )


def save_json(path: Path, report: Mapping[str, Any]) -> None:
    """Write a result so that a run that is ended meanwhile leaves the one before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".json.part")
    part.write_text(json.dumps(report, indent=1) + "\n")
    part.replace(path)


def earlier(path: Path, about: Mapping[str, Any], same: Sequence[str]) -> dict[str, Any]:
    """Return a result that is to be gone on with; refuse one of another commit, device, ...

    Raises
    ------
    BenchmarkError
        If something of `same` is another in the result than in `about`.
    """
    before: dict[str, Any] = json.loads(path.read_text())
    for what in same:
        if before["about"].get(what) != about[what]:
            raise BenchmarkError(
                f"{path} has another {what}: {before['about'].get(what)}, this run "
                f"{about[what]}; write to another folder, or do not resume"
            )
    return before


def provenance(versions: Mapping[str, str]) -> dict[str, Any]:
    """Describe a run: when, where, of what; `versions` of the tools by name."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "machine": machine(),
        "versions": dict(versions),
    }


def markdown_provenance(about: dict[str, Any]) -> list[str]:
    computer = about["machine"]
    tools = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    run = f"{about['date']}, commit {about['commit']}, `{about['command']}`."
    return [
        "\n".join(textwrap.wrap(run, 120, break_long_words=False, break_on_hyphens=False)) + "  ",
        f"{computer['cpu']}, {computer['cores']} cores, {computer['memory_gb']} GB, "
        f"{computer['system']}, Python {computer['python']}; load before: "
        f"{computer['load_before']}.  ",
        f"{tools}.",
        "",
    ]


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a markdown table, and a blank one."""
    lines = [list(map(str, header)), ["---"] * len(header), *(list(map(str, r)) for r in rows)]
    return ["| " + " | ".join(cells) + " |" for cells in lines] + [""]


def write_results(directory: Path, stem: str, report: dict[str, Any], lines: list[str]) -> None:
    """Write ``stem``.json and ``stem``.md and say where they are."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{stem}.json").write_text(json.dumps(report, indent=1) + "\n")
    (directory / f"{stem}.md").write_text("\n".join(lines).rstrip() + "\n")
    print(f"written: {directory / stem}.md, .json")
