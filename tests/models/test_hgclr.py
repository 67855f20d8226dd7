"""HGCLR as a whole: against a literal second implementation, invariances, encoders of several kinds, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hgclr.config import PRESETS
from hgclr.errors import InputError
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification, hgclr
from hgclr.nn import fast
from hgclr.taxonomy import Taxonomy
from support.literal import training_step
from support.toy import TEXTS, batch_of, make_model, noise_for, still


def test_the_published_preset_equals_a_literal_second_implementation(make_encoder, taxonomy) -> None:
    settings = PRESETS["published"] | {"keep_threshold": 0.2, "contrastive_weight": 0.3}
    model, tokenizer = make_model(make_encoder, taxonomy, **settings)
    batch = batch_of(tokenizer, taxonomy)
    model.double()  # so that the two may be compared sharply
    noise = noise_for(batch, len(taxonomy)).double()
    lengths = batch["attention_mask"].sum(1).tolist()
    ours = model(**batch, noise=noise)
    weights = dict(model.named_parameters())
    expected = training_step(
        weights,
        model.encoder,
        [ids[:n].tolist() for ids, n in zip(batch["input_ids"], lengths, strict=True)],
        [row.nonzero()[:, 0].tolist() for row in batch["labels"]],
        model.name_tokens,
        taxonomy.parents.tolist(),
        noise,
        label_heads=4,
        token_heads=8,
        gamma=0.2,
        contrastive_weight=0.3,
    )
    assert 0.05 < float(expected["kept"]) < 0.95  # else the threshold is not exercised
    found = {"loss": ours.loss, "logits": ours.logits, **ours.terms}
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name].double(), value.double(), atol=1e-8, rtol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )
    trained = [name for name, parameter in weights.items() if parameter.requires_grad]
    slow = torch.autograd.grad(expected["loss"], [weights[n] for n in trained], allow_unused=True)
    fast = torch.autograd.grad(ours.loss, [weights[n] for n in trained], allow_unused=True)
    for name, one, other in zip(trained, fast, slow, strict=True):
        assert (one is None) == (other is None), name
        if one is not None:
            torch.testing.assert_close(one, other, atol=1e-9, rtol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(("preset", "frozen"), [("default", False), ("paper", False), ("published", True)])
def test_the_distance_of_a_label_to_itself_is_frozen_as_published(
    make_encoder, taxonomy, preset: str, frozen: bool
) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, **PRESETS[preset])
    batch = batch_of(tokenizer, taxonomy)
    spatial = model.label_encoder.structure.spatial
    before = spatial.detach().clone()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model(**batch, noise=noise_for(batch, len(taxonomy))).loss.backward()
    assert (spatial.grad[0] == 0) == frozen
    optimizer.step()
    changed = spatial != before
    assert changed[0] != frozen
    assert changed[1:].all()


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bert", PRESETS["default"]),
        ("mpnet", PRESETS["paper"]),
        ("bert", PRESETS["published"]),
        ("bert", {"positives": "dropout"}),
        ("bert", {"positives": "adversarial"}),
    ],
)
def test_padding_and_batch_order_change_nothing(make_encoder, taxonomy, kind: str, settings: dict) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, kind, **settings)
    batch = batch_of(tokenizer, taxonomy)
    noise = noise_for(batch, len(taxonomy))
    plain = model(**batch, noise=noise)

    padded = batch_of(tokenizer, taxonomy, extra_padding=5)
    wider = torch.cat([noise, torch.randn(len(TEXTS), 5, len(taxonomy))], 1)
    with_padding = model(**padded, noise=wider)

    order = [2, 0, 3, 1]
    shuffled = model(**{name: value[order] for name, value in batch.items()}, noise=noise[order])
    for other in (with_padding, shuffled):
        torch.testing.assert_close(other.loss, plain.loss, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other.terms, plain.terms, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(shuffled.logits, plain.logits[order], atol=1e-5, rtol=1e-5)


def test_permuting_label_ids_permutes_the_outputs(make_encoder, taxonomy) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy)
    order = np.random.default_rng(3).permutation(len(taxonomy))
    where = np.argsort(order)
    parents = taxonomy.parents[order]
    other_tree = Taxonomy([taxonomy.ids[i] for i in order], np.where(parents < 0, -1, where[parents]))
    other, _ = make_model(make_encoder, other_tree)
    state = model.state_dict()
    for name in (
        "classifier.weight",
        "classifier.bias",
        "name_tokens",
        "label_encoder.label_embedding.weight",
        "label_encoder.structure.edge",
    ):
        state[name] = state[name][order]
    other.load_state_dict(state)
    batch = batch_of(tokenizer, taxonomy)
    noise = noise_for(batch, len(taxonomy))
    one = model(**batch, noise=noise)
    two = still(other)(**(batch | {"labels": batch["labels"][:, order]}), noise=noise[..., order])
    torch.testing.assert_close(two.logits, one.logits[:, order], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(two.loss, one.loss, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "pooling"),
    [("bert", "cls"), ("mpnet", "mean"), ("roberta", "cls"), ("distilbert", "mean"), ("electra", "cls")],
)
def test_any_encoder_trains_saves_and_loads(make_encoder, taxonomy, tmp_path: Path, kind: str, pooling: str) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, kind, pooling=pooling)
    assert model.config.max_length == 64
    batch = batch_of(tokenizer, taxonomy)
    model(**batch).loss.backward()
    without = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert not without, "every parameter is trained"

    model.eval()
    inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = model(**inputs).logits
    model.save_pretrained(tmp_path / "full")
    model.deployed().save_pretrained(tmp_path / "flat")
    assert not list(tmp_path.rglob("*.bin"))
    again = HGCLRForSequenceClassification.from_pretrained(tmp_path / "full").eval()
    torch.testing.assert_close(again(**inputs).logits, expected)
    torch.testing.assert_close(again.label_features(), model.label_features())
    flat = FlatForSequenceClassification.from_pretrained(tmp_path / "flat").eval()
    torch.testing.assert_close(flat(**inputs).logits, expected)
    assert flat.config.taxonomy == taxonomy
    names = set(load_file(tmp_path / "flat" / "model.safetensors"))
    assert all(name.startswith(("encoder.", "classifier.")) for name in names)


@pytest.mark.parametrize("kind", ["bert", "mpnet", "roberta", "distilbert", "electra"])
def test_word_embeddings_and_ids_are_the_same_input(make_encoder, taxonomy, kind: str) -> None:
    """Training feeds embeddings, prediction ids: both must see the same positions and types."""
    model, tokenizer = make_model(make_encoder, taxonomy, kind)
    batch = batch_of(tokenizer, taxonomy, extra_padding=3)
    words = model.encoder.get_input_embeddings()(batch["input_ids"])
    torch.testing.assert_close(
        model.encode(batch["attention_mask"], inputs_embeds=words),
        model.encode(batch["attention_mask"], input_ids=batch["input_ids"]),
        atol=1e-5,
        rtol=1e-5,
    )


def test_special_tokens_are_kept_only_where_asked(make_encoder, taxonomy) -> None:
    for keep in (True, False):
        model, tokenizer = make_model(
            make_encoder, taxonomy, keep_threshold=0.999999, keep_fraction=None, keep_special_tokens=keep
        )
        batch = batch_of(tokenizer, taxonomy)
        words = model.encoder.get_input_embeddings()(batch["input_ids"])
        weights, kept = model.positive_weights(batch["input_ids"], words, batch["attention_mask"], batch["labels"])
        special = (batch["input_ids"] == tokenizer.cls_token_id) | (batch["input_ids"] == tokenizer.sep_token_id)
        assert torch.equal(weights > 0, special if keep else torch.zeros_like(special))
        assert float(kept) == pytest.approx(8 / int(batch["attention_mask"].sum()) if keep else 0.0)


def test_name_embedding_by_words_averages_the_names_word_embeddings(make_encoder, taxonomy) -> None:
    model, tokenizer = make_model(make_encoder, taxonomy, name_embedding="words")
    embeddings = model.name_embeddings()
    table = model.encoder.get_input_embeddings().weight
    for row, name in enumerate(taxonomy.names):
        ids = tokenizer(name, add_special_tokens=False)["input_ids"]
        torch.testing.assert_close(embeddings[row], table[ids].mean(0))


def test_heads_that_do_not_divide_the_width_are_refused(make_encoder, taxonomy) -> None:
    with pytest.raises(InputError) as refused:
        make_model(make_encoder, taxonomy, label_heads=5)
    assert "model.label_heads" in refused.value.remedy


def test_an_encoder_decoder_is_refused(make_encoder, taxonomy, tmp_path: Path, tokenizer) -> None:
    from transformers import T5Config

    T5Config(d_model=8, d_ff=8, num_layers=1, num_heads=1, vocab_size=50).save_pretrained(tmp_path)
    with pytest.raises(InputError, match="encoder-decoder"):
        FlatForSequenceClassification.from_encoder(str(tmp_path), taxonomy, tokenizer)


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_names_embedded_in_blocks_are_those_embedded_at_once(
    make_encoder, taxonomy, preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for block in (2**16, 7):  # all at once; one or two names at a time
        monkeypatch.setattr(fast, "NAME_TOKENS", block)
        monkeypatch.setattr(hgclr, "NAME_TOKENS", block)
        model, tokenizer = make_model(make_encoder, taxonomy, **PRESETS[preset])
        model.name_tokens = torch.nn.functional.pad(model.name_tokens, (0, 3), value=-1)  # names differ in length
        model.name_tokens[1, 2:6] = torch.tensor([9, 8, 7, int(model.name_tokens[0, 2])])
        batch = batch_of(tokenizer, taxonomy)
        output = model(**batch, noise=noise_for(batch, len(taxonomy)))
        output.loss.backward()
        results.append([model.name_embeddings(), output.loss, model.encoder.get_input_embeddings().weight.grad])
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-5)


def test_a_large_tree_attends_locally_and_says_so(
    make_encoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fast, "WHOLE_TREE", 20)
    monkeypatch.setattr(fast, "STRETCH", 6)
    tree = Taxonomy([f"label {i}" for i in range(30)], [-1, *(i // 3 for i in range(29))])
    make_model(make_encoder, tree, label_span=30)
    assert "label_span" not in caplog.text
    model, tokenizer = make_model(make_encoder, tree)
    assert "label_span" in caplog.text
    encoded = tokenizer(TEXTS, padding=True, return_tensors="pt")
    labels = torch.eye(30)[:4]
    output = model(encoded["input_ids"], encoded["attention_mask"], labels)
    output.loss.backward()
    assert isinstance(model.label_encoder.structure, fast.BlockAttention)
    assert torch.isfinite(output.loss)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name


def test_the_fast_label_side_has_the_same_loss_and_gradient(
    make_encoder, taxonomy, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = []
    for limit in (1024, 3):
        monkeypatch.setattr(hgclr, "PLAIN", limit)
        model, tokenizer = make_model(make_encoder, taxonomy)
        assert isinstance(model.label_encoder.structure, fast.BlockAttention) == (limit == 3)
        batch = batch_of(tokenizer, taxonomy)
        loss = model(**batch, noise=noise_for(batch, len(taxonomy))).loss
        results.append([loss, *torch.autograd.grad(loss, list(model.parameters()))])
    torch.testing.assert_close(results[0], results[1], atol=1e-6, rtol=1e-4)


def test_a_label_with_several_parents_trains_on_the_tree_of_main_parents(make_encoder, taxonomy) -> None:
    further = [()] * len(taxonomy)
    further[taxonomy.resolve("optics")] = (taxonomy.resolve("society"),)
    graph = type(taxonomy)(**taxonomy.arguments() | {"more_parents": further})
    outputs = []
    for tree in (taxonomy, graph):
        model, tokenizer = make_model(make_encoder, tree)
        batch = batch_of(tokenizer, tree)
        outputs.append(model(**batch, noise=noise_for(batch, len(tree))).loss)
    torch.testing.assert_close(*outputs)
