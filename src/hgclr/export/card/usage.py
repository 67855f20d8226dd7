"""How to load a folder of each kind, as code for its model card."""

from __future__ import annotations

import json
from typing import Literal

__all__ = ["Kind", "usage"]

Kind = Literal["model", "stock", "onnx", "onnx-int8"]

PIPELINE = """\
from transformers import pipeline

classify = pipeline("text-classification", model={place}, top_k=None, truncation=True)
print(classify(["a text"]))"""

OURS = """\
from hgclr import HierarchicalClassifier

classifier = HierarchicalClassifier.from_pretrained({place})
for label in classifier.predict(["a text"])[0].labels:
    print(label.path, label.probability)"""


def usage(kind: Kind, place: str) -> list[str]:
    """Return the lines of Markdown that show how to use a model.

    Args:
        kind: what the folder holds: ``stock`` a class of transformers' own, ``model`` one of ours.
        place: the folder or hub name to put into the code.
    """
    lines = []
    if kind == "stock":
        lines += [
            "With transformers alone; it gives every label by itself a probability:",
            "",
            *_code(PIPELINE, place),
            "",
            "In fp32 or bfloat16. Not in fp16, where the numbers in the head overflow.",
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
