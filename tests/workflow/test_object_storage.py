"""Records in a bucket, by Snakemake's storage plugin, which lies in a folder of its own: ``make test-storage``."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

boto3 = pytest.importorskip("boto3", reason="the storage plugin is no dependency: run `make test-storage`")
servers = pytest.importorskip("moto.server", reason="it is no dependency: run `make test-storage`")
pytest.importorskip("snakemake_storage_plugin_s3", reason="it is no dependency: run `make test-storage`")
PAGE = Path(__file__).parents[2] / "docs/cluster.md"
KEYS = ("mine", "secret")


@pytest.fixture
def store():
    """A client of an S3 server on this machine, with its address and the records of the page in a bucket."""
    server = servers.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    address = "http://{}:{}".format(*server.get_host_and_port())
    client = boto3.client("s3", endpoint_url=address, aws_access_key_id=KEYS[0], aws_secret_access_key=KEYS[1])
    generator = np.random.default_rng(0)
    for bucket in ("records", "copies"):
        client.create_bucket(Bucket=bucket)
    for name in ("mine.npz", "public.npz"):
        file = io.BytesIO()
        np.savez(file, records=generator.normal(size=(300, 6)), labels=generator.integers(0, 2, 300))
        client.put_object(Bucket="records", Key=name, Body=file.getvalue())
    yield client, address
    server.stop()


def test_the_rule_of_the_page_protects_records_of_a_bucket_and_leaves_none_of_them_here(store, tmp_path, monkeypatch):
    client, address = store
    (block,) = re.findall(r"```text\n(# Snakefile\nstorage:.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    (tmp_path / "Snakefile").write_text(block, encoding="utf-8")
    for name, key in zip(("ACCESS_KEY", "SECRET_KEY"), KEYS, strict=True):
        monkeypatch.setenv(f"SNAKEMAKE_STORAGE_S3_{name}", key)
    command = [sys.executable, "-m", "snakemake", "-j", "1", "--config", f"endpoint={address}"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]

    def content(bucket: str, key: str) -> bytes:
        return client.get_object(Bucket=bucket, Key=key)["Body"].read()

    private = np.load(io.BytesIO(content("records", "mine.npz")))
    copies = np.load(io.BytesIO(content("copies", "mine.npz")))
    assert np.array_equal(copies["labels"], private["labels"])
    assert np.abs(copies["records"] - private["records"]).mean() > 0.1
    assert json.loads(content("copies", "protection.json"))["records"]
    clear = private["records"][0].tobytes()
    left = [path for path in tmp_path.rglob("*") if path.is_file() and clear in path.read_bytes()]
    assert not left
    again = subprocess.run([*command, "-n"], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert "Nothing to be done" in again.stdout + again.stderr, "each run is another use of the records"
