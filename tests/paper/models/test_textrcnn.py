"""TextRCNN: literal loops, padding, systems on top, whole runs; its vocabulary and word vectors."""

from __future__ import annotations

import gzip
import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hgclr.config import PRESETS
from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import save
from hgclr.paper.models.textrcnn import (
    METHOD_SETTINGS,
    TextRCNNConfig,
    TextRCNNModel,
    read_word_vectors,
    word_tokenizer,
)
from hgclr.training import RunConfig, train
from hgclr.training.run import new_model, tokenize_splits
from support.short_runs import StopWhenLearned, tiny_set

TEXTS = ["the judge of the court", "atom", "serve the racket in the net of the lake", "salt is a molecule"]
SIZES = {"vocab_size": 40, "word_width": 10, "recurrent_width": 6, "filters": 4}


@pytest.fixture
def encoder() -> TextRCNNModel:
    torch.manual_seed(2)
    return TextRCNNModel(TextRCNNConfig(**SIZES)).eval()


@pytest.fixture
def tokenizer(vocabulary):
    return word_tokenizer(vocabulary, minimum=1)


def make_model(kind, tokenizer, taxonomy, **settings):
    torch.manual_seed(3)
    config = TextRCNNConfig(**SIZES | {"vocab_size": len(tokenizer)})
    return kind.from_encoder(config, taxonomy, tokenizer, **METHOD_SETTINGS | settings)


def batch_of(tokenizer, taxonomy) -> dict[str, Tensor]:
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    labels = torch.zeros(len(TEXTS), len(taxonomy))
    labels[:, 0] = 1
    labels[torch.arange(len(TEXTS)), torch.arange(1, len(TEXTS) + 1)] = 1
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": labels}


def literal_gru(words: Tensor, weights: dict[str, Tensor]) -> list[Tensor]:
    """Read words one by one: reset r, update z, candidate n, state (1 - z) n + z h."""
    input_rows = weights["weight_ih_l0"].chunk(3)
    state_rows = weights["weight_hh_l0"].chunk(3)
    input_bias, state_bias = weights["bias_ih_l0"].chunk(3), weights["bias_hh_l0"].chunk(3)
    state, states = torch.zeros(state_rows[0].shape[1], dtype=words.dtype), []
    for word in words:
        from_word = [rows @ word + bias for rows, bias in zip(input_rows, input_bias, strict=True)]
        from_state = [rows @ state + bias for rows, bias in zip(state_rows, state_bias, strict=True)]
        reset = 1 / (1 + torch.exp(-(from_word[0] + from_state[0])))
        update = 1 / (1 + torch.exp(-(from_word[1] + from_state[1])))
        candidate = torch.tanh(from_word[2] + reset * from_state[2])
        state = (1 - update) * candidate + update * state
        states.append(state)
    return states


def literal_features(encoder: TextRCNNModel, text: list[int]) -> Tensor:
    """One text, word by word and filter by filter, from the weights alone."""
    words = encoder.embeddings.word_embeddings.weight[text]
    forwards = literal_gru(words, dict(encoder.recurrent.forwards.named_parameters()))
    backwards = literal_gru(words.flip(0), dict(encoder.recurrent.backwards.named_parameters()))[::-1]
    states = [torch.cat(pair) for pair in zip(forwards, backwards, strict=True)]
    rows = []
    for place in range(len(text)):
        features = []
        for kernel, convolution in zip((2, 3, 4), encoder.convolutions, strict=True):
            for weight, bias in zip(convolution.weight, convolution.bias, strict=True):
                total = bias
                for offset in range(kernel):
                    seen = place - kernel // 2 + offset
                    if 0 <= seen < len(text):
                        total = total + weight[:, offset] @ states[seen]
                features.append(total.clamp(min=0))
        rows.append(torch.stack(features))
    return torch.stack(rows)


def padded(texts: list[list[int]], extra: int = 0) -> tuple[Tensor, Tensor]:
    """Ids with rubbish on the padding, so that nothing can lean on its being zero, and the mask."""
    length = max(map(len, texts)) + extra
    ids = torch.randint(1, SIZES["vocab_size"], (len(texts), length), generator=torch.Generator().manual_seed(length))
    mask = torch.zeros(len(texts), length, dtype=torch.long)
    for row, text in enumerate(texts):
        ids[row, : len(text)] = torch.tensor(text)
        mask[row, : len(text)] = 1
    return ids, mask


IDS = [[5, 9, 3, 7, 12, 1], [8], [4, 4, 30], [21, 2, 17, 39]]


