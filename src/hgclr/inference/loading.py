"""Load a model folder: backend, tokenizer, label tree and decisions.

A folder with ``model.onnx`` needs onnxruntime and tokenizers; any other needs torch and transformers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from hgclr.decisions.settings import FILE, Decisions
from hgclr.errors import InputError, first_line, refuse_broken, url_of
from hgclr.files import read_bytes, read_json, recover_folder
from hgclr.inference.backends import Backend, OnnxBackend, TorchBackend
from hgclr.model_files import check_folder
from hgclr.remote import local
from hgclr.taxonomy import Taxonomy

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GRAPH, TOKENIZER, CONFIG = "model.onnx", "tokenizer.json", "config.json"
WANTED = ["*.json", "*.model", "*.onnx", "*.onnx.data", "*.safetensors", "*.txt"]
"""Files to download: weights, graphs, tokenizers and settings; never pickles or code."""
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
REMEDY = "write the folder again with hgclr export"


def find_model(model: str | Path) -> Path:
    """Return the folder of a model; a URL or a hub name is downloaded, unless it is cached.

    Offline, or with ``HF_HUB_OFFLINE=1``, a hub name refers to the copy in the hub's cache.
    """
    if url_of(model) is not None:
        return local(model, WANTED)
    if not Path(model).is_dir():
        recover_folder(Path(model))
    if Path(model).is_dir():
        return Path(model)
    reason = "no such folder, and no hub name"
    cause: Exception | None = None
    if HUB_NAME.fullmatch(str(model)):
        from huggingface_hub import snapshot_download

        try:
            return Path(snapshot_download(str(model), allow_patterns=WANTED))
        except (OSError, ValueError) as error:
            reason, cause = first_line(error), error
    remedy = "give the folder 'model' that hgclr train wrote, or the name of a model on the hub"
    raise InputError(f"cannot load a model from {model}: {reason}", remedy=remedy) from cause


@dataclass(frozen=True)
class LoadedModel:
    """The arguments of :class:`~hgclr.inference.HierarchicalClassifier`."""

    backend: Backend
    tokenizer: Tokenizer
    taxonomy: Taxonomy
    pad_token: int
    max_length: int
    cut_length: int | None
    decisions: Decisions
    pretrained_tokenizer: PreTrainedTokenizerBase | None = None


def is_onnx(model: str | Path) -> bool:
    """Return whether a model is a folder that ``hgclr export`` wrote for onnxruntime."""
    return (Path(model) / GRAPH).is_file()


def trained_text_column(folder: Path) -> str | None:
    """Return the text column of the table that the training documents were imported from, or None."""
    column = _read_config(folder / CONFIG).get("text_column") if (folder / CONFIG).is_file() else None
    return column if isinstance(column, str) else None


def load_model(model: str | Path, device: str | None = None) -> LoadedModel:
    """Load a folder that ``hgclr train`` or ``hgclr export`` wrote, given by path, URL or hub name.

    ``device`` is that of :class:`~hgclr.inference.backends.TorchBackend`.
    """
    folder = find_model(model)
    check_folder(folder)
    onnx = is_onnx(folder)
    if onnx and device not in (None, "cpu"):
        raise InputError(
            f"an ONNX model runs on the CPU, not on {device!r}",
            path=model,
            remedy="omit the device, or give the model that it was exported from",
        )
    with refuse_broken("cannot load the model", path=folder, remedy=REMEDY):
        return _load_onnx(folder) if onnx else _load_torch(folder, device)


def _load_torch(folder: Path, device: str | None) -> LoadedModel:
    backend = TorchBackend(folder, device)
    from transformers import AutoTokenizer

    from hgclr.models.pretrained import load_pretrained

    with refuse_broken("cannot load the tokenizer", path=folder, remedy=REMEDY):
        tokenizer = load_pretrained(AutoTokenizer, folder)
    config = backend.model.config
    return in_memory(backend, tokenizer, _decisions(folder, config.taxonomy, config.threshold))


def in_memory(
    backend: TorchBackend, tokenizer: PreTrainedTokenizerBase, decisions: Decisions | None = None
) -> LoadedModel:
    """Return the arguments of a classifier for a model and a tokenizer in memory."""
    config = backend.model.config
    if tokenizer.pad_token_id is None:
        raise InputError("the tokenizer has no padding token", remedy="give the tokenizer of the model")
    return LoadedModel(
        backend,
        tokenizer.backend_tokenizer,
        config.taxonomy,
        pad_token=tokenizer.pad_token_id,
        max_length=config.max_length,
        cut_length=config.cut_length,
        decisions=decisions or Decisions(config.taxonomy, thresholds=config.threshold),
        pretrained_tokenizer=tokenizer,
    )


def _load_onnx(folder: Path) -> LoadedModel:
    """Load an ONNX export, without transformers."""
    path = folder / CONFIG
    fields = _read_config(path)
    for name, good in FIELDS.items():
        if name not in fields and name not in OPTIONAL:
            raise InputError(f"the field {name!r} is missing", path=path, remedy=REMEDY)
        if not good(fields.get(name)):
            raise InputError(f"the field {name!r} is invalid: {fields[name]!r:.80}", path=path, remedy=REMEDY)
    labels = fields["id2label"]
    if sorted(labels) != sorted(map(str, range(len(labels)))):
        raise InputError("the indices of 'id2label' do not run from 0 without gaps", path=path, remedy=REMEDY)
    ids = [labels[str(index)] for index in range(len(labels))]
    try:
        taxonomy = Taxonomy(
            ids,
            fields["label_parents"],
            fields["label_names"],
            alternatives=fields.get("label_alternatives"),
            codes=fields.get("label_codes"),
            more_parents=fields.get("label_more_parents"),
        )
    except InputError as error:
        raise InputError(error.what, path=path, remedy=REMEDY) from None
    with refuse_broken("cannot load the tokenizer", path=folder / TOKENIZER, remedy=REMEDY):
        tokenizer = Tokenizer.from_str(read_bytes(folder / TOKENIZER).decode())
    backend = OnnxBackend(folder / GRAPH)
    if backend.label_count != len(taxonomy):
        what = f"{GRAPH} has {backend.label_count} labels, {CONFIG} has {len(taxonomy)}"
        raise InputError(what, path=folder, remedy=REMEDY)
    decisions = _decisions(folder, taxonomy, fields["threshold"])
    sizes = fields["pad_token_id"], fields["max_length"], fields["cut_length"]
    return LoadedModel(backend, tokenizer, taxonomy, *sizes, decisions)


def _read_config(path: Path) -> dict[str, Any]:
    fields = read_json(path, remedy=REMEDY)
    if not isinstance(fields, dict):
        raise InputError(f"expected a JSON object, got {fields!r:.80}", path=path, remedy=REMEDY)
    return fields


def _decisions(folder: Path, taxonomy: Taxonomy, threshold: float) -> Decisions:
    file = folder / FILE
    return Decisions.read(file, taxonomy) if file.is_file() else Decisions(taxonomy, thresholds=threshold)


def _lists_of(kind: type, values: Any) -> bool:
    return values is None or (isinstance(values, list) and all(_all_of(kind, each) for each in values))


def _all_of(kind: type, values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is kind for value in values)


FIELDS: dict[str, Callable[[Any], bool]] = {
    "id2label": lambda value: isinstance(value, dict) and _all_of(str, list(value.values())),
    "label_parents": lambda value: _all_of(int, value),
    "label_names": lambda value: value is None or _all_of(str, value),
    "label_alternatives": lambda value: _lists_of(str, value),
    "label_codes": lambda value: value is None or _all_of(str, value),
    "label_more_parents": lambda value: _lists_of(int, value),
    "pad_token_id": lambda value: type(value) is int and value >= 0,
    "max_length": lambda value: type(value) is int and value > 0,
    "cut_length": lambda value: value is None or (type(value) is int and value > 0),
    "threshold": lambda value: isinstance(value, float) and 0 < value < 1,
}
"""The fields of ``config.json`` that an ONNX model has, with a check for each."""
OPTIONAL = ("label_alternatives", "label_codes", "label_more_parents")
"""Fields that older models lack."""
