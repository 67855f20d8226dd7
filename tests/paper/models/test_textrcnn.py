"""TextRCNN: against literal loops, padding without influence, the contract of an encoder, systems on top, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hgclr.paper.models.words import word_tokenizer
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import AutoModel

from hgclr.config import PRESETS
from hgclr.errors import InputError
from hgclr.export.onnx import export_onnx
from hgclr.inference import HierarchicalClassifier
from hgclr.inference.backends import OnnxBackend
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.models.base import save
from hgclr.models.pretrained import position_count
from hgclr.nn.attention import CPUDropout
from hgclr.paper.models.textrcnn import METHOD_SETTINGS, TextRCNNConfig, TextRCNNModel
from hgclr.training.core import count_parameters
from hgclr.training.trainer import accelerate_on_cpu

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


def test_without_convolutions_a_word_has_the_states_of_the_gru(encoder: TextRCNNModel) -> None:
    config = TextRCNNConfig(**SIZES | {"kernels": ()})
    states = TextRCNNModel(config).eval()
    states.load_state_dict(encoder.state_dict(), strict=False)
    ids, mask = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    hidden = states(ids, mask).last_hidden_state
    assert hidden.shape == (2, 3, config.hidden_size) == (2, 3, 12)
    torch.testing.assert_close(hidden, encoder.recurrent(encoder.embeddings(ids), mask.bool()))


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


def test_padding_has_no_influence_on_logits(tokenizer, taxonomy) -> None:
    model = make_model(FlatForSequenceClassification, tokenizer, taxonomy).eval()
    batch = batch_of(tokenizer, taxonomy)
    wider = (
        torch.nn.functional.pad(batch["input_ids"], (0, 7)),
        torch.nn.functional.pad(batch["attention_mask"], (0, 7)),
    )
    torch.testing.assert_close(
        model(*wider).logits, model(batch["input_ids"], batch["attention_mask"]).logits, atol=1e-7, rtol=1e-6
    )


def test_word_vectors_may_be_given_instead_of_ids(encoder: TextRCNNModel) -> None:
    ids, mask = padded(IDS)
    words = encoder.get_input_embeddings()(ids)
    expected = encoder(ids, mask).last_hidden_state
    assert torch.equal(encoder(attention_mask=mask, inputs_embeds=words).last_hidden_state, expected)
    encoder.train()  # dropout comes after the words in both cases
    drawn = []
    for inputs in ({"input_ids": ids}, {"inputs_embeds": words}):
        torch.manual_seed(1)
        drawn.append(encoder(attention_mask=mask, **inputs).last_hidden_state)
    assert torch.equal(*drawn)
    assert not torch.equal(drawn[0], expected)


def test_the_embedding_layer_drops_half_of_the_words_numbers(encoder: TextRCNNModel) -> None:
    ids = torch.randint(1, 40, (50, 20))
    table = encoder.get_input_embeddings().weight
    assert torch.equal(encoder.embeddings(ids), table[ids])
    dropped = encoder.train().embeddings(ids)
    assert (dropped == 0).float().mean() == pytest.approx(0.5, abs=0.03)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * table[ids][kept])


def test_the_published_sizes_are_the_defaults() -> None:
    config = TextRCNNConfig()
    assert (config.word_width, config.hidden_size, config.word_dropout, config.recurrent_dropout) == (
        300,
        300,
        0.5,
        0.1,
    )
    model = TextRCNNModel(TextRCNNConfig(vocab_size=7))
    assert [tuple(c.weight.shape) for c in model.convolutions] == [(100, 200, 2), (100, 200, 3), (100, 200, 4)]


def test_types_in_the_configuration_are_checked() -> None:
    with pytest.raises(StrictDataclassError, match="word_width"):
        TextRCNNConfig(word_width="wide")


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


def test_an_encoder_is_saved_and_loaded(encoder: TextRCNNModel, tmp_path: Path) -> None:
    encoder.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert isinstance(again, TextRCNNModel)
    ids, mask = padded(IDS)
    assert torch.equal(again(ids, mask).last_hidden_state, encoder(ids, mask).last_hidden_state)


def test_what_is_asked_of_encoders(encoder: TextRCNNModel) -> None:
    assert position_count(encoder) >= 512
    gru, convolutions = 2 * 3 * 6 * (10 + 6 + 2), 4 * (12 * (2 + 3 + 4) + 3)
    assert count_parameters(encoder) == gru + convolutions
    ids, mask = padded(IDS)
    before = encoder(ids, mask).last_hidden_state
    accelerate_on_cpu(encoder, encoder)
    assert {type(m) for m in encoder.modules() if isinstance(m, torch.nn.Dropout)} == {CPUDropout}
    torch.testing.assert_close(encoder.eval()(ids, mask).last_hidden_state, before)
    encoder.train()(ids, mask).last_hidden_state.sum().backward()


def test_a_text_without_words_has_the_vector_zero(tokenizer, taxonomy) -> None:
    model = make_model(FlatForSequenceClassification, tokenizer, taxonomy).eval()
    ids = torch.tensor([[5, 6, 7], [0, 0, 0]])
    logits = model(ids, torch.tensor([[1, 1, 1], [0, 0, 0]])).logits
    assert torch.equal(logits[1], model.classifier.bias)
    torch.testing.assert_close(logits[:1], model(ids[:1], torch.ones(1, 3)).logits)
    with pytest.raises(InputError, match="no word to encode; leave empty texts out"):
        model(ids[:, :0], ids[:, :0])


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


@pytest.mark.parametrize("kind", ["layer", "words"])
def test_label_names_are_embedded_by_all_their_words(taxonomy, kind: str) -> None:
    """No word is mistaken for a special token, and the mean is over the words of a name."""
    tokenizer = word_tokenizer([*taxonomy.names, "fine arts"], minimum=1)
    names = [*taxonomy.names[:-1], "fine arts"]
    tree = type(taxonomy)(taxonomy.ids, taxonomy.parents, names)
    model = make_model(HGCLRForSequenceClassification, tokenizer, tree, name_embedding=kind).eval()
    ids = tokenizer.get_vocab()
    table = model.encoder.get_input_embeddings().weight
    expected = torch.stack([table[[ids[word] for word in name.split()]].mean(0) for name in names])
    torch.testing.assert_close(model.name_embeddings(), expected)


def test_what_does_not_fit_is_refused(tokenizer, taxonomy) -> None:
    with pytest.raises(InputError, match="token_label_heads is 8, which does not divide the width 10"):
        make_model(HGCLRForSequenceClassification, tokenizer, taxonomy, token_label_heads=8)
    with pytest.raises(InputError, match="a textrcnn encoder also looks at distances"):
        make_model(HGCLRForSequenceClassification, tokenizer, taxonomy, compact_positives=True)


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
