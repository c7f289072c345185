"""Wheel and sdist, built here and used away from the checkout: ``make test-package``."""

from __future__ import annotations

import email
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pysam
import pytest

from mapper import __version__
from mapper.jit.prebuilt import host_levels

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
PLACE = os.environ.get("FMWAVE_TEST_PACKAGE")
LARGEST_SDIST = 5_000_000
LARGEST_WHEEL = 10_000_000
NOT_IN_SDIST = {".ci/run", ".gitattributes", ".gitignore"}

pytestmark = [
    pytest.mark.skipif(PLACE is None, reason="needs the package index: make test-package"),
    pytest.mark.slow,
]


def run(*command: object, cwd: Path) -> str:
    """Run a command that sees nothing of the checkout but what it names; return its output."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "FMWAVE"))}
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def dist() -> Path:
    """Build the sdist from the checkout and the wheel from the sdist."""
    place = ROOT / str(PLACE)
    for old in place.glob("fmwave-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--outdir", place, ROOT, cwd=ROOT)
    return place


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    """The only wheel: pure Python."""
    return dist / f"fmwave-{__version__}-py3-none-any.whl"


@pytest.fixture(scope="module")
def with_code(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with code for x86-64-v3, made from the pure one."""
    place = tmp_path_factory.mktemp("wheels")
    shutil.copy(wheel, place)
    run(sys.executable, ROOT / ".ci" / "wheel-with-code", place / wheel.name, cwd=place)
    [made] = place.glob("*manylinux*.whl")
    return made


@pytest.fixture(scope="module")
def sdist(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked sdist."""
    place = tmp_path_factory.mktemp("sdist")
    with tarfile.open(dist / f"fmwave-{__version__}.tar.gz") as archive:
        archive.extractall(place, filter="data")
    return place / f"fmwave-{__version__}"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment that holds the wheel and what it requires."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place, with_pip=True)
    run(place / "bin" / "python", "-m", "pip", "install", "--quiet", wheel, cwd=place)
    return place / "bin"


def test_two_files_are_built(dist: Path) -> None:
    assert sorted(path.name for path in dist.iterdir()) == [
        f"fmwave-{__version__}-py3-none-any.whl",
        f"fmwave-{__version__}.tar.gz",
    ]
    assert (dist / f"fmwave-{__version__}.tar.gz").stat().st_size < LARGEST_SDIST
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir(), cwd=dist)


def test_the_wheel_is_the_package(wheel: Path) -> None:
    """All of it, and nothing else."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    source = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "mapper").rglob("*")
        if path.is_file() and path.suffix != ".pyc" and "prebuilt" not in path.parts
    }
    assert names == source


