"""Bulk prediction for ``hgclr predict``: when it is meant, its progress bar, and what it says in the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hgclr.bulk import BulkResult, Progress

__all__ = ["is_bulk", "predict_in_bulk"]


def is_bulk(sources: Sequence[str], output: str | None, engine: str | None, file_format: str | None) -> bool:
    """Tell whether many files are meant, or at least a folder of results."""
    from hgclr.bulk.inputs import is_pattern

    if not sources or list(sources) == ["-"]:
        return False
    if len(sources) > 1 or engine is not None or file_format is not None:
        return True
    into_folder = output is not None and (output.endswith(("/", "\\")) or Path(output).is_dir())
    return into_folder or Path(sources[0]).is_dir() or is_pattern(sources[0])


def predict_in_bulk(model: str, sources: Sequence[str], output: str | None, **options: Any) -> None:
    """Label files into a folder, with a bar on standard error."""
    from hgclr.bulk import predict_files
    from hgclr.cli.console import progress_bar, quiet_libraries, standard_error
    from hgclr.errors import InputError, require_extra
    from hgclr.inference.loading import is_onnx

    if output is None:
        raise InputError("the results of bulk prediction go to a folder", remedy="name one with --output")
    if "-" in sources:
        raise InputError("standard input is no file", remedy="give files, folders or patterns as --input")
    if options["ray_address"] is not None and options["engine"] != "ray":
        raise InputError("--ray-address is for the engine ray", remedy="add --engine ray")
    if not is_onnx(model):
        require_extra("torch", extra="train", capability="A model that is no ONNX folder")
        quiet_libraries()
    with progress_bar() as bar:
        task = bar.add_task("rows", total=None)

        def show(progress: Progress) -> None:
            place = f"{progress.file.name} ({progress.number} of {progress.files})"
            bar.update(task, completed=progress.rows, total=max(progress.rows, progress.expected), description=place)

        result = predict_files(model, sources, output, progress=show, **options)
    standard_error().print(_summary(result, output), soft_wrap=True, markup=False)


def _summary(result: BulkResult, output: str) -> str:
    parts = [f"{result.rows:,} row{'s' * (result.rows != 1)} of {_files(len(result.written))} labelled into {output}"]
    if result.kept:
        parts.append(f"{_files(len(result.kept))} had been finished before")
    if result.bad_rows:
        parts.append(f"{result.bad_rows:,} without a usable text, see the column 'error'")
    return "; ".join(parts)


def _files(count: int) -> str:
    return f"{count:,} file{'s' * (count != 1)}"