def test_features_and_gradients_equal_literal_loops(encoder: TextRCNNModel) -> None:
    encoder.double()
    ids, mask = padded(IDS)
    hidden = encoder(ids, mask).last_hidden_state
    assert hidden.shape == (4, 6, 12)
    expected = [literal_features(encoder, text) for text in IDS]
    for row, text in enumerate(IDS):
        torch.testing.assert_close(hidden[row, : len(text)], expected[row], atol=1e-12, rtol=1e-9)
    assert all((features > 0).float().mean() > 0.1 for features in expected)  # else ReLU hides all there is to compare
    names = [name for name, _ in encoder.named_parameters()]
    fast = torch.autograd.grad(
        sum(hidden[row, : len(text)].square().sum() for row, text in enumerate(IDS)), weights_of(encoder)
    )
    slow = torch.autograd.grad(sum(features.square().sum() for features in expected), weights_of(encoder))
    for name, one, other in zip(names, fast, slow, strict=True):
        assert one.abs().max() > 0, name
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-8, msg=lambda m, n=name: f"{n}: {m}")


def weights_of(module: torch.nn.Module) -> list[Tensor]:
    return list(module.parameters())


def test_padding_has_no_influence(encoder: TextRCNNModel) -> None:
    encoder.double()
    short = encoder(*padded(IDS)).last_hidden_state
    long = encoder(*padded(IDS, extra=5)).last_hidden_state
    for row, text in enumerate(IDS):
        alone = encoder(torch.tensor([text])).last_hidden_state  # without a mask, all are words
        for other in (short, long):
            torch.testing.assert_close(other[row, : len(text)], alone[0], atol=1e-14, rtol=1e-12)


@pytest.mark.parametrize("kind", [None, FlatForSequenceClassification, HGCLRForSequenceClassification])
def test_new_words_are_uniform_and_padding_is_zero(kind, tokenizer, taxonomy) -> None:
    """Also under a classifier, which draws its own layers in another way."""
    config = TextRCNNConfig(vocab_size=400, word_width=50)
    torch.manual_seed(0)
    if kind is None:
        encoder = TextRCNNModel(config)
    else:
        encoder = kind.from_encoder(config, taxonomy, tokenizer, **METHOD_SETTINGS).encoder
    table = encoder.get_input_embeddings().weight.detach()
    assert table[0].abs().max() == 0
    assert 0.249 < table[1:].abs().max() <= 0.25
    assert table[1:].std() == pytest.approx(0.25 / 3**0.5, rel=0.02)
    for weight in (encoder.recurrent.forwards.weight_hh_l0, encoder.recurrent.backwards.bias_ih_l0):
        assert 0.09 < weight.abs().max() <= 0.1  # 1 / √100
    assert 0.04 < encoder.convolutions[1].weight.abs().max() <= 600**-0.5


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_hgclr_trains_every_weight(tokenizer, taxonomy, preset: str) -> None:
    heads = {"label_heads": 5, "token_label_heads": 2}  # the presets' 8 do not divide 10
    model = make_model(HGCLRForSequenceClassification, tokenizer, taxonomy, **PRESETS[preset] | heads).train()
    assert model.config.special_token_ids == [tokenizer.pad_token_id]
    output = model(**batch_of(tokenizer, taxonomy))
    output.loss.backward()
    missing = [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None]
    assert missing == []
    assert 0 < output.terms["kept"] <= 1


@pytest.mark.slow
def test_the_onnx_graph_gives_torchs_logits_for_any_length(tokenizer, taxonomy, tmp_path: Path) -> None:
    model = make_model(FlatForSequenceClassification, tokenizer, taxonomy).eval()
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)  # so that gates and logits are spread out
    save(model, tokenizer, tmp_path / "model")
    # Only here: torch traces a GRU only once in a process.
    exported = export_onnx(tmp_path / "model", tmp_path / "onnx").folder
    ours, theirs = (HierarchicalClassifier.load(folder) for folder in (tmp_path / "model", exported))
    texts = [*TEXTS, "", "nonsense"]
    np.testing.assert_allclose(theirs.predict_proba(texts), ours.predict_proba(texts), atol=1e-4)
    graph = OnnxBackend(exported / "model.onnx", threads=1)
    random = np.random.default_rng(3)
    for rows, columns in [(1, 1), (2, 1), (1, 40), (3, 17), (13, 3)]:
        lengths = random.integers(1, columns + 1, rows)
        mask = (np.arange(columns) < lengths[:, None]).astype(np.int64)
        ids = random.integers(0, len(tokenizer), mask.shape)
        with torch.inference_mode():
            expected = model(torch.from_numpy(ids), torch.from_numpy(mask)).logits.numpy()
        assert np.abs(expected).max() > 1
        np.testing.assert_allclose(graph.logits(ids, mask), expected, atol=1e-4, rtol=1e-4)


def make_run(data: Path, output: Path, model: dict | None = None, **training) -> RunConfig:
    return RunConfig.model_validate(
        {
            "data": {"path": data},
            "model": {"encoder": "textrcnn", "architecture": "hgclr"} | (model or {}),
            "training": {"epochs": 2, "precision": "fp32", "seed": 3} | training,
            "output": output,
        }
    )


