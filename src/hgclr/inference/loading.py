"""Load a model's folder: backend, tokenizer, label tree and what else a classifier needs.

A folder with ``model.onnx`` is read with onnxruntime, tokenizers and json alone; torch and transformers, which all
others are read with, need not be installed for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from hgclr.decisions.settings import FILE as DECISIONS
from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError, first_line, refuse_broken
from hgclr.files import read_bytes, read_json, recover_folder
from hgclr.inference.backends import Backend, OnnxBackend, TorchBackend
from hgclr.model_files import check_folder
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy
from hgclr.urls import url_of

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WANTED = ["*.json", "*.model", "*.onnx", "*.onnx.data", "*.safetensors", "*.txt"]
"""What is fetched: weights, graphs, tokenizers and settings; never pickles or code."""

HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def find_model(model: str | Path) -> Path:
    """Return the folder of a model; one with a URL or a hub name is fetched first, unless it is in the cache already.

    Without a connection, or with ``HF_HUB_OFFLINE=1``, the copy in the hub's cache is taken of one with a hub name.
    """
    if url_of(model) is not None:
        return local(model, WANTED)
    if not Path(model).is_dir():
        recover_folder(Path(model))
    if Path(model).is_dir():
        return Path(model)
    if not HUB_NAME.fullmatch(str(model)):
        raise _no_model(model, "no such folder, and no name on a hub")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(str(model), allow_patterns=WANTED))
    except (OSError, ValueError) as error:
        raise _no_model(model, first_line(error)) from error


def _no_model(model: str | Path, reason: str) -> InputError:
    remedy = "give the folder 'model' that hgclr train wrote, or a name that the hub has"
    return InputError(f"no model could be loaded from {model}: {reason}", remedy=remedy)


GRAPH, TOKENIZER, CONFIG = "model.onnx", "tokenizer.json", "config.json"
REMEDY = "write the folder again with hgclr export"
NO_TOKENIZER = "no tokenizer could be loaded"


@dataclass(frozen=True)
class LoadedModel:
    """What :class:`~hgclr.inference.HierarchicalClassifier` is made of, under the names it has there."""

    backend: Backend
    tokenizer: Tokenizer
    taxonomy: Taxonomy
    pad_token: int
    max_length: int
    decisions: Decisions
    cut_length: int | None = None
    pretrained_tokenizer: PreTrainedTokenizerBase | None = None


def is_onnx(model: str | Path) -> bool:
    """Tell whether a model is a folder that ``hgclr export`` wrote for onnxruntime."""
    return (Path(model) / GRAPH).is_file()


def trained_text_column(folder: Path) -> str | None:
    """Return the column that the texts of a model's documents stood in, if they were imported from a table."""
    column = _Fields(folder / CONFIG).values.get("text_column") if (folder / CONFIG).is_file() else None
    return column if isinstance(column, str) else None


def load_model(model: str | Path, device: str | None = None) -> LoadedModel:
    """Load a model.

    Args:
        model: a folder that ``hgclr train`` or ``hgclr export`` wrote, its URL in an object store, or a hub name.
        device: where torch runs; see :class:`~hgclr.inference.backends.TorchBackend`.
    """
    folder = find_model(model)
    check_folder(folder)
    onnx = is_onnx(folder)
    if onnx and device not in (None, "cpu"):
        raise InputError(
            f"an ONNX model runs on the CPU, not on {device!r}",
            path=model,
            remedy="leave the device out, or give the model that it was exported from",
        )
    with refuse_broken("no model could be loaded", path=folder, remedy=REMEDY):
        return _load_onnx(folder) if onnx else _load_torch(folder, device)


