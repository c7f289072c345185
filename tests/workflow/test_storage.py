"""Files in storage: all of a run's, as on Kubernetes, or reads and references that are URLs."""

from __future__ import annotations

import datetime
import functools
import gzip
import http.server
import importlib.util
import ipaddress
import json
import os
import re
import shutil
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pysam
import pytest

from tests.helpers.made_up_lsf import make_lsf
from tests.helpers.made_up_s3 import BUCKET, bucket_with, needs_s3
from tests.helpers.workflow_runs import (
    CONFIG,
    DATA,
    PHIX,
    PORTIERA,
    SAMPLES_HEADER,
    UNITS_HEADER,
    environment,
    needs_snakemake,
    project,
    records,
    snakemake,
)

pytestmark = needs_snakemake

needs_folder = pytest.mark.skipif(
    importlib.util.find_spec("snakemake_storage_plugin_fs") is None
    or shutil.which("rsync") is None,
    reason="snakemake-storage-plugin-fs (make test-profiles), or rsync for its copies, is missing",
)


def in_folder(directory: Path, chunks: int = 1) -> Path:
    """Write a project whose files lie in the folder ``store``; return the place of the run."""
    store, run = directory / "store", directory / "run"
    store.mkdir()
    run.mkdir()
    for name in ("phix174.fa", "phix_R1.fq", "phix_R2.fq"):
        shutil.copy(DATA / name, store)
    units = f"phix\ta\tphix_R1.fq\tphix_R2.fq\t\t{chunks}\n"
    return project(run, CONFIG.replace(f"{DATA}/", ""), units=UNITS_HEADER + units)


@needs_folder
def test_a_run_whose_files_lie_in_storage(tmp_path):
    """A folder stands for the object store; the unit is scattered."""
    store, directory = tmp_path / "store", in_folder(tmp_path, chunks=2)
    run = snakemake(
        directory,
        *("--default-storage-provider", "fs", "--default-storage-prefix", str(store)),
        *("--shared-fs-usage", "none"),
    )

    assert run.returncode == 0, run.stdout
    assert not (directory / "results").exists()
    with pysam.AlignmentFile(str(store / "results" / "mapped" / "phix.bam")) as bam:
        assert sum(not r.flag & 0x900 for r in bam.fetch(until_eof=True)) == 90
        assert bam.has_index()
    assert (store / "results" / "plots" / "reads.svg").exists()


@needs_folder
@pytest.mark.parametrize("place", ["copies", "link"])
def test_reads_are_linked_and_not_copied(tmp_path, place):
    """Where the plugin's link would lead nowhere, they are copied."""
    (tmp_path / "deep" / "copies").mkdir(parents=True)
    (tmp_path / "copies").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "copies")
    directory = in_folder(tmp_path)
    run = snakemake(
        directory,
        *("--default-storage-provider", "fs", "--default-storage-prefix", str(tmp_path / "store")),
        *("--shared-fs-usage", "none", "--local-storage-prefix", str(tmp_path / place)),
        *("--until", "map_sample"),
    )
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("Creating symlink for on-demand retrieval") == 2 * (place == "copies")
    assert (tmp_path / "store" / "phix_R1.fq").read_bytes() == PHIX[0].read_bytes()
    assert not list((tmp_path / place).rglob("*.fq"))


@pytest.fixture
def bucket(monkeypatch) -> Iterator[str]:
    """A bucket of a local S3 server with the reads and the reference; the URL of its folder."""
    with bucket_with([*PHIX, DATA / "phix174.fa"], monkeypatch):
        yield f"s3://{BUCKET}/in"


@contextmanager
def served(folder: Path, certificate: Path | None = None) -> Iterator[str]:
    """Serve a folder by HTTP, or by HTTPS with a certificate and its key; the URL.

    Of files in ``folder/undated`` the server tells no time.
    """

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def send_header(self, keyword, value):
            if keyword != "Last-Modified" or not self.path.startswith("/undated/"):
                super().send_header(keyword, value)

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def site(tmp_path) -> Iterator[tuple[Path, str]]:
    """A local web server: the folder that it shows, and its URL."""
    pytest.importorskip(
        "snakemake_storage_plugin_http",
        reason="snakemake-storage-plugin-http is not installed: make test-profiles",
    )
    folder = tmp_path / "site"
    folder.mkdir()
    with served(folder) as url:
        yield folder, url


@pytest.fixture
def certificate(tmp_path) -> Path:
    """A self-signed certificate of this host, and its key, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    host = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "server.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture
def secure_site(site, certificate) -> Iterator[tuple[Path, str]]:
    """The same folder by ``https://``, of a server that nobody trusts yet."""
    folder, _ = site
    with served(folder, certificate) as url:
        yield folder, url


