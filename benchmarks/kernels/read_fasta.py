"""How long a reference FASTA takes to be read, by threads and compression; one command.

    python -m benchmarks.kernels.read_fasta REF.fa REF.fa.gz ... [--threads 1 2 4] [--rounds 3]
        [--before CHECKOUT]

Each reading is a process of its own, from the file (in the page cache) to the text in memory,
codes and MD5 of all contigs; time and CPU are from within, without the start and with code that
is compiled. CHECKOUT is a folder with the package as it was when one thread read a file twice
(``scan_fasta``, then ``read_text``); that is done in turn with the others. All must give the same
text and the same contigs; exit status 1 if they do not.
Results: OUT/read_fasta-DATE-COMMIT.{md,json}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import harness

_CHILD = """
import hashlib, json, resource, sys, tempfile, time
from pathlib import Path
path, n_threads = Path(sys.argv[1]), int(sys.argv[2])
if n_threads:
    from mapper.index.build import read_text
    from mapper.io.reference_fasta import plain_bytes
    def read(path):
        return read_text(path, n_threads, plain_bytes(path))
else:
    from mapper.index.build import read_text
    from mapper.io.reference_fasta import scan_fasta
    def read(path):
        return read_text(path, scan_fasta(path))
with tempfile.NamedTemporaryFile("wb", suffix=path.suffix) as small:
    import gzip
    text = b">a\\nACGT\\n"
    small.write(gzip.compress(text) if path.suffix == ".gz" else text)
    small.flush()
    read(Path(small.name))
if path.suffix == ".gz":
    from mapper.io import isal
    isal.usable()
before = time.process_time(), time.perf_counter()
contigs, text = read(path)
cpu_s, wall_s = time.process_time() - before[0], time.perf_counter() - before[1]
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
digest = hashlib.md5(text)
digest.update(repr((contigs.names, contigs.md5, contigs.lengths.tolist())).encode())
print(json.dumps({"wall_s": wall_s, "cpu_s": cpu_s, "peak_gb": peak, "n": len(text),
                  "digest": digest.hexdigest()}))
"""


def read_once(package: Path, fasta: Path, n_threads: int) -> dict[str, Any]:
    """Read a file in a process of its own, by the package in a folder; 0 threads: as before."""
    run = subprocess.run(
        [sys.executable, "-c", _CHILD, str(fasta.resolve()), str(n_threads)], cwd=package,
        env={**os.environ, "PYTHONPATH": str(package)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if run.returncode:
        raise harness.BenchmarkError(f"{fasta}: {run.stderr}")
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("fasta", type=Path, nargs="+")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4], help="[%(default)s]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--before", type=Path, help="checkout of before")
    parser.add_argument("--results", type=Path, default=harness.RESULTS, help="[%(default)s]")
    options = parser.parse_args(arguments)
    about = harness.provenance({name: version(name) for name in ("numba", "isal", "numpy")})
    ways = [(harness.ROOT, n, f"{n} threads") for n in options.threads]
    if options.before:
        ways.insert(0, (options.before, 0, "before"))
    rows, report, same = [], [], True
    for fasta in options.fasta:
        runs: dict[str, list[dict[str, Any]]] = {name: [] for *_, name in ways}
        for package, n_threads, name in [way for _ in range(options.rounds) for way in ways]:
            runs[name].append(read_once(package, fasta, n_threads))
            print(fasta.name, name, runs[name][-1], flush=True)
        same &= len({run["digest"] for found in runs.values() for run in found}) == 1
        for name, found in runs.items():
            wall, cpu, peak = (median(run[key] for run in found)
                               for key in ("wall_s", "cpu_s", "peak_gb"))  # fmt: skip
            best = min(run["wall_s"] for run in found)
            rows.append(
                [fasta.name, f"{found[0]['n'] / 1e6:.0f}", name, f"{wall:.2f}", f"{best:.2f}",
                 f"{cpu:.2f}", f"{peak:.2f}"]
            )  # fmt: skip
            report.append({"file": fasta.name, "way": name, "runs": found})
    head = ["file", "Mbp", "reading", "wall, s (median)", "best", "CPU, s", "peak memory, GB"]
    text = "All readings of a file gave the same text." if same else "THE READINGS DIFFER."
    lines = ["# Reading a reference FASTA", "", *harness.markdown_provenance(about)]
    lines += [text, "", *harness.table(head, rows)]
    stem = f"read_fasta-{about['date'][:10]}-{about['commit']}"
    harness.write_results(options.results, stem, {"about": about, "rows": report}, lines)
    print("\n".join(lines))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
