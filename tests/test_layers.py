"""The architecture of the package: which room may import, start threads and open files.

A room is a folder of ``mapper/``, or a module that lies directly in it. The tests read the source
as syntax trees: an import inside a function or under ``TYPE_CHECKING`` counts like any other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Low to high. A room may import those of lower layers, not its neighbours.
LAYERS = (
    ("errors",),
    ("jit", "parallel"),
    ("batch", "params", "dna", "cigar", "sam_flags", "gap_affine", "host_memory", "cuda"),
    ("batch_ops", "two_piece_band"),
    ("io",),
    ("sorting",),
    ("index",),
    ("seed",),
    ("kmers", "chain"),
    ("extend",),
    ("pair", "align"),
    ("mapping",),
    ("api",),
    ("cli",),
)
# Rooms that may import less than their layer allows.
NARROW = {
    # A toolkit that knows nothing of mapping.
    "cuda": {"errors", "jit", "parallel"},
    # Bytes and batches: no parameter of a stage.
    "io": {
        "errors", "jit", "parallel", "batch", "batch_ops", "dna", "cigar", "sam_flags",
        "host_memory", "cuda",
    },
    # `fmwave seed` has its own search: it shares the index with seeding, no code.
    "kmers": {room for layer in LAYERS[:7] for room in layer},
    # Pairwise engines know no index and no batch of reads; of extension, only how scores become
    # penalties.
    "align": {
        "errors", "jit", "parallel", "params", "dna", "cigar", "gap_affine", "two_piece_band",
        "host_memory", "cuda", "io", "extend",
    },
}  # fmt: skip
# `mapper/__init__` holds the version, which anyone may import, and names public homes lazily.
PACKAGE = "mapper"

# Imports that break a rule: upwards, or closing a circle. Nothing may be added.
KNOWN_IMPORTS: set[tuple[str, str]] = set()
# Modules outside parallel/ that create threads or executors.
KNOWN_THREADS: set[str] = set()

# Modules outside io/ that open files or start processes, and why.
OPENS_FILES = {
    "index.storage": "the files of an index",
    "align.long.search": "checkpoint of a search that takes hours",
    "cli.insert_size_file": "a JSON report of another run, the value of an option",
    "cli.main": "points standard output to /dev/null after a broken pipe",
    "cli.map_sheet": "the sheet of samples, the value of an option",
    "cli.standard_streams": "standard streams that were closed at the start",
    "cuda.devices": "lock files of devices",
    "cuda.gpu_table": "gpus.toml of the package",
    "host_memory": "memory limits in /proc and /sys",
    "jit.accelerate": "digests of the package's source, the folder of the compile cache",
    "jit.code_files": "compiled code on disk",
    "cli.compile": "a folder for made-up reads",
    "index.index": "its method `open` calls index.storage",
    "mapping.resume": "the state of a run that was killed, and its lock",
    "sorting.saved_runs": "runs of a sort that another process goes on with",
    "sorting.spill_file": "the temporary file of a sort",
    "mapping.warm_up": "processes that compile ahead",
    "parallel.remote_calls": "processes that serve calls",
}
THREAD_MAKERS = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "Pool"}
FILE_OPENERS = {
    "open", "fdopen", ".read_text", "read_bytes", "write_text", "write_bytes", "np.load", "np.save",
    "np.savez", "fromfile", "tofile", "memmap", "mkdtemp", "mkstemp", "TemporaryFile",
    "NamedTemporaryFile", "TemporaryDirectory", "Popen", "AlignmentFile", "FastxFile",
}  # fmt: skip

# Folders of tests that mirror no room.
OTHER_TESTS = {
    "benchmarks": "the benchmarks' own code",
    "data": "bundled reads",
    "end_to_end": "runs of the whole mapper",
    "helpers": "what several tests share",
    "machine_code": "kernels compiled for a GPU without having one",
    "naive": "oracles",
    "release": "what is published: wheel, sdist, recipes, metadata",
    "workflow": "the Snakemake workflow",
}
NOT_MODULES = {"test_docs", "test_examples", "test_layers", "test_public"}


def _modules() -> dict[str, ast.Module]:
    """Return the syntax tree of each module, by its dotted name; packages without ``__init__``."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): (
            ast.parse(path.read_text())
        )
        for path in sorted((ROOT / "mapper").rglob("*.py"))
    }


MODULES = _modules()


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of everything that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not used"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def _imports() -> frozenset[tuple[str, str]]:
    """Return the arrows between modules; those from and to the package itself are left out."""
    arrows = set()
    for module, tree in MODULES.items():
        for name in _names(tree):
            target = name if name in MODULES else name.rpartition(".")[0]
            if target in MODULES:
                arrows.add((module, target))
    return frozenset(a for a in arrows if PACKAGE not in a and a[0] != a[1])


def _room(module: str) -> str:
    return module.split(".")[1]


def _allowed(room: str) -> set[str]:
    """Return the rooms that a room may import."""
    layer = next(i for i, layer in enumerate(LAYERS) if room in layer)
    below = {lower for layer in LAYERS[:layer] for lower in layer}
    return {room} | NARROW.get(room, below)


