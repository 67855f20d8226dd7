"""A bucket of S3, looked at from outside of our code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

BUCKET = "a-bucket"


class Store:
    """Put and read objects with boto3."""

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
