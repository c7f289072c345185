"""A local S3 server, and the settings by which Snakemake's storage plugin finds it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

BUCKET = "cohort"
SETTINGS = "SNAKEMAKE_STORAGE_S3_"  # the environment variables of the plugin begin with it

needs_s3 = pytest.mark.skipif(
    any(
        importlib.util.find_spec(name) is None
        for name in ("moto", "flask_cors", "snakemake_storage_plugin_s3")
    ),
    reason="moto's server or snakemake-storage-plugin-s3 is not installed: make test-profiles",
)


@contextmanager
def bucket_with(files: Iterable[Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Serve a bucket with copies of files in its folder ``in``; gives a client of the server."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    credentials = {"access_key": "made-up", "secret_key": "made-up-too"}
    for name, value in {"endpoint_url": endpoint, **credentials}.items():
        monkeypatch.setenv(f"{SETTINGS}{name.upper()}", value)
    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=credentials["access_key"],
        aws_secret_access_key=credentials["secret_key"],
    )
    client.create_bucket(Bucket=BUCKET)
    for path in files:
        client.upload_file(str(path), BUCKET, f"in/{path.name}")
    try:
        yield client
    finally:
        client.close()
        server.stop()
