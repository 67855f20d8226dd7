"""Import of published checkpoints: the same numbers as a literal computation, and a refusal for everything else."""

from __future__ import annotations

import os
import pickle
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoConfig, BertModel

from hgclr.errors import InputError
from hgclr.inference import HierarchicalClassifier
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.paper.published import import_published, read_checkpoint, read_published
from support.literal import path_edges, training_step
from support.published_program import NAMES, PARENTS, POSITIONS, WIDTH, PublishedProgram

TEXTS = ["quantum laser of the atom", "judge", "serve the racket in the net of the lake", "salt is a molecule"]
GOLD = [[0, 2, 5], [1, 4], [1, 4, 6], [0]]
IDS = [
    "science",
    "society",
    "science > physics",
    "science > law",
    "society > law",
    "science > physics > optics of physics",
    "society > law > tennis",
]
LAYER = "graph_encoder.hir_layers.0"


@pytest.fixture
def program(tokenizer) -> PublishedProgram:
    return PublishedProgram(tokenizer)


@pytest.fixture
def bert(make_encoder: Callable[[str], str]) -> str:
    return make_encoder("bert")


def read(program: PublishedProgram, folder: Path, encoder: str) -> HGCLRForSequenceClassification:
    model, _ = read_published(*program.write(folder), encoder)
    return model


def batch_of(tokenizer) -> dict[str, torch.Tensor]:
    encoded = tokenizer(TEXTS, padding=True, truncation=True, max_length=32, return_tensors="pt")
    labels = torch.zeros(len(TEXTS), len(NAMES))
    for row, gold in enumerate(GOLD):
        labels[row, gold] = 1.0
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"], "labels": labels}


def literal_weights(program: PublishedProgram) -> dict[str, torch.Tensor]:
    """The published weights under the names of the literal implementation, in double precision."""
    weights = {name: weight.double() for name, weight in program.weights.items() if weight.is_floating_point()}
    literal = {
        "label_encoder.label_embedding.weight": weights["graph_encoder.id_embedding.weight"],
        "label_encoder.structure.spatial": weights["graph_encoder.distance_embedding.weight"].squeeze(1),
        "label_encoder.structure.edge": weights["graph_encoder.edge_embedding.weight"].squeeze(1).roll(-1),
    }
    for kind in ("weight", "bias"):
        literal |= {
            f"classifier.{kind}": weights[f"classifier.{kind}"],
            f"projection.1.{kind}": weights[f"contrastive_lossfct.transform.1.{kind}"],
            f"projection.4.{kind}": weights[f"contrastive_lossfct.transform.4.{kind}"],
            f"label_encoder.layers.0.query.{kind}": weights[f"{LAYER}.hir_attn.self.q_proj.{kind}"],
            f"label_encoder.layers.0.key.{kind}": weights[f"{LAYER}.hir_attn.self.k_proj.{kind}"],
            f"label_encoder.layers.0.value.{kind}": weights[f"{LAYER}.hir_attn.self.v_proj.{kind}"],
            f"label_encoder.layers.0.output.{kind}": weights[f"{LAYER}.hir_attn.self.out_proj.{kind}"],
            f"label_encoder.layers.0.norm.{kind}": weights[f"{LAYER}.hir_attn.layer_norm.{kind}"],
            f"token_label_attention.query.{kind}": weights[f"{LAYER}.cross_attn.q_proj.{kind}"],
            f"token_label_attention.key.{kind}": weights[f"{LAYER}.cross_attn.k_proj.{kind}"],
        }
    return {name: weight.requires_grad_() for name, weight in literal.items()}


