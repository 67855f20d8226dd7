"""``hgclr import-published``: a checkpoint of the authors' program as a model of hgclr."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgclr.cli.console import Console, quiet_libraries
from hgclr.cli.options import NewFolder, folder, option
from hgclr.errors import require_extra


def import_published(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Such as checkpoint_best_macro.pt of the published program.")
    ],
    data_path: Annotated[Path, folder("Its data folder, with bert_value_dict.pt and slot.pt.")],
    encoder: Annotated[
        str,
        option("The BERT it was trained on, for configuration and tokenizer: a folder or a name.", metavar="NAME"),
    ],
    output: NewFolder,
) -> None:
    """Turn a checkpoint of the authors' published program into a model of hgclr.

    The output folder then holds **model** (for hgclr predict and evaluate) and **training-model** (with the label side,
    to continue training from). Logits and loss terms stay the same; Graphormer of any depth, GCN, GAT and graph 0 are
    known. The files are read as data; code in them is refused, never run.

    Example: **hgclr import-published checkpoint_best_macro.pt --data-path data/wos --encoder bert-base-uncased --output
    published**

    Next: **hgclr evaluate published/model my-data**
    """
    require_extra("torch", extra="train", capability="Importing a published checkpoint")
    from hgclr.paper.published import import_published as run_import

    quiet_libraries()
    result = run_import(checkpoint, data_path, encoder, output)
    lines = [
        f"{len(result.taxonomy)} labels, depth {result.taxonomy.depth}",
        *(f"{name}: {value}" for name, value in result.settings.items()),
        f"model: {result.model}",
        f"training model: {result.training_model}",
    ]
    for line in lines:
        Console().say(line)
