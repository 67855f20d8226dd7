"""An object store on this machine: moto's server with the interface of S3."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from support.object_store import BUCKET, Store


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
