"""``hgclr import-published``: take over a checkpoint of the authors' published program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["import_published"]


def import_published(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Such as checkpoint_best_macro.pt of the published program.")
    ],
    data_path: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Its data folder, with bert_value_dict.pt and slot.pt.")
    ],
    encoder: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The BERT it was trained on, for configuration and tokenizer: folder or name."
        ),
    ],
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where to write; a new or empty folder.")],
) -> None:
    """Turn a checkpoint of the authors' published program into a model of ours.

    The output folder then holds **model** (for hgclr predict, evaluate) and **training-model** (with the label
    side, for training on). Logits stay the same. The files are read as data; code in them is refused, never run.
    """
    from hgclr.errors import require_extra

    require_extra("torch", extra="train", capability="Importing a published checkpoint")
    from rich.console import Console

    from hgclr.cli.console import quiet_libraries
    from hgclr.export.published import import_published as run_import

    quiet_libraries()
    result = run_import(checkpoint, data_path, encoder, output)
    lines = [
        f"{len(result.taxonomy)} labels, depth {result.taxonomy.depth}",
        *(f"{name}: {value}" for name, value in result.settings.items()),
        f"model: {result.model}",
        f"training model: {result.training_model}",
    ]
    console = Console()
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)