def own_words(toy_data: Path, folder: Path) -> Path:
    """A copy of the toy data in which each training document says twice a word of its own."""
    data = shutil.copytree(toy_data, folder)
    with gzip.open(data / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    (data / "train.jsonl.gz").unlink()
    for number, row in enumerate(rows):
        row["text"] += f" own{number} own{number}"
    (data / "train.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return data


def own_numbers(words) -> set[str]:
    return {word for word in words if word.startswith("own")}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["flat", "hgclr"])
def test_a_tiny_set_is_learned_saved_and_predicted(toy_data: Path, tmp_path: Path, architecture: str) -> None:
    data = tiny_set(toy_data, tmp_path / "data")
    training = {"epochs": 12, "patience": 12, "batch_size": 8, "learning_rate": 3e-3}
    run = make_run(data, tmp_path / "run", {"architecture": architecture}, **training)
    result = train(run, callbacks=[StopWhenLearned()])
    assert result.metrics["dev"]["micro"]["f1"] > 0.95
    assert result.metrics["recipe"]["head_learning_rate"] == result.metrics["recipe"]["learning_rate"]
    classifier = HierarchicalClassifier.load(result.model)
    (prediction,) = classifier.predict(["The LENS of a prism, mirror and nonsense"], rule="closure")
    assert [label.id for label in prediction.labels] == ["science", "physics", "optics"]
    config = json.loads((result.model / "config.json").read_text())
    assert (config["pooling"], config["max_length"]) == ("max", 256)
    assert {path.suffix for path in result.model.iterdir()} == {".json", ".safetensors"}


def test_words_of_documents_held_out_for_dev_are_not_known(toy_data: Path, tmp_path: Path) -> None:
    run = make_run(own_words(toy_data, tmp_path / "data"), tmp_path / "run")
    (run.data.path / "dev.jsonl.gz").unlink()
    with pytest.raises(InputError, match=r"there is no dev split .* data\.dev_share=0\.1"):
        new_model(run)
    run.data.dev_share = 0.25
    _, tokenizer, folder = new_model(run)
    known = own_numbers(tokenizer.get_vocab())
    assert len(known) == 72
    tokens = tokenize_splits(run, folder, tokenizer, 256, None, lambda *_: None)
    unknown = tokenizer.unk_token_id
    assert all(unknown not in row for row in tokens["train"]["input_ids"])
    assert all(unknown in row for row in tokens["dev"]["input_ids"])


@pytest.mark.slow
def test_word_vectors_are_the_start(toy_data: Path, tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("lens " + "1.5 " * 50 + "\n[PAD] " + "9 " * 50 + "\nunheard " + "3 " * 50 + "\natom " + "-2 " * 50)
    run = make_run(toy_data, tmp_path / "run", {"architecture": "flat", "word_vectors": str(file)}, epochs=1)
    model, tokenizer, _ = new_model(run)
    table = model.encoder.get_input_embeddings().weight.detach()
    ids = tokenizer.get_vocab()
    assert table.shape == (len(ids), 50)  # as wide as the file's
    assert (table[ids["lens"]] == 1.5).all()
    assert (table[ids["atom"]] == -2).all()
    assert (table[0] == 0).all()
    others = np.delete(table.numpy(), [0, ids["lens"], ids["atom"]], axis=0)
    assert 0.24 < np.abs(others).max() <= 0.25
    assert train(run).metrics["dev"]["micro"]["f1"] >= 0


@settings(deadline=None, max_examples=50, derandomize=True)
@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1), min_size=1, max_size=8), st.integers(1, 3))
def test_the_vocabulary_is_that_of_a_plain_count(texts: list[list[str]], minimum: int) -> None:
    counts = Counter(word for text in texts for word in text)
    expected = sorted((word for word in counts if counts[word] >= minimum), key=lambda word: (-counts[word], word))
    joined = [" ".join(text) for text in texts]
    if not expected:
        with pytest.raises(InputError, match="no word occurs"):
            word_tokenizer(joined, minimum=minimum)
        return
    tokenizer = word_tokenizer(reversed(joined), minimum=minimum)  # the order of texts decides nothing
    assert tokenizer.convert_ids_to_tokens(range(2, len(tokenizer))) == expected


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"the 1 2 3\ndog 1 2\n", 2),
        (b"the 1 2 3\ndog 1 2 3 4\n", 2),
        (b"the 1 2 3\ncat 1 2\n", 2),  # of a word not asked for, too
        (b"the 1 2 3\ndog 1 x 3\n", 2),
        (b"the 1 2 3\ndog 1 nan 3\n", 2),
        (b"other 1 inf 3\n", 1),
        (b"PK\x03\x04\x14 \xff\xfe\x00\n", 1),  # the packed file
        (b"the\n", 1),
        (b"THE 1 2 3\n", None),
        (b"", None),
    ],
)
def test_bad_files_of_vectors_are_refused(tmp_path: Path, content: bytes, line: int | None) -> None:
    path = tmp_path / "vectors.txt"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_word_vectors(path, ["the", "dog"])
    assert (error.value.path, error.value.line) == (path, line)
