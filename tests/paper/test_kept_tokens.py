"""Figure 3: draws against direct calls of the model, words joined from pieces, HTML that escapes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from hgclr.config import PRESETS
from hgclr.data.folder import Document
from hgclr.errors import InputError
from hgclr.models import HGCLRForSequenceClassification
from hgclr.models.base import load_tokenizer, save
from hgclr.paper import kept_tokens as module
from hgclr.paper.kept_tokens import (
    KeptTokens,
    keep_tokens,
    load_training_model,
    write_kept_tokens,
)

TEXT = "The quantum laser of the atom, in a lens"
GOLD = ("science", "physics")


@pytest.fixture(scope="module")
def folder(make_encoder: Callable[[str], str], taxonomy, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Training models by preset, and a flat one."""
    root = tmp_path_factory.mktemp("kept")
    tokenizer = load_tokenizer(make_encoder("bert"))
    for name, settings in (
        ("default", {"keep_at_least": 0}),
        ("whole", {}),
        ("paper", PRESETS["paper"] | {"keep_threshold": 0.2}),
        ("dropout", {"positives": "dropout"}),
    ):
        torch.manual_seed(2)
        model = HGCLRForSequenceClassification.from_encoder(make_encoder("bert"), taxonomy, tokenizer, **settings)
        for parameter_name, parameter in model.named_parameters():
            if parameter_name.startswith("token_label_attention"):
                torch.nn.init.normal_(parameter, std=2.0)  # enough guidance to differ from chance
        save(model, tokenizer, root / name)
        save(model.deployed(), tokenizer, root / f"{name}-deployed")
    return root


def document(taxonomy, text: str = TEXT, labels: tuple[str, ...] = GOLD) -> Document:
    return Document(text, tuple(sorted(taxonomy.resolve(label) for label in labels)))


def hand_made(**changes: object) -> KeptTokens:
    """A text of two words, the first in two pieces: "unseen <b>"; two draws of four are shown."""
    kept = np.array([[1, 1, 0, 1, 0, 1], [1, 0, 0, 1, 1, 1], [1, 1, 0, 0, 0, 1], [1, 1, 0, 0, 0, 1]], dtype=bool)
    fields = {
        "text": "Unseen <b>",
        "labels": (0, 1),
        "paths": ("a & b > <i>",),
        "tokens": ("[CLS]", "un", "##seen", "<", "b", "[SEP]"),
        "spans": ((0, 0), (0, 2), (2, 6), (7, 8), (8, 9), (0, 0)),
        "words": (-1, 0, 0, 1, 2, -1),
        "special": np.array([1, 0, 0, 0, 0, 1], dtype=bool),
        "kept": kept,
        "shown": 2,
    }
    return KeptTokens(**(fields | changes))  # type: ignore[arg-type]


def test_numbers_of_a_text_by_hand() -> None:
    one = hand_made()
    np.testing.assert_array_equal(one.shares, [1, 0.75, 0, 0.5, 0.25, 1])
    assert one.counts.tolist() == [2, 2, 1, 1]
    assert (one.length, one.read, one.cut, one.whole) == (4, 9, True, False)  # the ">" was not read
    assert one.fraction == 6 / 16
    mean = 6 / 16
    assert one.spreads()[0] == pytest.approx((sum((x - mean) ** 2 for x in (0.75, 0, 0.5, 0.25)) / 3) ** 0.5)
    assert one.spreads()[1] == pytest.approx((mean * (1 - mean) / 4) ** 0.5)
    pieces = list(one.pieces())
    assert [(one.text[piece.start : piece.stop], piece.share, piece.kept) for piece in pieces] == [
        ("Un", 0.75, (True, False)),
        ("seen", 0.0, (False, False)),
        ("<", 0.5, (True, True)),
        ("b", 0.25, (False, True)),
    ]


