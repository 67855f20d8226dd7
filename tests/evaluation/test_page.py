"""The page of explanations: escaped, whole in itself, with a choice of labels that the keyboard can make."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from hgclr.evaluation.explanation import ExplainedLabel, Explanation, Stability, explanation_page
from hgclr.evaluation.relevance import Word
from hgclr.inference import PredictedLabel

TEXT = "<b>\nice & 'fire'"
PATHS = (("top",), ("top", "<script>alert(1)</script>"), ("top", "other"))


def explanation(unread: int = 0, *, same: bool = True, neutral: float = 0.0, text: str = TEXT) -> Explanation:
    words = tuple(Word(match.start(), match.end()) for match in re.finditer(r"\w+|[^\w\s]", text))
    labels = tuple(
        ExplainedLabel(
            PredictedLabel(f"id{number}", path, 0.9),
            "not given" if number == 2 else "given",
            tuple(float((-1) ** place * (place + number)) for place in range(len(words))),
            kept=(0, 2),
            only_kept=0.75,
            only_random=0.5,
            without_kept=0.25,
        )
        for number, path in enumerate(PATHS)
    )
    lost = () if same else (labels[1].label,)
    return Explanation(text, "occlusion", neutral, words, unread, labels, unread, 0.3, Stability((0, 2), lost, ()))


class Page(HTMLParser):
    """Tags with attributes, and the text of every element with the class ``text``."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.inside = 0
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag in ("meta", "input", "br"):
            return
        self.open.append(tag)
        if self.inside or dict(attributes).get("class") == "text":
            if not self.inside:
                self.texts.append("")
            self.inside += 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.inside = max(0, self.inside - 1)

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[-1] += data


def test_the_text_is_shown_as_it_was_typed_for_every_label() -> None:
    page = Page(explanation_page([explanation()], model="a <model>"))
    assert page.texts == [TEXT] * 3
    marks = [attributes["class"] for tag, attributes in page.tags if tag == "span" and "title" in attributes]
    assert {"f4", "a4"} <= set(marks)


def test_nothing_is_executed_or_fetched() -> None:
    html = explanation_page([explanation()], model="a <model>")
    assert "a &lt;model&gt;" in html
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert not re.search(r"https?:|url\(|@import|src=|<link", html)


def test_every_text_has_one_group_of_radio_buttons_with_names() -> None:
    html = explanation_page([explanation(), explanation()], model="m")
    page = Page(html)
    inputs = [attributes for tag, attributes in page.tags if tag == "input"]
    assert [one["name"] for one in inputs] == ["text1"] * 3 + ["text2"] * 3
    assert [one["class"] for one in inputs] == ["c0", "c1", "c2"] * 2
    assert ["checked" in one for one in inputs] == [True, False, False] * 2
    assert sum(tag == "fieldset" for tag, _ in page.tags) == sum(tag == "legend" for tag, _ in page.tags) == 2
    assert sum(attributes.get("class") == "choice" for _, attributes in page.tags) == 6  # labels around the inputs
    for number in range(3):
        assert f".explained:has(.c{number}:checked) .p{number} " in html
    assert "(not given)" in html


def test_numbers_stand_beside_the_words() -> None:
    html = explanation_page([explanation()], model="m")
    for value in ("90%", "75%", "50%", "25%", "with its 2 words only", "speaks for it", "speaks against it", "+4.00"):
        assert value in html
    assert re.search(r"<th[^>]*>&lt; •</th>", html)  # the first word is kept
    assert "With 2 of 8 words:</b> the labels stay the same. The words: &lt; &gt;" in html
    assert "Chance" not in html
    assert "Chance would give each 50%." in explanation_page([explanation(neutral=0.5)], model="m")


def test_changed_labels_and_words_not_read_are_said() -> None:
    html = explanation_page([explanation(unread=1, same=False)], model="m")
    assert "the labels change: lost top &gt; &lt;script&gt;" in html
    assert "the last 1 word; the model reads no further" in html
    assert "Left out:</b> 1 label, less probable." in html
    assert "Left out" not in explanation_page([explanation()], model="m")


@pytest.mark.parametrize(("text", "title"), [("a\n b c", "a b c"), ("ab " * 40, "ab " * 19 + "ab…")])
def test_a_text_is_named_by_its_beginning(text: str, title: str) -> None:
    assert f"<h2>{title}</h2>" in explanation_page([explanation(text=text)], model="m")
