"""``hgclr train``: train a model on a data folder, or as a YAML file says."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hgclr.cli.console import is_first_rank, quiet_libraries, standard_error
from hgclr.cli.options import Engine, RayAddress, Settings, engine_options
from hgclr.errors import InputError, require_extra
from hgclr.urls import as_written

if TYPE_CHECKING:
    from hgclr.training.run import TrainingResult

__all__ = ["train"]


def train(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA|CONFIG.yaml",
            help="A data folder or its URL (s3://…), or a file of settings: data, model, training; hgclr settings lists"
            " them.",
        ),
    ] = None,
    settings: Settings = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write; by default runs/ and the name of the folder or file."),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Continue training from this training-model, with its encoder. If the data has another label tree,"
            " labels that are in both keep their weights, and new ones start from their names and parents.",
        ),
    ] = None,
    changes: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --from: what became of labels whose ids do not show it, as for hgclr taxonomy diff.",
        ),
    ] = None,
    calibrate: Annotated[
        bool | None,
        typer.Option(
            "--calibrate/--no-calibrate",
            help="Tune decisions (rule, thresholds, probabilities) on dev at the end and save them with the model."
            " On by default in the preset 'default' only.",
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the newest complete checkpoint in the output folder.")
    ] = False,
    engine: Annotated[
        Engine, typer.Option(help="local trains in this process, or in those of torchrun; ray on Ray Train.")
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="With --engine ray: processes that share each batch; default: one for each GPU or core, as far as the"
            " batch can be divided.",
        ),
    ] = None,
    ray_address: RayAddress = None,
) -> None:
    """Train a model, select its best epoch on dev, score test once, and save a plain text encoder with a head.

    The output folder then holds **model** (for hgclr predict, evaluate), **training-model** (with the label
    side), **metrics.json** (scores, settings, versions, machine), **config.yaml** and **checkpoints**.

    Example: **hgclr train my-data**

    Example: **hgclr train my-data --set training.effort=head --output runs/quick**
    """
    if source is None:
        raise InputError(
            "nothing to train on",
            remedy="give a data folder (hgclr data import makes one of a table) or a file of settings (hgclr settings"
            " lists them)",
        )
    require_extra("torch", extra="train", capability="Training")
    from hgclr.training.run_checks import check_output, check_resumed, check_run, restarted, state_of
    from hgclr.training.settings import RunConfig

    options = {
        "training.calibrate": None if calibrate is None else str(calibrate).lower(),
        "model.start": start,
        "model.label_changes": changes,
    }
    chosen = [f"{name}={value}" for name, value in options.items() if value is not None]
    cluster = engine_options(engine, workers, ray_address)
    run = RunConfig.read(source, [*(settings or []), *chosen], output)
    check_run(run)
    errors, resume = standard_error(), resume or restarted()
    if not resume:
        check_output(run)
    else:
        check_resumed(run)
        if (state := state_of(run.output)) != "stopped":
            nothing = "this run is finished" if state == "finished" else "training starts from the beginning"
            errors.print(f"nothing to resume in {run.output}: {nothing}", soft_wrap=True, markup=False)
    # Before torch is imported: each rank would warn that an encoder could have parameters without gradient.
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from hgclr.cli.console import Console
    from hgclr.cli.progress import TrainingProgress
    from hgclr.cli.tables import print_calibrated, print_scores
    from hgclr.training import train as run_training

    quiet_libraries()
    try:
        if engine == "ray":
            from hgclr.training.on_ray import train_on_ray

            result = train_on_ray(run, resume=resume, **cluster)
        else:
            with TrainingProgress(errors, run.model.architecture) as progress:
                result = run_training(
                    run,
                    resume=resume,
                    callbacks=[progress],
                    on_documents=progress.on_documents,
                    on_start=progress.on_start,
                )
    except KeyboardInterrupt:
        errors.print(how_to_go_on(run.output), soft_wrap=True, markup=False)
        raise typer.Exit(130) from None
    if not is_first_rank():
        return
    rows: dict[str, dict[str, Any]] = {
        split: result.metrics[split] for split in ("dev", "test") if split in result.metrics
    }
    console = Console()
    title = f"{run.model.architecture} on {as_written(run.data.path)}"
    if "tuned" in result.metrics:
        rows = {f"{split}, at 0.5": scores for split, scores in rows.items()}
        if "test" in result.metrics["tuned"]:
            rows["test, tuned"] = result.metrics["tuned"]["test"]
    if rows:
        print_scores(title, rows, console)
    if result.calibrated is not None:
        print_calibrated(result.calibrated, console)
    lines = [f"model: {result.model}", "next:", *(f"  {command}" for command in next_commands(run.data.path, result))]
    for line in lines:
        console.print(line, highlight=False, markup=False, soft_wrap=True)


def how_to_go_on(output: Path) -> str:
    """Return what to say to somebody who has stopped a training."""
    from hgclr.training.run_checks import state_of

    if state_of(output) == "empty":
        return "stopped before the first checkpoint: nothing is kept"
    words = ["hgclr", *sys.argv[1:]]
    return f"stopped; go on with: {shlex.join(words if '--resume' in words else [*words, '--resume'])}"


def next_commands(data: Path, result: TrainingResult) -> list[str]:
    """Return what one would do with a model that has just been trained."""
    model, commands = str(result.model), []
    if "test" in result.metrics:
        commands.append(["hgclr", "evaluate", model, as_written(data)])
    commands += [["hgclr", "predict", model, "your text"], ["hgclr", "serve", model]]
    return [shlex.join(words) for words in commands]