def samples(*names: str) -> str:
    return SAMPLES_HEADER + "".join(f"{name}\t\n" for name in names)


def unit(sample: str, place: str | Path, suffix: str = "fq", chunks: str = "") -> str:
    reads = "\t".join(f"{place}/phix_R{mate}.{suffix}" for mate in (1, 2))
    return f"{sample}\ta\t{reads}\t\t{chunks}\n"


@needs_s3
def test_reads_and_reference_that_are_urls(
    bucket, site, secure_site, certificate, tmp_path, monkeypatch
):
    """They give the records of local files; one unit is scattered."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    folder, url = site
    for path in PHIX:
        shutil.copy(path, folder)
    units = unit("local", DATA) + unit("s3", bucket) + unit("http", url, chunks="2")
    units += unit("https", secure_site[1])
    names = ("local", "s3", "http", "https")
    directory = project(
        tmp_path, CONFIG.replace(str(DATA), bucket), samples(*names), UNITS_HEADER + units
    )
    run = snakemake(directory, "--until", "map_sample", "finish_sample")
    assert run.returncode == 0, run.stdout
    local, *others = (records(directory / "results" / "mapped" / f"{name}.bam") for name in names)
    assert len(local) >= 90
    assert others == [local] * 3
    assert not list((directory / ".snakemake" / "storage").rglob("*.fq"))  # copies go with the jobs


def test_jobs_of_urls_ask_for_what_local_files_need(site, tmp_path):
    """Run time goes by the size of reads, memory by that of the reference."""
    folder, url = site
    for name, size in (("phix174.fa", 10**9), ("phix_R1.fq.gz", 10**9), ("phix_R2.fq.gz", 10**9)):
        with (folder / name).open("wb") as file:
            file.truncate(size)
    units = UNITS_HEADER + unit("local", folder, "fq.gz") + unit("http", url, "fq.gz")
    config = CONFIG.replace(str(DATA), url)
    directory = project(tmp_path, config, samples("local", "http"), units)
    run = snakemake(directory, "--dry-run")
    assert run.returncode == 0, run.stdout
    asked = re.findall(r"rule map_sample:.*?resources: (.*?)\n", run.stdout, re.DOTALL)
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert "runtime=182," in asked[0]  # of 50 M reads
    assert "mem_mb=9636," in asked[0]


KILLED_ONCE = """#!/bin/bash
# The first mapping is killed when it has written how far it is. The times of its reads are noted.
if [ "$1" = map ]; then
    stat --dereference --format=%Y "$3" "$4" >> times
    if mkdir first 2>/dev/null; then
        {fmwave} "$@" &
        until [ -e results/mapped/.phix.bam.fmwave-resume/state.json ]; do sleep 0.01; done
        kill -KILL $!
        wait $!
        exit
    fi
fi
exec {fmwave} "$@"
"""
OFTEN = "map: {extra: '--resume-seconds 0 --batch-bases 20000'}\n"  # states, batch by batch
COPIES = 10  # of the reads: some 250 batches
LONG_AGO = 1_000_000_000


def kill_once(directory: Path, place: str) -> None:
    """Map reads by a job that is killed and tried again."""
    shim = directory / "bin" / "fmwave"
    shim.parent.mkdir()
    real = shutil.which("fmwave", path=environment()["PATH"])
    shim.write_text(KILLED_ONCE.format(fmwave=real))
    shim.chmod(0o755)
    config = CONFIG.replace("phix174.fa", "portiera.fa.gz") + OFTEN
    project(directory, config, units=UNITS_HEADER + unit("phix", place))
    run = snakemake(directory, "--until", "map_sample", "--retries", "1", first_on_path=shim)
    assert run.returncode == 0, run.stdout
    assert run.stdout.count("Retrieving from storage") == 4  # both files, and again


def many_reads(folder: Path) -> list[Path]:
    """Write reads that take a while to map, of long ago."""
    for mate, reads in enumerate(PORTIERA, start=1):
        path = folder / f"phix_R{mate}.fq"
        path.write_bytes(gzip.decompress(reads.read_bytes()) * COPIES)
        os.utime(path, (LONG_AGO, LONG_AGO))
    return [folder / f"phix_R{mate}.fq" for mate in (1, 2)]


def log_and_times(directory: Path) -> tuple[str, list[int]]:
    """Return what the second mapping job said, and the times of the reads of both."""
    times = (directory / "times").read_text().split()
    return (directory / "results/logs/map/phix.log").read_text(), [int(time) for time in times]


@pytest.mark.medium
def test_a_killed_job_whose_reads_are_urls_goes_on(secure_site, certificate, tmp_path, monkeypatch):
    """The reads are fetched again, and are the same by their time."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    folder, url = secure_site
    many_reads(folder)
    kill_once(tmp_path, url)
    log, times = log_and_times(tmp_path)
    assert re.search("going on after [1-9]", log), log
    assert times == [LONG_AGO] * 4
    statistics = json.loads((tmp_path / "results/stats/phix.map.json").read_text())
    assert statistics["resumed"] == 1


