"""Copies of folders in a store: complete, downloaded once, never changed; and URLs as paths, without their secrets."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from hgclr.errors import InputError, MissingExtraError, as_written, url_of
from hgclr.files import atomic_file, atomic_folder, check_output, locked
from hgclr.remote import local

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
    """The names of the downloaded files."""
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
    assert as_written(folder / "train.jsonl") == f"{URL}/train.jsonl"
    assert sorted(fetched) == sorted(FILES)
    assert local(place) == folder
    assert len(fetched) == len(FILES)


def test_a_new_version_gets_a_new_copy(memory: MemoryFileSystem) -> None:
    first = local(URL)
    memory.pipe("/a-bucket/my-data/train.jsonl", b"One")  # as long as before
    memory.rm("/a-bucket/my-data/taxonomy.tsv")
    second = local(URL)
    assert content(second) == {"train.jsonl": b"One", "sub/dev.jsonl": b"two"}
    assert content(first) == FILES  # a process may still read it
    memory.pipe("/a-bucket/my-data/train.jsonl", b"oNe")
    assert local(URL).exists()
    assert second.exists()
    assert not first.exists()


def test_what_changes_while_it_is_fetched_is_not_kept(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    get_file = MemoryFileSystem.get_file

    def overtaken(self, *arguments, **options):
        get_file(self, *arguments, **options)
        memory.pipe("/a-bucket/my-data/train.jsonl", b"new")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "get_file", overtaken)
        with pytest.raises(InputError) as refused:
            local(URL)
    assert (refused.value.path, refused.value.remedy) == (URL, "start again")
    assert content(local(URL))["train.jsonl"] == b"new"


def test_a_fetch_that_was_cut_short_is_made_up_for(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, fetched: list[str]
) -> None:
    get_file = MemoryFileSystem.get_file

    def cut(self, rpath, lpath, **options):
        if rpath.endswith("train.jsonl"):
            Path(lpath).write_bytes(b"o")
            raise KeyboardInterrupt
        return get_file(self, rpath, lpath, **options)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "get_file", cut)
        with pytest.raises(KeyboardInterrupt):
            local(URL)
    assert content(local(URL)) == FILES


def test_of_two_who_want_it_one_fetches(memory: MemoryFileSystem, fetched: list[str]) -> None:
    with ThreadPoolExecutor(2) as threads:
        folders = list(threads.map(local, [URL, URL]))
    assert len(set(folders)) == 1
    assert sorted(fetched) == sorted(FILES)


def test_what_is_not_there(memory: MemoryFileSystem) -> None:
    for arguments in (("memory://a-bucket/other",), (URL, ["*.safetensors"])):
        with pytest.raises(InputError) as refused:
            local(*arguments)
        assert refused.value.path == arguments[0]
        assert refused.value.remedy


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "a\\evil", "./evil"])
def test_names_that_lead_elsewhere_are_refused(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    info = {"size": 1, "type": "file", "created": "now"}
    monkeypatch.setattr(MemoryFileSystem, "find", lambda *_, **__: {f"/a-bucket/my-data/{name}": info})
    with pytest.raises(InputError) as refused:
        local(URL)
    assert (refused.value.path, repr(name) in refused.value.what) == (URL, True)


@pytest.mark.parametrize(
    "error", [PermissionError("Forbidden"), TimeoutError(), ValueError("at http://me:secret@host")]
)
def test_what_stores_refuse(memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(MemoryFileSystem, "find", fail)
    with pytest.raises(InputError) as refused:
        local(URL)
    assert refused.value.path == URL
    assert type(error).__name__ in refused.value.what
    assert "secret" not in refused.value.what
    assert refused.value.remedy


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
    with pytest.raises(MissingExtraError):
        local("s3://a-bucket/my-data")
    for url in ("gs://a-bucket/my-data", "nowhere://a/b"):
        with pytest.raises(InputError) as refused:
            local(url)
        assert refused.value.path == url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://an-id:a-secret@a-bucket/data", "s3://***@a-bucket/data"),
        ("s3://an-id:a-se/cret@a-bucket/data", "s3://***@a-bucket/data"),
        ("https://host/table.csv?X-Amz-Signature=a-secret", "https://host/table.csv"),
    ],
)
def test_secrets_are_refused_and_not_shown(url: str, shown: str) -> None:
    for place in (url, Path(url)):
        with pytest.raises(InputError) as refused:
            local(place)
        assert str(refused.value).startswith(f"{shown}: ")
        assert "secret" not in str(refused.value)
        assert as_written(place) == shown


@pytest.mark.parametrize("place", ["my-data", "/data/x", "owner/name", "C:/data", "a:b", "note: / this", "s3:"])
def test_paths_are_no_urls(place: str) -> None:
    assert url_of(place) is None
    assert as_written(place) == place


def test_only_bulk_prediction_writes_to_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = Path("s3://a-bucket/out")
    with pytest.raises(InputError):
        check_output(output)
    for write in (atomic_file, atomic_folder, lambda place: locked(place / "lock", "training", remedy="wait")):
        with pytest.raises(InputError), write(output):
            pass
    assert not list(tmp_path.iterdir())
