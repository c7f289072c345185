"""Code that comes with the package, compiled for levels of CPUs (``fmwave compile --cpu``).

``mapper/prebuilt/fmwave-DIGEST/LEVEL/`` holds files as the cache does (``code_files.py``), for one
digest of the sources: after a change of these, none of them is looked at. What is not there, or was
compiled by another numba, is compiled at first use. Code that was compiled for this very CPU, in
the user's cache, goes before that of a level.

A level is what LLVM calls a CPU: ``generic`` has SSE2 only, as every x86-64 has.
"""

from __future__ import annotations

import os
from pathlib import Path

import numba
from llvmlite import binding as llvm

_V3 = {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt", "sse4.2"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

LEVELS: dict[str, set[str]] = {"x86-64-v4": _V4, "x86-64-v3": _V3, "generic": set()}
"""Features that each level has, the highest first."""

HOME = Path(__file__).parents[1] / "prebuilt"


def host_levels() -> list[str]:
    """Return the levels whose code runs on this CPU, the highest first."""
    found = llvm.get_host_cpu_features()
    has = {name for name, is_there in found.items() if is_there}
    is_x86 = llvm.get_process_triple().startswith("x86_64")
    return [level for level, needed in LEVELS.items() if needed <= has and (is_x86 or not needed)]


def compiles_for(feature: str) -> bool:
    """Return True if code is compiled for CPUs with a feature, as LLVM calls it.

    That is this CPU, unless numba was told which: only what the levels have is known of others.
    """
    if numba.config.CPU_NAME is not None:
        return feature in LEVELS.get(numba.config.CPU_NAME, ())
    return bool(llvm.get_host_cpu_features().get(feature))


def level_variables(level: str) -> dict[str, str]:
    """Return the environment variables with which numba compiles for a level."""
    return {"NUMBA_CPU_NAME": level, "NUMBA_CPU_FEATURES": ""}


def code_key_of(level: str) -> tuple[str, str]:
    """Return CPU and features, as keys of code for a level have them."""
    return level, ""


def directories(name: str) -> list[tuple[str, Path]]:
    """Return the levels that this process may use, the highest first, with their directories.

    `name` is that of the sources' directory of code. There are none with ``FMWAVE_PREBUILT=0``, as
    where code is compiled ahead, and where numba was told which CPU to compile for: code for
    another one might not run there.
    """
    home = HOME / name
    is_off = os.environ.get("FMWAVE_PREBUILT") == "0" or numba.config.CPU_NAME is not None
    if is_off or not home.is_dir():
        return []
    return [(level, home / level) for level in host_levels() if (home / level).is_dir()]
