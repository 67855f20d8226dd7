"""Copies of what lies in a store: whole, only as much fetched as has changed, nobody's secrets told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from hgclr import remote
from hgclr.errors import HGCLRError, InputError
from hgclr.files import atomic_file, atomic_folder, cache_dir, check_output, locked
from hgclr.remote import local
from hgclr.urls import as_written, holds_credentials, url_of

URL = "memory://a-bucket/my-data"
FILES = {"train.jsonl": b"one", "sub/dev.jsonl": b"two", "taxonomy.tsv": b"three"}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HGCLR_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    store = fsspec.filesystem("memory")
    for name, content in FILES.items():
        store.pipe(f"/a-bucket/my-data/{name}", content)
    yield store
    store.store.clear()
    store.pseudo_dirs[:] = [""]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are fetched."""
    names: list[str] = []
    get_file = MemoryFileSystem.get_file

    def noted(self, rpath, lpath, **options):
        names.append(rpath.removeprefix("/a-bucket/my-data/"))
        return get_file(self, rpath, lpath, **options)

    monkeypatch.setattr(MemoryFileSystem, "get_file", noted)
    return names


def content(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("place", [URL, f"{URL}/", Path(URL)])
def test_a_folder_is_fetched_once(memory: MemoryFileSystem, fetched: list[str], place: str | Path) -> None:
    folder = local(place)
    assert content(folder) == FILES
    assert folder.name == "my-data"
    assert sorted(fetched) == sorted(FILES)
    assert local(place) == folder
    assert len(fetched) == len(FILES)


def test_only_what_has_changed_is_fetched(memory: MemoryFileSystem, fetched: list[str]) -> None:
    first = local(URL)
    memory.pipe("/a-bucket/my-data/train.jsonl", b"One")  # as long as before
    memory.rm("/a-bucket/my-data/taxonomy.tsv")
    memory.pipe("/a-bucket/my-data/test.jsonl", b"four")
    fetched.clear()
    second = local(URL)
    assert sorted(fetched) == ["test.jsonl", "train.jsonl"]
    assert content(second) == {"train.jsonl": b"One", "sub/dev.jsonl": b"two", "test.jsonl": b"four"}
    assert content(first) == FILES  # whoever reads it is not disturbed
    memory.pipe("/a-bucket/my-data/train.jsonl", b"oNe")
    third = local(URL)
    assert second.exists()
    assert third.exists()
    assert not first.exists()


def test_a_file_and_some_files(memory: MemoryFileSystem, fetched: list[str]) -> None:
    file = local(f"{URL}/train.jsonl")
    assert (file.name, file.read_bytes()) == ("train.jsonl", b"one")
    assert content(local(URL, ["*.jsonl"])).keys() == {"train.jsonl", "sub/dev.jsonl"}
    assert local("my-data") == Path("my-data")


def test_what_changes_while_it_is_fetched_is_not_kept(
    memory: MemoryFileSystem, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    get = MemoryFileSystem.get

    def overtaken(self, *arguments, **options):
        get(self, *arguments, **options)
        memory.pipe("/a-bucket/my-data/train.jsonl", b"new")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "get", overtaken)
        with pytest.raises(InputError, match=rf"^{URL}: changed while it was being fetched; start again$"):
            local(URL)
    assert not [path for path in cache_dir().rglob("*") if path.is_file()]
    assert content(local(URL))["train.jsonl"] == b"new"


def test_of_two_who_want_it_one_fetches(
    memory: MemoryFileSystem, fetched: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, listing = threading.Barrier(2), remote._listing

    def seen(*arguments):
        found = listing(*arguments)
        if threading.current_thread() is not threading.main_thread() and not fetched:
            both.wait(10)  # both know what is there before one of them fetches it
        return found

    monkeypatch.setattr(remote, "_listing", seen)
    folders: list[Path] = []
    threads = [threading.Thread(target=lambda: folders.append(local(URL))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(folders)) == 1
    assert len(folders) == 2
    assert sorted(fetched) == sorted(FILES)


def test_what_is_not_there(memory: MemoryFileSystem) -> None:
    with pytest.raises(InputError, match=r"^memory://a-bucket/other: no such bucket, folder or file; look for"):
        local("memory://a-bucket/other")
    with pytest.raises(InputError, match=r"no such bucket, folder or file"):
        local(URL, ["*.safetensors"])


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "a\\evil", "./evil"])
def test_names_that_lead_elsewhere_are_refused(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    info = {"size": 1, "type": "file", "created": "now"}
    monkeypatch.setattr(MemoryFileSystem, "find", lambda *_, **__: {f"/a-bucket/my-data/{name}": info})
    with pytest.raises(InputError, match=r"my-data: .* is no name for a file; rename it in the store"):
        local(URL)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError("Forbidden"), r"access denied; see whose credentials these are: set HF_TOKEN"),
        (ConnectionResetError("peer"), r"the store cannot be reached; look at the network"),
        (TimeoutError(), r"the store cannot be reached; look at the network"),
        (ValueError("no good\nat all"), r"the store said: no good; see whether the URL is right"),
    ],
)
def test_what_stores_refuse(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    monkeypatch.setitem(remote.CREDENTIALS, "memory", remote.CREDENTIALS["hf"])

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(MemoryFileSystem, "find", fail)
    with pytest.raises(InputError, match=rf"^{URL}: {message}[^\n]*$"):
        local(URL)


def test_a_full_disk_is_not_the_fault_of_the_store(memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_, **__):
        raise OSError(28, "No space left on device", "here")

    monkeypatch.setattr(MemoryFileSystem, "get_file", fail)
    with pytest.raises(OSError, match=r"No space left on device"):
        local(URL)


def test_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    for known in ("s3", "s3a", "gs"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, known, raising=False)
    with pytest.raises(HGCLRError, match=r"^s3:// needs an optional part: pip install 'hgclr\[remote\]'$"):
        local("s3://a-bucket/my-data")
    with pytest.raises(InputError, match=r"^gs://a-bucket/my-data: Please install gcsfs"):
        local("gs://a-bucket/my-data")
    with pytest.raises(InputError, match=r"^nowhere://a/b: the store said: Protocol not known: nowhere"):
        local("nowhere://a/b")


SECRETS = [
    ("s3://an-id:a-secret@a-bucket/data", "s3://***@a-bucket/data"),
    ("s3://an-id:a-se/cret@a-bucket/data", "s3://***@a-bucket/data"),
    ("s3://an-id:a-secret/a-bucket", "s3://***"),
    ("https://host/table.csv?X-Amz-Signature=a-secret", "https://host/table.csv"),
]


@pytest.mark.parametrize(("url", "shown"), SECRETS)
def test_secrets_are_refused_and_not_shown(url: str, shown: str) -> None:
    assert holds_credentials(url)
    for place in (url, Path(url)):
        with pytest.raises(InputError) as refused:
            local(place)
        assert str(refused.value).startswith(f"{shown}: a URL with a password or a signature")
        assert "secret" not in str(refused.value)
        assert as_written(place) == shown


@pytest.mark.parametrize("place", ["my-data", "/data/x", "owner/name", "C:/data", "a:b", "note: / this", "s3:"])
def test_paths_are_no_urls(place: str) -> None:
    assert url_of(place) is None
    assert as_written(place) == place


@pytest.mark.parametrize(
    "url",
    ["s3://b/x", "hf://datasets/owner/name@main/sub", "sftp://me@host:22/x", "abfs://c@account.net/x", "file:///tmp/x"],
)
def test_urls_survive_pathlib(url: str) -> None:
    assert url_of(url) == url_of(Path(url)) == as_written(Path(url)) == url
    assert url_of(Path(url) / "more") == f"{url}/more"
    assert not holds_credentials(url)


def test_nothing_else_is_written_to_a_store_or_to_a_folder_named_like_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    output = Path("s3://a-bucket/out")
    refusal = r"^s3://a-bucket/out.*: only what hgclr predict labels is written to an object store; give a folder here"
    with pytest.raises(InputError, match=refusal):
        check_output(output)
    for write in (atomic_file, atomic_folder, lambda place: locked(place / "lock", "training", remedy="wait")):
        with pytest.raises(InputError, match=refusal), write(output):
            pass
    assert not list(tmp_path.iterdir())
