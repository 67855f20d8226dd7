"""``hgclr reproduce figure3`` and ``figure5``: the paper's figures from trained models."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hgclr.cli.console import print_written, progress_bar, quiet_libraries, standard_error
from hgclr.cli.options import Reading, reading_options
from hgclr.errors import InputError, require_extra
from hgclr.files import read_bytes

if TYPE_CHECKING:
    from hgclr.taxonomy import Taxonomy

__all__ = ["figure3", "figure5"]

Output = Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to; other files in it are kept.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]


def figure5(
    flat: Annotated[Path, typer.Option(metavar="DIR", help="Folder 'model' of a run with architecture flat.")],
    hgclr: Annotated[Path, typer.Option(metavar="DIR", help="Folder 'model' of a run with architecture hgclr.")],
    output: Output,
    seed: Seed = 0,
) -> None:
    """Map the label vectors of the flat model and of HGCLR side by side, coloured by parent.

    Writes **figure5.png**, **figure5.svg** and **figure5.json**: a t-SNE of the rows of each model's linear head, and
    two numbers for what the eye sees, each beside what it is when parents are dealt out at random. The silhouette by
    parent (-1 to 1, high is good) tells whether siblings lie together and families apart; the mean rank of the father
    (1 is best) at which place among all other labels a label's father comes.

    Heads that start from the labels' names know the families before training. To test what training makes of them,
    take models whose heads started from random weights, as under the paper's presets: **hgclr reproduce table2
    --preset published --rows bert,hgclr --keep-models**.

    Example: **hgclr reproduce figure5 --flat runs-published/bert-1/model --hgclr runs-published/hgclr-1/model --output
    figures**
    """
    from rich.table import Table

    from hgclr.cli.console import Console

    for module in ("torch", "sklearn", "matplotlib"):
        require_extra(module, extra="paper", capability="Figure 5")
    from hgclr.hardware import machine
    from hgclr.paper.label_map import map_models, write_label_maps

    quiet_libraries()
    from hgclr.files import check_output

    check_output(output)
    folders = {"flat": flat, "HGCLR": hgclr}
    with standard_error().status("mapping the label vectors"):
        maps = map_models(folders, seed=seed)
        report = {"models": {name: _short(folder) for name, folder in folders.items()}, "machine": machine()}
        files = write_label_maps(maps, output, report)
    table = Table(title="Do the label vectors show the tree?", title_justify="left", title_style="bold")
    for heading in ("", "silhouette by parent", "shuffled", "mean rank of the father", "shuffled"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, one in maps.items():
        silhouette, rank = one.silhouette, one.father_rank
        table.add_row(
            name,
            *(("—", "—") if silhouette is None else (f"{silhouette.value:.3f}", silhouette.shuffled(3))),
            f"{rank.value:.1f} of {len(one.taxonomy) - 1}",
            rank.shuffled(1),
        )
    Console(highlight=False).print(table)
    print_written(files)


@reading_options
def figure3(
    model: Annotated[Path, typer.Option(metavar="DIR", help="Folder 'training-model' of a run of HGCLR.")],
    output: Output,
    reading: Reading,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="Data folder to take documents from.")] = None,
    split: Annotated[str, typer.Option(help="Which split of it: train, dev or test.")] = "test",
    documents: Annotated[int, typer.Option(min=1, help="How many documents of it, drawn at random.")] = 5,
    text: Annotated[
        list[str] | None, typer.Option(help="A text to use instead of documents; repeatable. Needs --labels.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--input", metavar="FILE", help="A file of texts to use instead, one per line. Needs --labels."),
    ] = None,
    labels: Annotated[
        str | None,
        typer.Option(help="Labels of every text: ids or paths, separated by ';'; their ancestors are added."),
    ] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws to show one by one.")] = 3,
    samples: Annotated[int, typer.Option(min=2, help="Draws from which to estimate how often a token is kept.")] = 100,
    keep_fraction: Annotated[
        float | None,
        typer.Option(help="Keep this share of the tokens instead of the share the model was trained with."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Mark the tokens that HGCLR keeps in its positive samples, for several draws of the Gumbel noise.

    Writes **figure3.html**, **figure3.png** and **figure3.json**. Documents come with their gold labels, or with those
    given by --labels: the same text under other labels keeps other tokens. How much a token's share of draws varies
    between tokens stands beside what pure chance would give.

    Example: **hgclr reproduce figure3 --model runs/hgclr/training-model --data my-data --output figures**
    """
    from hgclr.cli.console import Console

    for module in ("torch", "matplotlib"):
        require_extra(module, extra="paper", capability="Figure 3")
    given = [name for name, value in (("--data", data), ("--text", text), ("--input", source)) if value]
    if len(given) != 1:
        said = f"{' and '.join(given)} are given" if given else "no texts are given"
        raise InputError(said, remedy="give one of --data, --text and --input")
    if data is None and labels is None:
        raise InputError(f"the texts of {given[0]} have no labels", remedy="add --labels with ids or paths of labels")
    from hgclr.files import check_output

    check_output(output)

    from hgclr.data.folder import Document
    from hgclr.hardware import machine
    from hgclr.paper.kept_tokens import keep_rule, keep_tokens, load_training_model, some_documents, write_kept_tokens

    quiet_libraries()
    network, tokenizer = load_training_model(model, keep_fraction=keep_fraction)
    taxonomy = network.config.taxonomy
    if data is not None:
        chosen = some_documents(reading.open(data, taxonomy=taxonomy), split, documents, seed)
    else:
        lines = _lines(source) if source is not None else text or []
        chosen = [Document(line, ()) for line in lines]
    if labels is not None:
        indices = _labels(labels, taxonomy, data, reading)
        chosen = [Document(document.text, indices) for document in chosen]
    with progress_bar() as bar:
        found = keep_tokens(network, tokenizer, chosen, shown=draws, draws=samples, seed=seed)
        kept = list(bar.track(found, total=len(chosen), description="documents"))
    rule = keep_rule(network.config)
    files = write_kept_tokens(
        kept, taxonomy, output, model=_short(model), rule=rule, seed=seed, report={"machine": machine()}
    )
    console = Console(highlight=False)
    console.print(f"the model keeps {rule}", markup=False, soft_wrap=True)
    for number, document in enumerate(kept, 1):
        console.print(f"{number}. {'; '.join(document.paths)}: {document.summary()}", markup=False, soft_wrap=True)
    if all(document.whole for document in kept):
        console.print("to see what labels choose from short texts: --keep-fraction 0.5", markup=False)
    print_written(files)


def _short(folder: Path) -> str:
    """Return the name of a model's folder with its run's; the rest of the path is of interest on this machine alone."""
    return "/".join(folder.resolve().parts[-2:])


def _lines(source: Path) -> list[str]:
    """Return the lines of a text file that are not empty."""
    try:
        lines = [line.strip() for line in read_bytes(source).decode().splitlines()]
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", path=source) from error
    except UnicodeDecodeError as error:
        raise InputError("not UTF-8", path=source, remedy="save the file as UTF-8") from error
    if not any(lines):
        raise InputError("no text in it", path=source, remedy="write one text a line")
    return [line for line in lines if line]


def _labels(text: str, taxonomy: Taxonomy, data: Path | None, reading: Reading) -> tuple[int, ...]:
    """Return the indices of the labels given, and of those above them."""
    from hgclr.data.folder import row_form
    from hgclr.data.rows import LabelReader, RowProblem

    form = row_form(data, **asdict(reading) | {"add_ancestors": True})
    try:
        return LabelReader(taxonomy, form).read(text)
    except RowProblem as problem:
        raise InputError(f"--labels: {problem.reason}", remedy=problem.remedy) from None
