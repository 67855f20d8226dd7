"""The label tree of a report: a list to be unfolded and searched, with the scores of every label."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgclr.html_page import Html

__all__ = ["label_tree", "tree_script", "tree_style"]

FRAME = """<div class="labels" id="label-tree">
<div class="controls">
<label>Find <input type="search" name="find" placeholder="part of a name" autocomplete="off"></label>
<label>Order <select name="order">
<option value="tree">as in the tree</option><option value="worst">lowest F1 first</option>
<option value="frequent">most documents first</option><option value="name">by name</option>
</select></label>
<label><input type="checkbox" name="present" checked> only labels that occur</label>
<span class="scale" aria-hidden="true">F1 0 <i></i> 100</span>
<span class="quiet" role="status"></span>
</div>
<div class="box">
<div class="row heads" aria-hidden="true"><span class="name" style="--level: 1">label</span><span>documents</span>
<span>precision</span><span>recall</span><span>F1</span></div>
<ul role="tree" aria-label="Labels with their scores"></ul>
</div>
<noscript><p>The tree needs JavaScript; report.json has the same scores of every label.</p></noscript>
<script type="application/json" id="label-tree-data">{data}</script>
</div>"""


def label_tree(labels: Sequence[Mapping[str, Any]]) -> Html:
    """Return the tree; its rows are made in the browser, by :func:`tree_script`, from numbers in the page.

    Args:
        labels: as in report.json.
    """
    place = {label["id"]: index for index, label in enumerate(labels)}
    data = {
        "names": [label["name"] for label in labels],
        "parents": [-1 if label["parent"] is None else place[label["parent"]] for label in labels],
        "gold": [label["gold"] for label in labels],
        "predicted": [label["predicted"] for label in labels],
        "right": [label["true_positives"] for label in labels],
    }
    # No name may end the script element: JSON can spell its angle bracket otherwise.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Html(FRAME.replace("{data}", text))


def tree_style() -> str:
    """Return the style sheet of the tree."""
    return Path(__file__).with_name("label_tree.css").read_text(encoding="utf-8")


def tree_script() -> str:
    """Return the program of the tree."""
    return Path(__file__).with_name("label_tree.js").read_text(encoding="utf-8")