def published_bert(program: PublishedProgram, encoder: str) -> BertModel:
    bert = BertModel(AutoConfig.from_pretrained(encoder), add_pooling_layer=False)
    parts = {name: weight for name, weight in program.weights.items() if not name.endswith("position_ids")}
    bert.load_state_dict({name[len("bert.") :]: part for name, part in parts.items() if name.startswith("bert.")})
    return bert.double().eval()


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({}, {"gamma": 0.2, "contrastive_weight": 0.3, "temperature": 1.0}),
        ({"lamb": 1, "tau": 0.6}, {"gamma": 0.2, "contrastive_weight": 1.0, "temperature": 0.6}),
        ({"contrast": 0, "thre": 0.1}, {"gamma": 0.1, "contrastive_weight": 0.0, "temperature": 1.0}),
    ],
)
def test_logits_loss_terms_and_gradients_are_those_of_the_published_program(
    program: PublishedProgram,
    bert: str,
    tokenizer,
    tmp_path: Path,
    arguments: dict[str, Any],
    numbers: dict[str, float],
) -> None:
    program.arguments |= arguments
    result = import_published(*program.write(tmp_path), bert, tmp_path / "out")
    model = HGCLRForSequenceClassification.from_pretrained(result.training_model).double().train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.label_encoder.layers[0].dropout.p = 0.0
    model.encoder.eval()
    batch = batch_of(tokenizer)
    torch.manual_seed(2)
    noise = -torch.empty(*batch["input_ids"].shape, len(NAMES)).exponential_().log().double()
    output = model(**batch, noise=noise)

    weights = literal_weights(program)
    names = program.weights["graph_encoder.label_name"]
    expected = training_step(
        weights,
        published_bert(program, bert),
        [tokenizer(text, truncation=True, max_length=32)["input_ids"] for text in TEXTS],
        GOLD,
        names.masked_fill(names == tokenizer.pad_token_id, -1),
        PARENTS,
        noise,
        label_heads=4,
        token_heads=8,
        **numbers,
    )
    assert 0.05 < float(expected["kept"]) < 0.95  # else the threshold is not exercised
    found = {"loss": output.loss, "logits": output.logits, **output.terms}
    for name, value in expected.items():
        torch.testing.assert_close(
            found[name].double(), value.double(), atol=1e-8, rtol=1e-6, msg=lambda text, term=name: f"{term}: {text}"
        )
    # A kept token weighs 1 whatever its probability: gradients see the label side where the loss terms do not.
    expected["loss"].backward()
    output.loss.backward()
    assert weights["label_encoder.label_embedding.weight"].grad.abs().max() > 1e-6
    for name, parameter in model.named_parameters():
        if not name.startswith("encoder."):
            torch.testing.assert_close(
                parameter.grad,
                weights[name].grad[: len(parameter)],
                atol=1e-9,
                rtol=1e-6,
                msg=lambda text, term=name: f"{term}: {text}",
            )

    flat = FlatForSequenceClassification.from_pretrained(result.model).eval()
    logits = flat(batch["input_ids"], batch["attention_mask"]).logits
    torch.testing.assert_close(logits, expected["logits"].float(), atol=1e-4, rtol=1e-4)
    assert {path.suffix for path in (tmp_path / "out").rglob("*") if path.is_file()} == {".json", ".safetensors"}
    assert [path.name for path in sorted((tmp_path / "out").iterdir())] == ["model", "training-model"]


def test_labels_keep_their_numbers_and_get_their_paths_as_ids(
    program: PublishedProgram, bert: str, tokenizer, tmp_path: Path
) -> None:
    result = import_published(*program.write(tmp_path), bert, tmp_path / "out")
    assert list(result.taxonomy.ids) == IDS
    assert list(result.taxonomy.names) == NAMES
    assert result.taxonomy.parents.tolist() == PARENTS
    assert result.settings == {
        "contrastive_weight": 0.3,
        "keep_threshold": 0.2,
        "gumbel_temperature": 1.0,
        "edge_padding": "zero",
    }
    model = HGCLRForSequenceClassification.from_pretrained(result.training_model)
    for row, name in zip(model.name_tokens.tolist(), NAMES, strict=True):
        words = [tokenizer.convert_tokens_to_ids(word) for word in name.split()]
        assert [token for token in row if token >= 0] == [tokenizer.cls_token_id, *words, tokenizer.sep_token_id]
    assert model.config.max_length == POSITIONS
    assert model.config.guidance == "probabilities"


def test_the_imported_model_predicts(program: PublishedProgram, bert: str, tmp_path: Path) -> None:
    program.weights["classifier.weight"].zero_()
    program.weights["classifier.bias"] = torch.tensor([3.0, -3, -3, -3, -3, 3, -3])
    result = import_published(*program.write(tmp_path), bert, tmp_path / "out")
    (prediction,) = HierarchicalClassifier.load(str(result.model)).predict(["a prism"])
    assert [label.id for label in prediction.labels] == [IDS[0], IDS[5]]


def test_it_can_be_trained_on(program: PublishedProgram, bert: str, tokenizer, tmp_path: Path) -> None:
    result = import_published(*program.write(tmp_path), bert, tmp_path / "out")
    torch.manual_seed(0)
    model = HGCLRForSequenceClassification.from_pretrained(result.training_model).train()
    batch = batch_of(tokenizer)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(15):
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


