"""How to load a folder of each kind, as code for its model card."""

from __future__ import annotations

import json
from typing import Literal

__all__ = ["Kind", "usage"]

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
