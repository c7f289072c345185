"""What the process of a device tells of its statistics; see also test_device_servers.py."""

from __future__ import annotations

import pytest

from mapper.mapping.stats import ON_CPU, RunStats

pytest.importorskip("numba_cuda")


def test_counts_of_calls_add_up_to_those_of_the_run() -> None:
    """A call knows how many reads were left to the CPU before, so that it need not warn again."""
    from mapper.mapping.device_server import _counted

    run = RunStats()
    for n_reads in (0, 3, 0, 4):
        before = run.counts.get(ON_CPU, 0)
        call = RunStats(counts={ON_CPU: before})
        if n_reads:
            assert bool(call.counts.get(ON_CPU)) == bool(before)  # whether it has been told
            call.count(**{ON_CPU: n_reads})
        with call.stage("seed"):
            pass
        run.add(_counted(call, before))
        if not n_reads and not before:
            assert ON_CPU not in run.counts
    assert run.counts == {ON_CPU: 7}
    assert run.stage_seconds["seed"] > 0
