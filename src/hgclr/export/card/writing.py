"""Write a model card: what the model is, how to use it, how well it does, where it ends, whom to cite."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

from hgclr.decisions.settings import Decisions
from hgclr.errors import InputError
from hgclr.export.card.markdown import escape, table
from hgclr.export.card.records import Score, TrainingRecord
from hgclr.export.card.usage import Kind, usage
from hgclr.files import atomic_file

__all__ = ["FILE", "ModelCard", "write_card"]

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
        found = self.decisions.found
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