@pytest.mark.parametrize(
    ("padding", "words"),
    [(0.0, None), (0.02, "attend to themselves alone"), (-0.013, "attend to all labels but themselves")],
)
def test_the_padding_row_of_the_edge_table_is_kept(
    program: PublishedProgram,
    bert: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    padding: float,
    words: str | None,
) -> None:
    edges = program.weights["graph_encoder.edge_embedding.weight"]
    edges[0] = padding
    result = import_published(*program.write(tmp_path), bert, tmp_path / "out")
    assert result.settings["edge_padding"] == ("drawn" if padding else "zero")
    model = HGCLRForSequenceClassification.from_pretrained(result.training_model)
    assert model.config.edge_padding == result.settings["edge_padding"]
    structure = model.label_encoder.structure
    assert (structure.padding is None) == (padding == 0)
    count = len(NAMES)
    nothing, each = torch.zeros(count, count), torch.eye(count)
    attention = structure(nothing, nothing, each, heads=1, scale=1.0, dropout=0.0)  # the softmax of the bias alone
    spatial = program.weights["graph_encoder.distance_embedding.weight"]
    for i in range(count):
        bias = []
        for j in range(count):
            path = path_edges(PARENTS, i, j)
            slots = [*(child + 1 for child in path), *[0] * (15 - len(path))]
            bias.append(spatial[len(path), 0] + sum(edges[slot, 0] for slot in slots) / (len(path) + 1e-8))
        torch.testing.assert_close(attention[i], torch.stack(bias).softmax(0))
    assert words in caplog.text if words is not None else not caplog.records


