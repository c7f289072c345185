"""Account of what ``fmwave map --resume`` adds: processor time of the code that only it runs.

    python -m benchmarks.studies.resume_account REF.fmw R1.fq.gz R2.fq.gz --work DIR

Times of whole runs differ by more than what a state costs. Here the functions that a run with
``--resume`` calls, and others do not, are timed on their own threads (``CLOCK_THREAD_CPUTIME_ID``,
user and system), beside the processor time of the whole run. What the system writes back later, in
threads of its own, counts for neither. Prints a table in Markdown; results:
benchmarks/results/resume.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common.harness import markdown_provenance, provenance, table
from mapper import __version__
from mapper.cli.main import main as fmwave
from mapper.io.reads import ReadsReader
from mapper.mapping.resume import Checkpoints

KINDS = {"BAM": (), "`--sort --markdup`": ("--sort", "--markdup")}

POSITION = "position after each batch"
NOTE = "note of what is written, and whether it is time"
SAVE = "state to disk, by its own thread"


class Account:
    """Seconds of the processor and calls, by kind of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)

    def timed(self, kind: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that also counts its processor time; one thread at a time a kind."""

        def counted(*args: Any, **kwargs: Any) -> Any:
            start = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[kind] += time.thread_time() - start
                self.calls[kind] += 1

        return counted


class TimedExecutor:
    """An executor whose functions are timed."""

    def __init__(self, executor: Any, account: Account) -> None:
        self._executor, self._account = executor, account

    def submit(self, function: Callable[..., Any]) -> Any:
        """Have a function run."""
        return self._executor.submit(self._account.timed(SAVE, function))


def time_resuming(account: Account) -> None:
    """Time the parts of a run that only ``--resume`` has, from now on."""
    begin = Checkpoints.__init__

    def init(self: Any, job: Any, state: Any, background: Any) -> None:
        timed: Any = TimedExecutor(background, account)
        begin(self, job, state, timed)

    patched: Any = Checkpoints
    patched.__init__ = init
    for name, kind in (("cut", POSITION), ("written", NOTE), ("all_written", NOTE)):
        setattr(patched, name, account.timed(kind, getattr(patched, name)))
    reader: Any = ReadsReader
    reader.position = account.timed(POSITION, reader.position)


def run(options: argparse.Namespace, account: Account, words: tuple[str, ...]) -> list[str]:
    """Map all reads; return the cells of a row."""
    output = options.work / "x.bam"
    stats = options.work / "x.json"
    account.seconds.clear()
    account.calls.clear()
    wall, busy = time.perf_counter(), time.process_time()
    status = fmwave(
        ["map", options.index, *options.reads, "-o", str(output), "-t", str(options.threads),
         "--device", "cpu", "--json-stats", str(stats), "--quiet", "--resume",
         "--resume-seconds", str(options.seconds), *words]
    )  # fmt: skip
    wall, busy = time.perf_counter() - wall, time.process_time() - busy
    if status != 0:
        raise SystemExit(f"fmwave map ended with status {status}")
    output.unlink()
    n_reads = json.loads(stats.read_text())["counts"]["reads"]
    extra = sum(account.seconds.values())
    parts = [f"{account.seconds[kind]:.3f}" for kind in (POSITION, NOTE, SAVE)]
    return [
        f"{n_reads / 1e6:.1f} M", f"{wall:.0f}", f"{busy:.1f}", str(account.calls[SAVE]), *parts,
        f"{extra / busy:.2%}",
    ]  # fmt: skip


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("index")
    parser.add_argument("reads", nargs="+")
    parser.add_argument("--work", type=Path, required=True, help="directory for the outputs")
    parser.add_argument("--seconds", type=int, nargs="+", default=[30], help="between states")
    parser.add_argument("-t", "--threads", type=int, default=2)
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    account = Account()
    time_resuming(account)
    rows: list[list[object]] = []
    paces = options.seconds
    for kind, words in KINDS.items():
        for options.seconds in paces:
            rows.append([kind, options.seconds, *run(options, account, words)])
    head = ["output", "a state every, s", "reads", "run, s", "its processor, s", "states", POSITION]
    lines = markdown_provenance(provenance({"fmwave": __version__}))
    print("\n".join([*lines, "", *table([*head, NOTE, SAVE, "of the run's processor"], rows)]))
    shutil.rmtree(options.work)


if __name__ == "__main__":
    main()