def _circles(arrows: Iterable[tuple[str, str]]) -> list[set[str]]:
    """Return the strongly connected components of more than one module (Tarjan 1972)."""
    targets: dict[str, set[str]] = {module: set() for module in MODULES}
    for source, target in arrows:
        targets[source].add(target)
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    circles = []

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        stack.append(module)
        for target in targets[module]:
            if target not in order:
                visit(target)
            if target in stack:
                low[module] = min(low[module], low[target])
        if low[module] == order[module]:
            members = stack[stack.index(module) :]
            del stack[-len(members) :]
            if len(members) > 1:
                circles.append(set(members))

    for module in MODULES:
        if module not in order:
            visit(module)
    return circles


def _callers(names: set[str]) -> set[str]:
    """Return the modules that call a function or class of one of these names.

    ``name`` stands for ``name(...)`` and ``anything.name(...)``, ``.name`` for the latter only.
    ``Name.open(...)``, a class method of the package's own, is left out.
    """
    callers = set()
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Name):
                spellings = {called.id}
            elif isinstance(called, ast.Attribute):
                owner = called.value.id if isinstance(called.value, ast.Name) else ""
                spellings = {f"{owner}.{called.attr}", f".{called.attr}"}
                if not owner[:1].isupper():
                    spellings.add(called.attr)
            else:
                continue
            if spellings & names:
                callers.add(module.removeprefix("mapper."))
    return callers


def test_every_room_has_a_layer():
    rooms = {_room(module) for module in MODULES if module != PACKAGE}
    in_layers = [room for layer in LAYERS for room in layer]
    assert sorted(in_layers) == sorted(rooms)
    for room, narrower in NARROW.items():
        assert narrower <= {lower for layer in LAYERS for lower in layer}, room


@pytest.mark.parametrize("room", [room for layer in LAYERS for room in layer])
def test_a_room_imports_lower_ones_only(room):
    allowed = _allowed(room)
    wrong = {
        (source, target)
        for source, target in _imports() - KNOWN_IMPORTS
        if _room(source) == room and _room(target) not in allowed
    }
    assert not wrong, f"{room} may import {sorted(allowed)}"


def test_the_pairwise_engines_take_the_penalties_of_extension_only():
    taken = {
        name
        for module, tree in MODULES.items()
        if module.startswith("mapper.align")
        for name in _names(tree)
        if name.startswith("mapper.extend")
    }
    assert taken == {"mapper.extend.wavefront.wavefront_penalties"}


def test_modules_import_in_no_circle():
    assert _circles(_imports() - KNOWN_IMPORTS) == []


def test_circles_are_found():
    """The search for circles itself, on arrows of two circles that share no module."""
    a, b, c, d, e, f, *_ = MODULES
    arrows = {(a, b), (b, c), (c, a), (c, d), (d, e), (e, d), (e, f)}
    assert sorted(map(sorted, _circles(arrows))) == sorted([sorted([a, b, c]), sorted([d, e])])


def test_no_known_import_is_stale():
    """Each is there, and without it in the list a test above would fail."""
    arrows = _imports()
    for known in KNOWN_IMPORTS:
        assert known in arrows, f"{known} is gone: take it off the list"
        upwards = _room(known[1]) not in _allowed(_room(known[0]))
        assert upwards or _circles(arrows - KNOWN_IMPORTS | {known}), f"{known} breaks no rule"


def test_the_package_itself_imports_nothing_at_run_time():
    """The command's help and version are instant: public names are imported when asked for."""
    tree = MODULES[PACKAGE]
    at_run_time = {name for node in tree.body if not isinstance(node, ast.If)
                   for name in _names(node)}  # fmt: skip
    assert {name for name in at_run_time if name.startswith("mapper")} == set()


def test_cuda_alone_imports_numba_cuda():
    """One module imports it, so that another implementation would have one place to go."""
    importing = {
        module for module, tree in MODULES.items()
        if any(f"{name}.".startswith("numba.cuda.") for name in _names(tree))
    }  # fmt: skip
    assert importing == {"mapper.cuda.api"}


def test_parallel_alone_creates_threads():
    made = {m for m in _callers(THREAD_MAKERS) if not m.startswith("parallel.")}
    assert made == KNOWN_THREADS, "new ones belong into parallel/; take those that are gone off"


def test_files_are_opened_in_io():
    """Outside io/, by the modules of `OPENS_FILES` only."""
    opened = {module for module in _callers(FILE_OPENERS) if not module.startswith("io.")}
    assert opened == set(OPENS_FILES)


def test_every_folder_of_tests_mirrors_a_room():
    folders = {
        path.relative_to(ROOT / "tests").as_posix()
        for path in (ROOT / "tests").rglob("*")
        if path.is_dir() and any(file.suffix != ".pyc" for file in path.iterdir() if file.is_file())
    }
    unknown = {
        folder for folder in folders
        if folder.split("/")[0] not in OTHER_TESTS and not (ROOT / "mapper" / folder).is_dir()
    }  # fmt: skip
    assert unknown == set()
    packages = {path.parent.relative_to(ROOT / "mapper").as_posix()
                for path in (ROOT / "mapper").rglob("__init__.py")} - {"."}  # fmt: skip
    assert packages - folders == set(), "rooms without tests"


def test_tests_outside_the_folders_mirror_a_module():
    tested = {path.stem for path in (ROOT / "tests").glob("test_*.py")} - NOT_MODULES
    modules = {path.stem for path in (ROOT / "mapper").glob("*.py")}
    assert {name.removeprefix("test_") for name in tested} <= modules
