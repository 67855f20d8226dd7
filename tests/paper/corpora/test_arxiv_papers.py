from __future__ import annotations

import pytest

from hgclr.paper.corpora.arxiv import Paper, PaperReader

READER = PaperReader(frozenset({"cs.CL"}), dated=False)


def read(title: str, abstract: str) -> Paper | str:
    return READER.read({"id": "1", "title": title, "abstract": abstract, "categories": "cs.CL"})


@pytest.mark.parametrize(
    "abstract",
    [
        "This paper has been withdrawn by the author due to a crucial error in equation 1.",
        "This paper has been\nwithdrawn.",
        "This submission has been withdrawn by arXiv administrators because of overlap.",
        "The manuscript was withdrawn because it is part of another one.",
        "This article is being temporarily withdrawn pending revision.",
        "This work is now withdrawn",
        "  [Paper withdrawn due to an error]",
        "Withdrawn by the authors.",
        "WITHDRAWN",
        "(Retracted.)",
        "The authors have withdrawn this paper.",
    ],
)
def test_notices_of_withdrawal(abstract: str) -> None:
    assert read("Title", abstract) == "withdrawn"


@pytest.mark.parametrize(
    "abstract",
    [
        "This paper studies how cash is withdrawn from banks.",
        "Samples were withdrawn from the lake. This paper has been written since.",
        "Withdrawn samples are biased.",
        "The report that was withdrawn from the archive is discussed.",
        "Retracted articles are cited. We ask why.",
        "The authors have shown that nothing can be withdrawn.",
        "A note on how papers are withdrawn",
    ],
)
def test_abstracts_that_speak_of_withdrawing(abstract: str) -> None:
    assert isinstance(read("Title", abstract), Paper)


@pytest.mark.parametrize(
    ("title", "abstract", "text"),
    [
        ("One", "two", "One. two"),
        ("One?", "Two.", "One? Two."),
        (" One \n  more!\t", "\n Two\u00a0three ", "One more! Two three"),
        ("One.", "Two.", "One. Two."),
        ("One (I)", "Two.", "One (I). Two."),
        (" ", "Two.", "Two."),
    ],
)
def test_title_and_abstract_are_two_sentences(title: str, abstract: str, text: str) -> None:
    paper = read(title, abstract)
    assert isinstance(paper, Paper)
    assert paper.text == text