def test_what_the_checkpoint_does_not_say_comes_from_the_preset_with_a_warning(
    program: PublishedProgram, bert: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program.arguments = {"tau": 2.0, "contrast": 1, "graph": 1}
    config = read(program, tmp_path, bert).config
    assert (config.contrastive_weight, config.keep_threshold, config.gumbel_temperature) == (0.05, 0.02, 2.0)
    assert "does not say lamb, thre, layer: taken from the published preset" in caplog.text


def test_what_other_libraries_let_torch_load_does_not_matter(
    program: PublishedProgram, bert: str, tmp_path: Path
) -> None:
    torch.serialization.add_safe_globals([defaultdict])  # as torch_geometric does when it is imported
    before = set(torch.serialization.get_safe_globals())
    assert import_published(*program.write(tmp_path), bert, tmp_path / "out").model.is_dir()
    assert set(torch.serialization.get_safe_globals()) == before


def test_a_whole_checkpoint_gives_no_warning(
    program: PublishedProgram, bert: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    read(program, tmp_path, bert)
    assert not caplog.records


def test_siblings_of_one_name_are_told_apart(
    bert: str, tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = PublishedProgram(tokenizer, ["science", "law", "law", "law"], [-1, 0, 0, -1])
    model = read(program, tmp_path, bert)
    assert list(model.config.taxonomy.ids) == ["science", "science > law", "science > law (2)", "law"]
    assert model.name_tokens[2].tolist() == model.name_tokens[1].tolist()
    assert "label 2 has the name 'law' of a sibling" in caplog.text


def test_a_parent_with_a_larger_number_gets_the_right_distances_and_a_warning(
    bert: str, tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = PublishedProgram(tokenizer, ["physics", "science", "law"], [1, -1, -1])
    assert program.weights["graph_encoder.distance_mat"][0, 1] == 3  # which the published program thinks
    model = read(program, tmp_path, bert)
    assert model.config.taxonomy.distance(0, 1) == 1
    assert "wrong distances" in caplog.text


def test_the_tree_may_be_a_plain_dict(program: PublishedProgram, bert: str, tmp_path: Path) -> None:
    program.slot = dict(program.slot)
    assert read(program, tmp_path, bert).config.label_parents == PARENTS


def without_weight(program: PublishedProgram) -> None:
    del program.weights[f"{LAYER}.cross_attn.k_proj.bias"]


def with_weight(program: PublishedProgram) -> None:
    program.weights["bert.pooler.dense.weight"] = torch.zeros(WIDTH, WIDTH)


def with_wide_classifier(program: PublishedProgram) -> None:
    program.weights["classifier.weight"] = torch.zeros(len(NAMES), 48)


def with_few_label_embeddings(program: PublishedProgram) -> None:
    program.weights["graph_encoder.id_embedding.weight"] = torch.zeros(len(NAMES), WIDTH)


def with_wide_distances(program: PublishedProgram) -> None:
    program.weights["graph_encoder.distance_embedding.weight"] = torch.zeros(20, 4)


def with_arguments(**arguments: Any) -> Callable[[PublishedProgram], None]:
    return lambda program: program.arguments.update(arguments)


def with_label_tokens(label: int, tokens: Any) -> Callable[[PublishedProgram], None]:
    return lambda program: program.label_tokens.update({label: tokens})


def with_children(parent: Any, children: set[Any]) -> Callable[[PublishedProgram], None]:
    return lambda program: program.slot.update({parent: children})


def with_a_gap(program: PublishedProgram) -> None:
    program.label_tokens[9] = program.label_tokens.pop(3)


CHECKPOINT, NAMES_FILE, TREE_FILE = "checkpoint_best_macro.pt", "bert_value_dict.pt", "slot.pt"


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (with_arguments(graph=0), CHECKPOINT, r"unknown weight graph_encoder\.id_embedding\.weight and 2 more"),
        (with_arguments(layer=2), CHECKPOINT, r"no weight graph_encoder\.hir_layers\.1\.hir_attn\.\S+ and 13 more"),
        (with_arguments(layer=0), CHECKPOINT, "the argument layer is 0, not a number of layers"),
        (with_arguments(multi=False), CHECKPOINT, "trained for one label per text"),
        (with_arguments(lamb="much"), CHECKPOINT, "the argument lamb is 'much', not a number"),
        (with_arguments(thre=float("nan")), CHECKPOINT, "the argument thre is nan, not a number"),
        (with_arguments(tau=0), CHECKPOINT, "gumbel_temperature is 0.0; give a positive number"),
        (without_weight, CHECKPOINT, f"has no weight {LAYER}.cross_attn.k_proj.bias; --encoder and --data-path must"),
        (with_weight, CHECKPOINT, "has the unknown weight bert.pooler.dense.weight"),
        (with_wide_classifier, CHECKPOINT, r"classifier.weight has the shape \(7, 48\) in .* ask for \(7, 32\)"),
        (with_few_label_embeddings, CHECKPOINT, r"id_embedding.weight has the shape \(7, 32\) .* ask for \(8, 32\)"),
        (with_wide_distances, CHECKPOINT, r"distance_embedding.weight has the shape \(20, 4\) .* ask for \(20, 1\)"),
        (with_a_gap, NAMES_FILE, "of 7 labels, none has the id 3; number them from 0"),
        (with_label_tokens(2, []), NAMES_FILE, r"the name of label 2 is \[\], not a list of tokens"),
        (with_label_tokens(2, "law"), NAMES_FILE, "the name of label 2 is 'law', not a list of tokens"),
        (with_label_tokens(2, [9999]), NAMES_FILE, "the name of label 2 has the token 9999, which the encoder cannot"),
        (with_label_tokens(2, [6] * 63), NAMES_FILE, "the name of label 2 is 63 tokens long, which the encoder cannot"),
        (with_label_tokens(2, [6]), NAMES_FILE, "label 2 is called 'a' here and 'physics' in the checkpoint; give the"),
        (with_children(1, {3, 4}), TREE_FILE, "label 3 has two parents, 0 and 1; take it out of one of the two sets"),
        (with_children(3, {7}), TREE_FILE, "7 is no label: bert_value_dict.pt names those from 0 to 6"),
        (with_children("Root", {0}), TREE_FILE, "'Root' is no label"),
        (with_children(0, 2), TREE_FILE, "not a dict of sets of labels"),  # type: ignore[arg-type]
        (with_children(5, {0}), TREE_FILE, "labels form a cycle"),
        (with_children(4, set()), TREE_FILE, "the checkpoint was trained with another label tree; give the data"),
    ],
)
def test_what_cannot_be_imported_is_refused_with_file_and_reason(
    program: PublishedProgram,
    bert: str,
    tmp_path: Path,
    change: Callable[[PublishedProgram], None],
    place: str,
    message: str,
) -> None:
    change(program)
    with pytest.raises(InputError, match=f"{place}: .*{message}"):
        import_published(*program.write(tmp_path), bert, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT, "data"]


def test_a_tree_deeper_than_the_published_table_is_refused(bert: str, tokenizer, tmp_path: Path) -> None:
    """Depth 9 needs the distances 0 to 18 of the table's 0 to 19, depth 10 one more than there are."""
    words = ["science", "physics", "optics", "law", "society", "sports", "tennis", "rowing", "atom", "lens"]
    deep = PublishedProgram(tokenizer, words[:9], list(range(-1, 8)))
    assert len(read(deep, tmp_path / "nine", bert).label_encoder.structure.spatial) == 19
    too_deep = PublishedProgram(tokenizer, words, list(range(-1, 9)))
    with pytest.raises(InputError, match=r"depth 10 can have distances up to 20, .* below 20; trees up to depth 9"):
        read(too_deep, tmp_path / "ten", bert)


def test_an_encoder_of_another_kind_or_size_is_refused(
    program: PublishedProgram, bert: str, make_encoder: Callable[[str], str], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="is a mpnet encoder; the published program uses BERT"):
        read(program, tmp_path, make_encoder("mpnet"))
    with pytest.raises(InputError, match="no-such/encoder"):
        read(program, tmp_path, "no-such/encoder")
    for name in [name for name in program.weights if name.startswith("bert.encoder.layer.1.")]:
        program.weights[name.replace("layer.1.", "layer.2.")] = program.weights[name]
    with pytest.raises(InputError, match=r"unknown weight bert\.encoder\.layer\.2\.\S+ and 15 more; --encoder"):
        read(program, tmp_path, bert)


class Attack:
    """A pickle that runs a command when it is loaded without care."""

    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.witness}",)


@pytest.mark.parametrize("file", [CHECKPOINT, f"data/{NAMES_FILE}", f"data/{TREE_FILE}"])
@pytest.mark.parametrize("bare", [False, True])
def test_code_in_a_file_is_refused_and_not_run(
    program: PublishedProgram, bert: str, tmp_path: Path, file: str, bare: bool
) -> None:
    checkpoint, data = program.write(tmp_path)
    witness = tmp_path / "witness"
    content = {"param": Attack(witness)}
    if bare:
        (tmp_path / file).write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, tmp_path / file)
    with pytest.raises(InputError, match=r"refused: it asks for \w+\.system, and a checkpoint must be data, not code"):
        read_published(checkpoint, data, bert)
    assert not witness.exists()
    with (tmp_path / file).open("rb") as stream:  # the attack is real
        torch.load(stream, weights_only=False) if not bare else pickle.load(stream)
    assert witness.exists()


