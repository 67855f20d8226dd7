"""Markdown from names that are data: whatever is in a label's name is shown, and nothing of it is markup."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.files import atomic_file

__all__ = ["ModelCard", "Score", "TrainingRecord", "escape", "read_scores", "read_training", "table", "write_card"]

# What starts markup, a table cell, an address or a mention within a line; what only counts at its beginning may stay.
MARKUP = re.compile(r"([\\`*_\[\]<>#|~&$@:]|(?<=www)\.)", re.IGNORECASE)


def escape(text: str) -> str:
    """Return a text that Markdown shows as it is, on one line.

    Example:
        >>> escape("R&D | *new*")
        'R\\\\&D \\\\| \\\\*new\\\\*'
    """
    return MARKUP.sub(r"\\\1", " ".join(text.split()))


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; cells must be Markdown already."""
    return [_row(header), _row(["---"] * len(header)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


logger = logging.getLogger(__name__)
RECORDS_FILE = "metrics.json"


@dataclass(frozen=True)
class Score:
    """Scores of one split.

    Args:
        of: what was scored, such as "this folder".
        data: name of the data.
        split: which split of it.
        documents: how many there were.
        micro, macro: F1 as fractions.
    """

    of: str
    data: str
    split: str
    documents: int
    micro: float
    macro: float

    @classmethod
    def from_json(cls, scores: Mapping[str, Any], *, of: str, data: str, split: str) -> Self:
        """Take what :meth:`hgclr.evaluation.metrics.MultiLabelScores.to_json` gives.

        Raises:
            KeyError, TypeError, ValueError: if it is something else.
        """
        micro, macro = (float(scores[name]["f1"]) for name in ("micro", "macro"))
        # Of a path only the name: the rest says something of one machine alone.
        return cls(of, Path(data).name, str(split), int(scores["documents"]), micro, macro)


@dataclass(frozen=True)
class TrainingRecord:
    """How a model was trained.

    Args:
        encoder: name of the text encoder it started from; None if it was trained on from another model.
        architecture: which system, such as ``hgclr``.
        data: name of the data folder.
        documents: in each split.
        scores: on dev and test, at the end of training.
    """

    encoder: str | None
    architecture: str
    data: str
    documents: Mapping[str, int]
    scores: tuple[Score, ...]


def read_training(model: str | Path, labels: int) -> TrainingRecord | None:
    """Return what ``metrics.json`` beside a model's folder tells; None if there is none, or it is of another model.

    Args:
        model: the folder ``model`` of a run.
        labels: how many the model has.
    """
    path = Path(model).resolve().parent / RECORDS_FILE
    if not Path(model).is_dir() or not path.is_file():
        return None
    try:
        metrics = json.loads(path.read_text(encoding="utf-8"))
        if metrics["labels"] != labels:
            raise ValueError(f"it is of a model with {metrics['labels']} labels, this one has {labels}")
        settings, data = metrics["run"]["model"], str(metrics["run"]["data"]["path"])
        return TrainingRecord(
            None if settings.get("start") else Path(settings["encoder"]).name,
            str(settings["architecture"]),
            Path(data).name,
            {str(split): int(count) for split, count in metrics["documents"].items()},
            tuple(
                Score.from_json(metrics[split], of="after training", data=data, split=split)
                for split in ("dev", "test")
                if split in metrics
            ),
        )
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        logger.warning("the model card leaves out %s: %s", path, error)
        return None


def read_scores(path: Path) -> Score:
    """Read the scores that ``hgclr evaluate --json`` wrote, or the ``report.json`` of ``hgclr evaluate --report``.

    Raises:
        InputError: if the file cannot be read, or is something else.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Score.from_json(
            content["scores"], of=Path(content["model"]).name, data=content["data"], split=content["split"]
        )
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=path) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"no scores of hgclr evaluate: {type(error).__name__} {error}",
            path=path,
            remedy="give what hgclr evaluate --json wrote, or the report.json of --report",
        ) from None


Kind = Literal["model", "stock", "sentence-transformers", "onnx", "onnx-int8"]
PIPELINE = """\
from transformers import pipeline

classify = pipeline("text-classification", model={place}, top_k=None, truncation=True)
print(classify(["a text"]))"""
ENCODE = """\
import numpy as np
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({place})
labels = model[0].auto_model.config.id2label
probabilities = 1 / (1 + np.exp(-model.encode(["a text"])))  # encode gives logits
print([labels[label] for label in np.flatnonzero(probabilities[0] > 0.5)])"""
OURS = """\
from hgclr import HierarchicalClassifier

classifier = HierarchicalClassifier.from_pretrained({place})
for label in classifier.predict(["a text"])[0].labels:
    print(label.path, label.probability)"""
NOT_FOLDED = "Thresholds of the labels and the tree are not part of that: they are in `decisions.json`."
FOLDED = (
    "Each label's threshold, and its temperature if the model is calibrated, is folded into the bias: a label is given"
    " above one half, which is a logit above 0. So these numbers are shifted scores, not probabilities. Decoding is not"
    " part of it: a label may be given without its parent."
)


def usage(kind: Kind, place: str, *, folded: bool = False) -> list[str]:
    """Return the lines of Markdown that show how to use a model.

    Args:
        kind: what the folder holds: ``stock`` a class of transformers' own, ``sentence-transformers`` its modules,
            ``model`` one of ours.
        place: the folder or hub name to put into the code.
        folded: whether thresholds are in the bias.
    """
    lines = []
    if kind == "stock":
        lines += [
            "With transformers alone; it gives every label by itself a probability:",
            "",
            *_code(PIPELINE, place),
            "",
            "In fp32 or bfloat16. Not in fp16, where the numbers in the head overflow.",
        ]
    elif kind == "sentence-transformers":
        lines += [
            "With sentence-transformers alone; it gives every label by itself a logit:",
            "",
            *_code(ENCODE, place),
        ]
    if kind in ("stock", "sentence-transformers"):
        lines += [
            "",
            FOLDED if folded else NOT_FOLDED,
            "",
            "With hgclr (`pip install 'hgclr[train]'`), which decides as below and gives labels with their paths:",
            "",
        ]
    elif kind == "model":
        lines += ["With hgclr (`pip install 'hgclr[train]'`):", ""]
    else:
        lines += ["With hgclr on onnxruntime; torch is not needed (`pip install 'hgclr[onnx]'`):", ""]
    lines += _code(OURS, place)
    if kind == "model":
        lines += ["", "In transformers, after `import hgclr.models`:", "", *_code(PIPELINE, place)]
    return lines


def _code(template: str, place: str) -> list[str]:
    return ["```python", *template.format(place=json.dumps(place, ensure_ascii=False)).splitlines(), "```"]


FILE = "README.md"
LIBRARIES: dict[Kind, str] = {"stock": "transformers", "sentence-transformers": "sentence-transformers"}
"""What loads a folder, where it is not hgclr."""
TOP_LABELS = 12
"""Labels of the first level that are named."""
CITATION = """\
@inproceedings{wang-etal-2022-incorporating,
  title = {Incorporating Hierarchy into Text Encoder: a Contrastive Learning Approach for Hierarchical Text Classification},
  author = {Wang, Zihan and Wang, Peiyi and Huang, Lianzhe and Sun, Xin and Wang, Houfeng},
  booktitle = {Proceedings of the 60th Annual Meeting of the Association for Computational Linguistics (Volume 1: Long Papers)},
  year = {2022},
  url = {https://aclanthology.org/2022.acl-long.491}
}"""  # noqa: E501


@dataclass(frozen=True)
class ModelCard:
    """What a model card tells.

    Args:
        kind: what the folder holds, see :func:`~hgclr.export.card.usage.usage`.
        name: what to call the model.
        decisions: how it decides, with its label tree.
        max_length: tokens of a text that it reads.
        training: how it was trained, if that is known.
        scores: measured ones; those of ``training`` are added.
        licence: identifier of the licence that its owner gives it.
        folded: whether thresholds are in its bias, for programs that know of none.
    """

    kind: Kind
    name: str
    decisions: Decisions
    max_length: int
    training: TrainingRecord | None = None
    scores: Sequence[Score] = ()
    licence: str | None = None
    folded: bool = False

    def text(self) -> str:
        """Return the card as Markdown, with the fields that model hubs read in front."""
        sections = {
            "": self._introduction(),
            "Use": usage(self.kind, self.name, folded=self.folded),
            "Labels": self._labels(),
            "How it decides": self._deciding(),
            "Training": self._training(),
            "Scores": self._scores(),
            "Limits": self._limits(),
            "Licence": [self._licence()],
            "Citation": ["```bibtex", *CITATION.splitlines(), "```"],
        }
        lines = [*self._fields(), "", f"# {escape(self.name)}"]
        for heading, body in sections.items():
            lines += ["", *([f"## {heading}", ""] if heading else []), *body]
        return "\n".join(lines) + "\n"

    def _fields(self) -> list[str]:
        """Return the YAML block; a JSON text is a YAML one."""
        onnx = self.kind.startswith("onnx")
        fields = {
            "library_name": LIBRARIES.get(self.kind, "hgclr"),
            "pipeline_tag": "text-classification",
            "license": self.licence or "other",
            **({} if self.licence else {"license_name": "unspecified"}),
            "tags": ["hgclr", "hierarchical-text-classification", *(["onnx"] if onnx else [])],
        }
        return ["---", *(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()), "---"]

    def _introduction(self) -> list[str]:
        taxonomy = self.decisions.taxonomy
        tree = f"a tree of {len(taxonomy):,} labels in {taxonomy.depth} levels"
        return [f"Sorts texts into {tree}. Written by hgclr {version('hgclr')}."]

    def _labels(self) -> list[str]:
        taxonomy = self.decisions.taxonomy
        rows = [(str(depth), f"{len(level):,}") for depth, level in enumerate(taxonomy.levels, start=1)]
        top = [taxonomy.names[label] for label in taxonomy.levels[0].tolist()]
        more = f" and {len(top) - TOP_LABELS:,} more" if len(top) > TOP_LABELS else ""
        named = ", ".join(escape(name) for name in top[:TOP_LABELS])
        return [*table(("level", "labels"), rows), "", f"At the top: {named}{more}. All are in `config.json`."]

    def _deciding(self) -> list[str]:
        found = self.decisions.provenance
        summary = self.decisions.summary()
        lines = [f"{summary[0].upper()}{summary[1:]}."]
        thresholds = self.decisions.decoder.thresholds
        if len(np.unique(thresholds)) > 1:
            lines += [
                "",
                f"Thresholds: median {float(np.median(thresholds)):.3g}; each label's is in `decisions.json`.",
            ]
        if found:
            settled = [(str(name).replace("_", " "), _plain(value)) for name, value in found.items()]
            rows = [(escape(name), escape(value)) for name, value in settled]
            lines += ["", "Found by `hgclr calibrate`:", "", *table(("", ""), rows)]
        return lines

    def _training(self) -> list[str]:
        record = self.training
        if record is None:
            return ["Not recorded."]
        documents = ", ".join(f"{count:,} {escape(split)}" for split, count in record.documents.items())
        start = "another model" if record.encoder is None else f"the encoder {escape(record.encoder)}"
        return [
            f"System: {escape(record.architecture)}, from {start}. Data: {escape(record.data)} ({documents} documents)."
        ]

    def _scores(self) -> list[str]:
        scores = [*self.scores, *(() if self.training is None else self.training.scores)]
        if not scores:
            return ["Not recorded."]
        rows = [
            (
                escape(score.of),
                escape(score.data),
                escape(score.split),
                f"{score.documents:,}",
                f"{100 * score.micro:.2f}",
                f"{100 * score.macro:.2f}",
            )
            for score in scores
        ]
        lines = table(("what", "data", "split", "documents", "Micro-F1", "Macro-F1"), rows)
        if self.training is not None and self.training.scores:
            lines += ["", "*After training* is with one threshold for all labels, before anything was calibrated."]
        return lines

    def _limits(self) -> list[str]:
        lines = [
            f"- Of a text, the first {self.max_length} tokens are read.",
            "- It knows the labels above and no others: a text on something else gets the nearest of them, or none.",
            "- Scores hold for texts like those it was scored on; on others, score it again (`hgclr evaluate`).",
        ]
        if self.kind == "onnx-int8":
            lines.append("- Weights are rounded to int8: labels whose probability is near a threshold may change.")
        return lines

    def _licence(self) -> str:
        return escape(self.licence) if self.licence else "Not stated; ask whoever gave you the model."


def _plain(value: object) -> str:
    """Return a value of a JSON file for people."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {inside}" for name, inside in value.items())
    return str(value)


def write_card(folder: Path, card: ModelCard) -> None:
    """Write ``README.md`` into a model's folder.

    Raises:
        InputError: if it cannot be written.
    """
    try:
        with atomic_file(folder / FILE) as path:
            path.write_text(card.text(), encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", path=folder / FILE) from error