def test_the_page_of_the_package_index_has_absolute_links(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        page = str(email.message_from_bytes(archive.read(name)).get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", page)
    assert len(links) > 5
    assert [link for link in links if not link.startswith("https://")] == []
    here = {link.partition(f"/blob/v{__version__}/")[2] for link in links} - {""}
    assert "docs/limitations.md" in here
    assert [path for path in here if not (ROOT / path).exists()] == []


def test_the_sdist_is_the_repository(sdist: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no checkout of git")
    listed = run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines()
    tracked = {name for name in listed if (ROOT / name).exists()}
    packed = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    made = {name for name in packed if name.startswith("fmwave.egg-info/")}
    assert packed - made - tracked == {"PKG-INFO", "setup.cfg"}
    assert tracked - packed == set()


def test_all_tests_of_the_sdist_are_collected(sdist: Path) -> None:
    """Those that read documents and source are run, too."""
    pytest_of_sdist = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    run(*pytest_of_sdist, "--collect-only", cwd=sdist)
    tests = [f"tests/test_{name}.py" for name in ("docs", "layers", "public", "cigar")]
    assert " passed" in run(*pytest_of_sdist, *tests, cwd=sdist)


def test_the_command_that_is_installed_has_its_version(installed: Path, tmp_path: Path) -> None:
    assert run(installed / "fmwave", "--version", cwd=tmp_path) == f"fmwave {__version__}\n"
    where = "import mapper; print(mapper.__file__)"
    assert run(installed / "python", "-c", where, cwd=tmp_path).startswith(str(installed.parent))


def test_it_indexes_and_maps(installed: Path, tmp_path: Path) -> None:
    fmwave = installed / "fmwave"
    reads = [DATA / f"portiera_R{mate}.fq.gz" for mate in (1, 2)]
    run(fmwave, "index", DATA / "portiera.fa.gz", "-o", "ref.fmw", cwd=tmp_path)
    run(
        fmwave, "map", "ref.fmw", *reads, "-o", "out.bam", "--sort", "-t", 2,
        "--json-stats", "stats.json", cwd=tmp_path,
    )  # fmt: skip
    with pysam.AlignmentFile(str(tmp_path / "out.bam")) as bam:
        assert bam.has_index()
        primary = [r for r in bam.fetch(until_eof=True) if not r.flag & 0x900]
    assert len(primary) == 3500
    assert sum(read.is_proper_pair for read in primary) > 3400
    assert json.loads((tmp_path / "stats.json").read_text())["fmwave"] == __version__


@pytest.mark.skipif("x86-64-v3" not in host_levels(), reason="needs a CPU of level x86-64-v3")
def test_with_code_a_first_run_compiles_nothing(
    wheel: Path, with_code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    minor = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert with_code.name == f"fmwave-{__version__}-{minor}-{minor}-manylinux_2_17_x86_64.whl"
    assert with_code.stat().st_size < LARGEST_WHEEL
    with zipfile.ZipFile(with_code) as archive, zipfile.ZipFile(wheel) as pure:
        added = set(archive.namelist()) - set(pure.namelist())
        assert set(pure.namelist()) <= set(archive.namelist())
    assert added
    assert all(re.match(r"mapper/prebuilt/fmwave-\w+/x86-64-v3/\S+\.code$", name) for name in added)
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    both = ("--no-index", "--no-deps", "--find-links", with_code.parent, "fmwave")
    run(programs / "pip", "download", *both, cwd=tmp_path)
    [taken] = tmp_path.glob("*.whl")
    assert taken.name == with_code.name, "of the two wheels there"
    run(programs / "pip", "install", "--quiet", taken, cwd=tmp_path)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    reads = [DATA / f"portiera_R{mate}.fq.gz" for mate in (1, 2)]
    run(programs / "fmwave", "index", DATA / "portiera.fa.gz", "-o", "ref.fmw", cwd=tmp_path)
    told = run(
        programs / "fmwave", "map", "ref.fmw", *reads, "-o", "out.bam", "--sort", "--markdup",
        cwd=tmp_path,
    )  # fmt: skip
    assert "compiling code that is used for the first time" not in told
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_it_aligns(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.seq").write_text(">GATTACA\n<GAATA\n")
    table = run(
        installed / "fmwave", "align", "pairs.seq", "--metric", "edit", "--quiet",
        "-o", "out.tsv", cwd=tmp_path,
    )  # fmt: skip
    assert table == ""
    assert "2=1X2=2I" in (tmp_path / "out.tsv").read_text()
    code = "import mapper; print(mapper.edit_distance(['GATTACA'], ['GAATA']).score[0])"
    assert run(installed / "python", "-c", code, cwd=tmp_path) == "3\n"


def test_the_bioconda_recipe_tests_it(installed: Path, sdist: Path, tmp_path: Path) -> None:
    recipe = (ROOT / "recipes" / "bioconda" / "fmwave" / "meta.yaml").read_text()
    listed = re.search(r"^  commands:\n((?:    - .+\n)+)", recipe, re.MULTILINE)[1]
    commands = [line.removeprefix("    - ") for line in listed.splitlines()]
    assert len(commands) == 4
    (tmp_path / "tests").symlink_to(sdist / "tests")
    script = "\n".join(commands).replace("{{ version }}", __version__)
    path = f"PATH={installed}:$PATH"
    run("bash", "-euo", "pipefail", "-c", f"export {path}\n{script}", cwd=tmp_path)
    assert (tmp_path / "phix.bam.bai").exists()
