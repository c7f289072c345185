"""``-t`` counts every thread of the process that computes, also those of libraries."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.helpers.mapping_runs import World, map_to

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs Linux")
def test_threads_of_a_run(world: World, tmp_path: Path) -> None:
    """As many as -t, and two that wait: the main thread and the pipe's."""
    map_to(world.index, tmp_path / "compiled.bam", world.both, interleaved=True)
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    for n_threads in (2, 4):  # one may wait for the pipe
        out = tmp_path / f"{n_threads}.sam"
        process = subprocess.Popen(
            [sys.executable, "-m", "mapper.cli.main", "map", world.index_path, "-", "--quiet",
             "-o", str(out), "-t", str(n_threads), "--batch-bases", "9000"],
            stdin=subprocess.PIPE, env={**environment, "PYTHONPATH": str(ROOT)}, cwd=ROOT,
        )  # fmt: skip
        assert process.stdin is not None
        with process:
            # It writes records of the first reads, and waits for more.
            process.stdin.write(Path(world.both).read_bytes())
            process.stdin.flush()
            while not any(p.stat().st_size > 2_000 for p in tmp_path.glob(".*.tmp")):
                assert process.poll() is None
                time.sleep(0.02)
            tasks = len(list(Path(f"/proc/{process.pid}/task").iterdir()))
            process.stdin.close()
            assert process.wait() == 0
        assert tasks == n_threads + 2
        assert out.exists()
