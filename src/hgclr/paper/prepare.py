"""``hgclr data prepare`` and ``hgclr import-published``: convert corpora and the authors' checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hgclr.cli.console import Console
from hgclr.cli.data import prepare
from hgclr.cli.options import AddAncestors, DataOutput, NewFolder, file, folder, option, options_from
from hgclr.errors import require_extra

app = typer.Typer()
PAPER, OPEN, FORMATS = "The paper's corpora", "Open corpora", "Formats of the literature"


def _source(text: str, kind: str = "PATH") -> Any:
    return option(text, metavar=kind)


@app.command(rich_help_panel=PAPER)
def wos(
    source: Annotated[
        Path,
        _source(
            "Data.xlsx, the literature's wos_total.json, or a folder with one of these or with wos_train.json,"
            " wos_val.json and wos_test.json."
        ),
    ],
    output: DataOutput,
    labels: Annotated[
        Literal["literature", "original"],
        option(
            "literature: merge areas that share a code, as for the published scores (141 labels); original: keep the"
            " names of all areas."
        ),
    ] = "literature",
) -> None:
    """Web of Science (WOS-46985): abstracts of papers with one of 7 domains and its area.

    Download WebOfScience.zip from Mendeley Data (doi:10.17632/9rw3vkcfy4.6) and unpack it. The split is the
    literature's: 30,070 / 7,518 / 9,397.

    Example: **hgclr data prepare wos --source WebOfScience --output data/wos**

    Next: **hgclr train data/wos**
    """
    from hgclr.paper.corpora.wos import build_wos

    prepare("rows", build_wos, source, output, labels=labels)


@app.command(rich_help_panel=PAPER)
def nyt(
    source: Annotated[
        Path, folder("Folder nyt_corpus of LDC2008T19, with data/YYYY/MM.tgz, or with these archives unpacked.")
    ],
    output: DataOutput,
    ids: Annotated[
        Path | None,
        folder(
            "Folder with the literature's lists idnewnyt_train.json, idnewnyt_val.json, idnewnyt_test.json; default:"
            " --source."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        file(
            "The literature's label list, one path such as Top/News/Sports per line; default: nyt_label.vocab in the"
            " folder of --ids."
        ),
    ] = None,
    text: Annotated[
        Literal["full", "literature"],
        option(
            "full: all paragraphs, joined by spaces; literature: as for the published scores, without the first"
            " paragraph and without spaces between the others."
        ),
    ] = "full",
) -> None:
    """The New York Times Annotated Corpus: articles with their sections.

    You need not unpack the archives.

    Example: **hgclr data prepare nyt --source nyt_corpus --ids lists --output data/nyt**

    Next: **hgclr train data/nyt**
    """
    from hgclr.paper.corpora.nyt import build_nyt

    prepare("files", build_nyt, source, output, ids=ids, labels=labels, text=text)


@app.command(rich_help_panel=PAPER)
def rcv1(
    source: Annotated[
        Path,
        folder("Folder with the Reuters disks, at any depth: zip files of news items, or folders of XML files."),
    ],
    output: DataOutput,
    train_ids: Annotated[
        Path | None,
        file("The training documents, as lines '.I id'; default: lyrl2004_tokens_train.dat[.gz] in --source."),
    ] = None,
    topics: Annotated[Path | None, file("The topic tree; default: rcv1.topics.hier.orig in --source.")] = None,
    label_names: Annotated[
        Literal["codes", "descriptions"],
        option(
            "Names of labels: codes, as in the paper (GCRIM), or descriptions (CRIME, LAW ENFORCEMENT), from which"
            " models that embed names learn more. Ids are the codes in both cases."
        ),
    ] = "codes",
    text: Annotated[
        Literal["full", "literature"],
        option("full: a space between paragraphs; literature: no space between them, as for the published scores."),
    ] = "full",
    ids: Annotated[
        Path | None,
        file(
            "Use the documents of this list (rcv1v2-ids.dat[.gz], one id per line) instead of all with a topic and a"
            " region."
        ),
    ] = None,
) -> None:
    """RCV1-V2: Reuters news with 103 topics in a tree of four levels.

    Example: **hgclr data prepare rcv1 --source reuters --output data/rcv1**

    Next: **hgclr train data/rcv1**
    """
    from hgclr.paper.corpora.rcv1 import build_rcv1

    options = {"train_ids": train_ids, "topics": topics, "label_names": label_names, "text": text, "ids": ids}
    prepare("archives", build_rcv1, source, output, **options)


def _day(text: str) -> Any:
    return option(text, formats=["%Y-%m-%d"], metavar="YYYY-MM-DD")


@app.command(rich_help_panel=OPEN)
def arxiv(
    source: Annotated[Path, file("arXiv's metadata snapshot: .json, .json.gz, or the .zip from Kaggle.")],
    output: DataOutput,
    since: Annotated[datetime | None, _day("First day of the papers.")] = None,
    until: Annotated[datetime | None, _day("Last day of the papers.")] = None,
    per_category: Annotated[
        int | None,
        option("Limit on the papers of each primary category, chosen by hash; the file is read twice.", min=1),
    ] = None,
    primary_only: Annotated[
        bool, option("Keep one path per paper, that of its primary category.", "--primary-only")
    ] = False,
    dev_share: Annotated[
        float | None, option("Share of papers for dev, chosen by hash of the id; default: 0.1.")
    ] = None,
    test_share: Annotated[float | None, option("Share of papers for test; default: 0.1.")] = None,
    dev_from: Annotated[
        datetime | None, _day("Split by date instead of by hash: first day of dev; earlier papers are in train.")
    ] = None,
    test_from: Annotated[datetime | None, _day("With --dev-from: first day of test.")] = None,
    seed: Annotated[int, option("Seed of the hashes.")] = 0,
) -> None:
    """ArXiv's metadata: titles and abstracts with group, archive and category.

    Dates are those of a paper's first version.

    Example: **hgclr data prepare arxiv --source archive.zip --since 2020-01-01 --per-category 500 --output data/arxiv**

    Next: **hgclr train data/arxiv**
    """
    from hgclr.paper.corpora.arxiv import build_arxiv

    days = {"since": since, "until": until, "dev_from": dev_from, "test_from": test_from}
    prepare(
        "megabytes",
        build_arxiv,
        source,
        output,
        per_category=per_category,
        primary_only=primary_only,
        dev_share=dev_share,
        test_share=test_share,
        seed=seed,
        **{name: None if day is None else day.date() for name, day in days.items()},
    )


@dataclass(frozen=True)
class FormatFiles:
    """Options for the files of a corpus in one of the literature's formats."""

    train: Annotated[Path, file("The training file.")]
    dev: Annotated[Path | None, file("The dev (validation) file.")] = None
    test: Annotated[Path | None, file("The test file.")] = None
    taxonomy: Annotated[Path | None, file("The label tree.")] = None
    add_ancestors: AddAncestors = False