@needs_s3
@pytest.mark.medium
def test_a_killed_job_whose_reads_are_in_s3_goes_on(tmp_path, monkeypatch):
    with bucket_with(many_reads(tmp_path), monkeypatch) as s3:
        kill_once(tmp_path, f"s3://{BUCKET}/in")
        stored = s3.head_object(Bucket=BUCKET, Key="in/phix_R1.fq")["LastModified"]
    log, times = log_and_times(tmp_path)
    assert re.search("going on after [1-9]", log), log
    assert times[0] == times[2] == stored.timestamp()


@pytest.mark.medium
def test_a_killed_job_whose_reads_have_no_time_begins_anew(site, tmp_path):
    """Nothing tells whether they are the same."""
    folder, url = site
    many_reads(folder)
    (folder / "undated").mkdir()
    for mate in (1, 2):
        (folder / f"phix_R{mate}.fq").rename(folder / "undated" / f"phix_R{mate}.fq")
    kill_once(tmp_path, f"{url}/undated")
    log, times = log_and_times(tmp_path)
    assert "phix_R1.fq has changed (by its time)" in log
    assert min(times) > LONG_AGO


@needs_s3
def test_an_object_that_is_not_there(bucket, tmp_path):
    units = UNITS_HEADER + unit("s3", bucket, "fastq")
    run = snakemake(project(tmp_path, samples=samples("s3"), units=units), "--dry-run")
    assert run.returncode == 1
    assert "Missing input files" in run.stdout
    assert f"{bucket}/phix_R1.fastq (in storage)" in run.stdout


def test_a_server_that_is_not_trusted(secure_site, tmp_path):
    """By a certificate that is in no list of ours; the run ends before any job."""
    folder, url = secure_site
    for path in PHIX:
        shutil.copy(path, folder)
    run = snakemake(project(tmp_path, units=UNITS_HEADER + unit("phix", url)))
    assert run.returncode == 1
    assert "CERTIFICATE_VERIFY_FAILED" in run.stdout
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("url", "what"),
    [
        ("gs://b/x.fq", "a storage plugin is missing: pip install snakemake-storage-plugin-gcs"),
        ("odd://b/x.fq", "No storage provider found for query odd://b/x.fq"),
    ],
)
def test_a_url_that_no_plugin_reads(url, what, tmp_path):
    directory = project(
        tmp_path,
        f"{CONFIG}index: {{mask: '{url}'}}\n",
        units=f"{UNITS_HEADER}phix\ta\t{url}\t\t\t\n",
    )
    run = snakemake(directory, "--dry-run")
    assert run.returncode == 1
    assert f"config: index.mask: '{url}': {what}" in run.stdout
    (directory / "config" / "config.yaml").write_text(CONFIG)
    run = snakemake(directory, "--dry-run")
    assert run.returncode == 1
    assert f"units.tsv, line 2: fq1: '{url}': {what}" in run.stdout


def test_urls_on_a_cluster_with_a_shared_disk(site, tmp_path, monkeypatch):
    """A made-up LSF. Snakemake's main process fetches what a job wants, before it is submitted."""
    pytest.importorskip("snakemake_executor_plugin_lsf", reason="not installed: make test-profiles")
    folder, url = site
    for path in PHIX:
        shutil.copy(path, folder)
    commands = make_lsf(tmp_path / "lsf")
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    directory = project(tmp_path, units=UNITS_HEADER + unit("phix", url))
    run = snakemake(
        directory,
        *("--until", "map_sample", "--seconds-between-status-checks", "1", "--latency-wait", "5"),
        profile="lsf-gpu",
    )
    assert run.returncode == 0, run.stdout
    with pysam.AlignmentFile(str(directory / "results" / "mapped" / "phix.bam")) as bam:
        [program] = bam.header["PG"]
    assert " .snakemake/storage/http/" in program["CL"]
    assert not list((directory / ".snakemake" / "storage").rglob("*.fq"))