def test_files_that_are_missing_damaged_or_something_else_are_refused(
    program: PublishedProgram, bert: str, tmp_path: Path
) -> None:
    checkpoint, data = program.write(tmp_path)
    whole = checkpoint.read_bytes()
    for broken in (b"", b"no checkpoint", whole[: len(whole) // 2]):
        checkpoint.write_bytes(broken)
        with pytest.raises(InputError, match=f"{CHECKPOINT}: not a file of torch.save, or damaged"):
            read_published(checkpoint, data, bert)
    for other in ({"model": {}}, [1], {"param": {"classifier.weight": 3}}):
        torch.save(other, checkpoint)
        with pytest.raises(InputError, match=r"it has no weights under 'param'; give its checkpoint_best_macro\.pt"):
            read_published(checkpoint, data, bert)
    torch.save({"param": program.weights, "args": {"lamb": 1}}, checkpoint)
    with pytest.raises(InputError, match=r"'args' is a dict instead of an argparse\.Namespace"):
        read_published(checkpoint, data, bert)
    checkpoint.write_bytes(whole)
    for empty in ({}, [[1]]):
        torch.save(empty, data / NAMES_FILE)
        with pytest.raises(InputError, match=f"{NAMES_FILE}: not a dict of label names"):
            read_published(checkpoint, data, bert)
    (data / NAMES_FILE).unlink()
    with pytest.raises(InputError, match=f"{NAMES_FILE}: there is no such file"):
        read_published(checkpoint, data, bert)


def test_an_output_in_use_is_left_alone(program: PublishedProgram, bert: str, tmp_path: Path) -> None:
    files = program.write(tmp_path)
    output = tmp_path / "out"
    output.mkdir()
    (output / "mine").write_text("keep me")
    with pytest.raises(InputError, match="out: the output is there already; give a new or empty folder"):
        import_published(*files, bert, output)
    assert [path.name for path in output.iterdir()] == ["mine"]
    (output / "mine").unlink()
    import_published(*files, bert, output)
    with pytest.raises(InputError, match="there already"):
        import_published(*files, bert, output / "model" / "config.json")


def test_an_output_that_cannot_be_written_is_an_input_error(
    program: PublishedProgram, bert: str, tmp_path: Path
) -> None:
    checkpoint, data = program.write(tmp_path)
    with pytest.raises(InputError, match="the model cannot be written"):
        import_published(checkpoint, data, bert, checkpoint / "out")


def test_a_checkpoint_that_unpacks_to_more_than_it_has_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "best.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("best/data.pkl", b"\0" * 2**22)
    with pytest.raises(InputError, match=r"best\.pt: unpacks to 4,194,304 bytes in 1 files"):
        read_checkpoint(tmp_path / "best.pt")