@app.command(rich_help_panel=FORMATS)
@options_from(FormatFiles, "files", first=True)
def hiagm(output: DataOutput, files: FormatFiles) -> None:
    """HiAGM's JSON lines (token, label) and .taxonomy file.

    The keys doc_token and doc_label are read, too. Labels are ids or names of the label tree.

    Example: **hgclr data prepare hiagm --train rcv1_train.json --dev rcv1_val.json --test rcv1_test.json
    --taxonomy rcv1.taxonomy --output data/rcv1**

    Next: **hgclr train data/rcv1**
    """
    _prepare_format("hiagm", output, files)


@app.command(rich_help_panel=FORMATS)
@options_from(FormatFiles, "files", first=True)
def neuralclassifier(output: DataOutput, files: FormatFiles) -> None:
    """NeuralClassifier's JSON lines (doc_token, doc_label with A--B--C).

    Without --taxonomy, the label tree is built from the paths of all splits.

    Example: **hgclr data prepare neuralclassifier --train train.json --dev dev.json --output my-data**

    Next: **hgclr train my-data**
    """
    _prepare_format("neuralclassifier", output, files)


@app.command(rich_help_panel=FORMATS)
@options_from(FormatFiles, "files", first=True)
def fasttext(
    output: DataOutput,
    files: FormatFiles,
    path_separator: Annotated[
        str, option("Separator between the names of a path; 'none' if labels are plain names.")
    ] = "/",
    label_prefix: Annotated[str, option("Prefix of labels.")] = "__label__",
) -> None:
    """Lines of fastText (\\_\\_label\\_\\_A/B text).

    Without --taxonomy, the label tree is built from the paths of all splits.

    Example: **hgclr data prepare fasttext --train train.txt --dev valid.txt --output my-data**

    Next: **hgclr train my-data**
    """
    separator = None if path_separator == "none" else path_separator
    _prepare_format("fasttext", output, files, path_separator=separator, label_prefix=label_prefix)


def _prepare_format(name: str, output: Path, files: FormatFiles, **options: Any) -> None:
    from hgclr.paper.corpora.formats import prepare_format

    prepare("lines", prepare_format, name, output=output, **vars(files), **options)


def import_published(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Such as checkpoint_best_macro.pt of the published program.")
    ],
    data_path: Annotated[Path, folder("The program's data folder, with bert_value_dict.pt and slot.pt.")],
    encoder: Annotated[
        str,
        option("The BERT it was trained on, for configuration and tokenizer: a folder or a name.", metavar="NAME"),
    ],
    output: NewFolder,
) -> None:
    """Convert a checkpoint of the authors' published program to a model of hgclr.

    The output folder has **model** (for hgclr predict and evaluate) and **training-model** (with the label side, to
    continue training). Logits and loss terms stay the same; Graphormer of any depth, GCN, GAT and graph 0 are
    supported. Code in the files is never run.

    Example: **hgclr import-published checkpoint_best_macro.pt --data-path data/wos --encoder bert-base-uncased --output
    published**

    Next: **hgclr evaluate published/model my-data**
    """
    require_extra("torch", extra="train", capability="Importing a published checkpoint")
    from hgclr.paper.published import import_published as run_import

    result = run_import(checkpoint, data_path, encoder, output)
    lines = [
        f"{len(result.taxonomy)} labels, depth {result.taxonomy.depth}",
        *(f"{name}: {value}" for name, value in result.settings.items()),
        f"model: {result.model}",
        f"training model: {result.training_model}",
    ]
    for line in lines:
        Console().say(line)