@pytest.mark.parametrize("name", ["default", "paper"])
def test_draws_are_those_of_direct_calls(folder: Path, taxonomy, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = load_training_model(folder / name)
    seen: list[torch.Tensor] = []
    choose = model.positive_weights

    def record(input_ids, words, attention_mask, labels, noise=None):
        """Give each draw a noise that the test knows."""
        generator = torch.Generator().manual_seed(len(seen))
        noise = -torch.empty(*input_ids.shape, len(taxonomy)).exponential_(generator=generator).log()
        seen.append(noise)
        return choose(input_ids, words, attention_mask, labels, noise)

    monkeypatch.setattr(model, "positive_weights", record)
    monkeypatch.setattr(module, "BATCH_TOKENS", 70)  # some draws at a time, not all
    one = document(taxonomy)
    (found,) = keep_tokens(model, tokenizer, [one], shown=2, draws=20)
    assert len(seen) > 2
    ids = torch.tensor([tokenizer(TEXT)["input_ids"]])[:, : len(found.tokens)]
    labels = torch.zeros(1, len(taxonomy))
    labels[0, list(one.labels)] = 1.0
    expected = []
    with torch.no_grad():
        for noise in torch.cat(seen):
            words = model.encoder.get_input_embeddings()(ids)
            weights, _ = choose(ids, words, torch.ones_like(ids), labels, noise[None])
            expected.append((weights[0] != 0).numpy())
    np.testing.assert_array_equal(found.kept, np.array(expected))
    np.testing.assert_allclose(found.shares, np.mean(expected, axis=0))
    assert 0.05 < found.fraction < 0.95
    if name == "default":
        assert set(found.counts) == {-(-found.length // 2)}
        assert found.kept[:, found.special].all()


def test_draws_follow_the_seed_and_leave_torch_alone(folder: Path, taxonomy) -> None:
    model, tokenizer = load_training_model(folder / "default")
    texts = [document(taxonomy), document(taxonomy, "judge of the court in a contract", ("society", "law"))]

    def draw(seed: int, documents: list[Document], shown: int = 3) -> list[np.ndarray]:
        return [one.kept for one in keep_tokens(model, tokenizer, documents, shown=shown, draws=30, seed=seed)]

    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    first = draw(5, texts)
    torch.testing.assert_close(torch.rand(3), expected)
    for one, other in zip(first, draw(5, texts, shown=7), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(first[0], draw(5, texts[:1])[0])
    assert (first[0] != draw(6, texts)[0]).any()
    assert len({row.tobytes() for row in first[0]}) > 1


def test_what_cannot_be_shown_is_refused(folder: Path, taxonomy, tmp_path: Path) -> None:
    for name in ("default-deployed", "dropout", "nowhere"):
        with pytest.raises(InputError) as error:
            load_training_model(folder / name)
        assert error.value.path == folder / name
    with pytest.raises(InputError):
        load_training_model(folder / "default", keep_fraction=1.5)
    model, tokenizer = load_training_model(folder / "default")
    with pytest.raises(InputError):
        list(keep_tokens(model, tokenizer, [document(taxonomy, "\u200b")]))


def test_html_escapes_marks_and_needs_nothing_else(taxonomy, tmp_path: Path) -> None:
    one = hand_made(text="Unseen <b>")
    write_kept_tokens([one], taxonomy, tmp_path, model="<run>/training-model", rule="P > 0.02 & more", seed=4)
    page = (tmp_path / "figure3.html").read_text(encoding="utf-8")
    for escaped in ("a &amp; b &gt; &lt;i&gt;", "&lt;run&gt;/training-model", "P &gt; 0.02 &amp; more"):
        assert escaped in page
    assert "<i>" not in page
    assert "<run>" not in page
    assert re.findall("<mark>(.*?)</mark>", page)[1:] == ["Un", "&lt;", "&lt;", "b"]  # draw 1, draw 2
    assert "<mark>Un</mark>seen" in page  # a word stays one word
    assert re.findall('title="(.*?)"', page) == ["75%", "0%", "50%", "25%"]
    for outside in ("<script", "<link", "<img", "<iframe", "http", "url("):
        assert outside not in page


def test_the_files_say_everything(tmp_path: Path, taxonomy) -> None:
    files = write_kept_tokens(
        [hand_made()], taxonomy, tmp_path / "new", model="run/training-model", rule="r", seed=4, report={"note": 1}
    )
    assert [file.name for file in files] == ["figure3.html", "figure3.json"]
    content = json.loads(files[1].read_text(encoding="utf-8"))
    assert (content["note"], content["seed"], content["draws"], content["draws_shown"]) == (1, 4, 4, 2)
    (one,) = content["documents"]
    assert one["labels"] == list(taxonomy.ids[:2])
    assert one["tokens"][1] == {
        "token": "un",
        "start": 0,
        "stop": 2,
        "word": 0,
        "special": False,
        "kept_share": 0.75,
        "kept": [True, False],
    }
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file.figure3.html: cannot be written: "):
        write_kept_tokens([hand_made()], taxonomy, tmp_path / "file", model="m", rule="r", seed=4)
