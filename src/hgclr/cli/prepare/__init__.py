"""``hgclr data prepare``: turn what publishers hand out into a data folder. One module for each corpus."""

from __future__ import annotations

import typer

from hgclr.cli.prepare import arxiv, fasttext, hiagm, icd10cm, neuralclassifier, nyt, rcv1, wos

__all__ = ["app"]

PAPER, OPEN, FORMATS = "The paper's corpora", "Open corpora", "Formats of the literature"

app = typer.Typer(no_args_is_help=True, help="Turn a corpus as its publisher hands it out into a data folder.")
app.command("wos", rich_help_panel=PAPER)(wos.wos)
app.command("nyt", rich_help_panel=PAPER)(nyt.nyt)
app.command("rcv1", rich_help_panel=PAPER)(rcv1.rcv1)
app.command("arxiv", rich_help_panel=OPEN)(arxiv.arxiv)
app.command("icd10cm", rich_help_panel=OPEN)(icd10cm.icd10cm)
app.command("hiagm", rich_help_panel=FORMATS)(hiagm.hiagm)
app.command("neuralclassifier", rich_help_panel=FORMATS)(neuralclassifier.neuralclassifier)
app.command("fasttext", rich_help_panel=FORMATS)(fasttext.fasttext)
