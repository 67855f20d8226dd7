"""An object store on this machine: moto's server, which speaks as S3 does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BUCKET = "a-bucket"


class Store:
    """A bucket, looked at from outside of our code."""

    def __init__(self, client: Any) -> None:
        self.client, self.url = client, f"s3://{BUCKET}"

    def put(self, key: str, content: bytes) -> str:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=content)
        return f"{self.url}/{key}"

    def upload(self, folder: Path, prefix: str) -> str:
        for file in folder.rglob("*"):
            if file.is_file():
                self.put(f"{prefix}/{file.relative_to(folder).as_posix()}", file.read_bytes())
        return f"{self.url}/{prefix}"

    def read(self, key: str) -> bytes:
        return self.client.get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def names(self, prefix: str) -> list[str]:
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [each["Key"].removeprefix(prefix) for each in found]

    def download(self, prefix: str, folder: Path) -> Path:
        folder.mkdir(parents=True)
        for name in self.names(prefix):
            (folder / name).write_bytes(self.read(prefix + name))
        return folder


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    boto3 = pytest.importorskip("boto3")
    s3fs = pytest.importorskip("s3fs")
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.get_host_and_port()[1]}")
        patch.setenv("AWS_ACCESS_KEY_ID", "an-id")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "a-secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        s3fs.S3FileSystem.clear_instance_cache()
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        yield Store(client)
    s3fs.S3FileSystem.clear_instance_cache()
    server.stop()