def _load_torch(folder: Path, device: str | None) -> LoadedModel:
    backend = TorchBackend(folder, device)
    from transformers import AutoTokenizer

    from hgclr.models.pretrained import load_pretrained

    with refuse_broken(NO_TOKENIZER, path=folder, remedy=REMEDY):
        tokenizer = load_pretrained(AutoTokenizer, folder)
    config = backend.model.config
    return in_memory(backend, tokenizer, _decisions(folder / DECISIONS, config.taxonomy, config.threshold))


def in_memory(
    backend: TorchBackend, tokenizer: PreTrainedTokenizerBase, decisions: Decisions | None = None
) -> LoadedModel:
    """Return what a classifier is made of, from a model and a tokenizer in memory."""
    config = backend.model.config
    if tokenizer.pad_token_id is None:
        raise InputError("the tokenizer has no padding token", remedy="give the model's own tokenizer")
    return LoadedModel(
        backend,
        tokenizer.backend_tokenizer,
        config.taxonomy,
        pad_token=tokenizer.pad_token_id,
        max_length=config.max_length,
        decisions=decisions or Decisions(config.taxonomy, thresholds=config.threshold),
        cut_length=config.cut_length,
        pretrained_tokenizer=tokenizer,
    )


def _load_onnx(folder: Path) -> LoadedModel:
    fields = _Fields(folder / CONFIG)
    taxonomy = fields.taxonomy()
    pad_token = fields.take("pad_token_id", _whole_number)
    max_length = fields.take("max_length", lambda value: _whole_number(value) and value > 0)
    cut_length = None
    if "cut_length" in fields.values:  # which exports of the first version have not
        cut_length = fields.take("cut_length", lambda value: value is None or (_whole_number(value) and value > 0))
    threshold = fields.take("threshold", lambda value: isinstance(value, float) and 0 < value < 1)
    with refuse_broken(NO_TOKENIZER, path=folder / TOKENIZER, remedy=REMEDY):
        tokenizer = Tokenizer.from_str(read_bytes(folder / TOKENIZER).decode())
    backend = OnnxBackend(folder / GRAPH)
    if backend.label_count != len(taxonomy):
        raise InputError(
            f"{backend.label_count} labels in {GRAPH}, {len(taxonomy)} in {CONFIG}", path=folder, remedy=REMEDY
        )
    decisions = _decisions(folder / DECISIONS, taxonomy, threshold)
    return LoadedModel(backend, tokenizer, taxonomy, pad_token, max_length, decisions, cut_length)


def _decisions(file: Path, taxonomy: Taxonomy, threshold: float) -> Decisions:
    return Decisions.read(file, taxonomy) if file.is_file() else Decisions(taxonomy, thresholds=threshold)


class _Fields:
    """The fields of a model's ``config.json``, which transformers would have to be imported to read as a whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = read_json(path, remedy=REMEDY)
        if not isinstance(self.values, dict):
            raise self.error(f"expected an object, got {self.values!r:.80}")

    def take(self, name: str, good: Callable[[Any], bool]) -> Any:
        if name not in self.values:
            raise self.error(f"no field {name!r}")
        if not good(self.values[name]):
            raise self.error(f"{name!r} is {self.values[name]!r:.80}")
        return self.values[name]

    def taxonomy(self) -> Taxonomy:
        """Return the label tree: ids in ``id2label``, parents and names beside them."""
        labels = self.take("id2label", lambda value: isinstance(value, dict) and _all_of(str, list(value.values())))
        if sorted(labels) != sorted(map(str, range(len(labels)))):
            raise self.error("'id2label' does not count from 0 without gaps")
        parents = self.take("label_parents", lambda value: _all_of(int, value))
        names = self.take("label_names", lambda value: value is None or _all_of(str, value))
        try:
            return Taxonomy([labels[str(index)] for index in range(len(labels))], parents, names)
        except InputError as error:
            raise self.error(error.what) from None

    def error(self, what: str) -> InputError:
        return InputError(what, path=self.path, remedy=REMEDY)


def _whole_number(value: Any) -> bool:
    return type(value) is int and value >= 0


def _all_of(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)
