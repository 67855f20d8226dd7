"""Import of published checkpoints: the numbers of a literal computation, and refusals."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoConfig, BertModel

from hgclr.errors import InputError
from hgclr.models import FlatForSequenceClassification, HGCLRForSequenceClassification
from hgclr.paper.published import import_published, read_published
from support.literal import path_edges, training_step
from support.published_program import NAMES, PARENTS, POSITIONS, WIDTH, PublishedProgram, linear, norm

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
ATTENTION = ("query", "key", "value")


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
    names = {
        "classifier": "classifier",
        "projection.1": "contrastive_lossfct.transform.1",
        "projection.4": "contrastive_lossfct.transform.4",
        **{f"label_encoder.layers.0.{part}": f"{LAYER}.hir_attn.self.{part[0]}_proj" for part in ATTENTION},
        "label_encoder.layers.0.output": f"{LAYER}.hir_attn.self.out_proj",
        "label_encoder.layers.0.norm": f"{LAYER}.hir_attn.layer_norm",
        **{f"token_label_attention.{part}": f"{LAYER}.cross_attn.{part[0]}_proj" for part in ATTENTION[:2]},
    }
    for kind in ("weight", "bias"):
        literal |= {f"{ours}.{kind}": weights[f"{theirs}.{kind}"] for ours, theirs in names.items()}
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


@pytest.mark.parametrize("padding", [0.0, 0.02, -0.013])
def test_the_padding_row_of_the_edge_table_is_kept(
    program: PublishedProgram,
    bert: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    padding: float,
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
    (attention,) = structure(nothing[None], nothing[None], each[None], scale=1.0, dropout=torch.nn.Identity())
    spatial = program.weights["graph_encoder.distance_embedding.weight"]
    for i in range(count):
        bias = []
        for j in range(count):
            path = path_edges(PARENTS, i, j)
            slots = [*(child + 1 for child in path), *[0] * (15 - len(path))]
            bias.append(spatial[len(path), 0] + sum(edges[slot, 0] for slot in slots) / (len(path) + 1e-8))
        torch.testing.assert_close(attention[i], torch.stack(bias).softmax(0))
    assert f"{padding}" in caplog.text if padding else not caplog.records


def test_a_parent_with_a_larger_number_gets_the_right_distances_and_a_warning(
    bert: str, tokenizer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = PublishedProgram(tokenizer, ["physics", "science", "law"], [1, -1, -1])
    assert program.weights["graph_encoder.distance_mat"][0, 1] == 3  # which the published program thinks
    model = read(program, tmp_path, bert)
    assert model.config.taxonomy.distance(0, 1) == 1
    assert "wrong distances" in caplog.text


def without_weight(program: PublishedProgram) -> None:
    del program.weights[f"{LAYER}.cross_attn.k_proj.bias"]


def with_wide_classifier(program: PublishedProgram) -> None:
    program.weights["classifier.weight"] = torch.zeros(len(NAMES), 48)


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
    ("change", "place"),
    [
        (with_arguments(graph=0), CHECKPOINT),
        (with_arguments(layer=2), CHECKPOINT),
        (with_arguments(multi=False), CHECKPOINT),
        (with_arguments(thre=float("nan")), CHECKPOINT),
        (with_arguments(tau=0), CHECKPOINT),
        (without_weight, CHECKPOINT),
        (with_wide_classifier, CHECKPOINT),
        (with_a_gap, NAMES_FILE),
        (with_label_tokens(2, "law"), NAMES_FILE),
        (with_label_tokens(2, [9999]), NAMES_FILE),
        (with_label_tokens(2, [6] * 63), NAMES_FILE),
        (with_label_tokens(2, [6]), NAMES_FILE),
        (with_children(1, {3, 4}), TREE_FILE),
        (with_children(3, {7}), TREE_FILE),
        (with_children(0, 2), TREE_FILE),  # type: ignore[arg-type]
        (with_children(5, {0}), TREE_FILE),
        (with_children(4, set()), TREE_FILE),
    ],
)
def test_what_cannot_be_imported_is_refused_with_its_file(
    program: PublishedProgram, bert: str, tmp_path: Path, change: Callable[[PublishedProgram], None], place: str
) -> None:
    change(program)
    with pytest.raises(InputError) as error:
        import_published(*program.write(tmp_path), bert, tmp_path / "out")
    assert Path(str(error.value.path)).name == place
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT, "data"]


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
    with pytest.raises(InputError):
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

    def refused(path: Path) -> None:
        with pytest.raises(InputError) as error:
            read_published(checkpoint, data, bert)
        assert error.value.path == path

    for broken in (b"", b"no checkpoint", whole[: len(whole) // 2]):
        checkpoint.write_bytes(broken)
        refused(checkpoint)
    wrong_arguments = {"param": program.weights, "args": {"lamb": 1}}
    for other in ({"model": {}}, [1], {"param": {"classifier.weight": 3}}, wrong_arguments):
        torch.save(other, checkpoint)
        refused(checkpoint)
    checkpoint.write_bytes(whole)
    torch.save({}, data / NAMES_FILE)
    refused(data / NAMES_FILE)
    (data / NAMES_FILE).unlink()
    refused(data / NAMES_FILE)


LAYER, LAST = "graph_encoder.hir_layers.0", "graph_encoder.hir_layers.1"
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
Change = Callable[[PublishedProgram], None]


def without_graph(program: PublishedProgram) -> None:
    program.arguments["graph"] = 0
    for name in [name for name in program.weights if name.startswith("graph_encoder.")]:
        if not name.startswith(("graph_encoder.hir_layers.", "graph_encoder.label_name")):
            del program.weights[name]


def two_layers(program: PublishedProgram) -> None:
    program.arguments["layer"] = 2
    for name in [name for name in program.weights if name.startswith(LAYER)]:
        program.weights[LAST + name.removeprefix(LAYER)] = program.weights.pop(name)
    for part in PROJECTIONS:
        program.weights |= linear(f"{LAYER}.hir_attn.self.{part}")
    program.weights |= norm(f"{LAYER}.hir_attn.layer_norm") | norm(f"{LAYER}.output_layer_norm")
    program.weights |= linear(f"{LAYER}.output_layer.0", WIDTH, 4 * WIDTH)
    program.weights |= linear(f"{LAYER}.output_layer.2", 4 * WIDTH, WIDTH)


def convolved(names: dict[str, tuple[int, ...]]) -> Change:
    """One graph convolution in the place of the attention, with weights of these names and shapes."""

    def change(program: PublishedProgram) -> None:
        without_graph(program)
        program.arguments["graph"] = 1
        for name in [name for name in program.weights if ".hir_attn." in name]:
            del program.weights[name]
        program.weights |= {f"{LAYER}.hir_attn.{name}": torch.randn(shape) * 0.3 for name, shape in names.items()}
        if "lin_l.weight" in names:
            program.weights[f"{LAYER}.hir_attn.lin_r.weight"] = program.weights[f"{LAYER}.hir_attn.lin_l.weight"]
        edges = [(child, parent) for child, parent in enumerate(PARENTS) if parent >= 0]
        program.weights["graph_encoder.edge_list"] = torch.tensor(edges + [edge[::-1] for edge in edges]).T

    return change


def projected(program: PublishedProgram, name: str, features: Tensor) -> Tensor:
    return F.linear(features, program.weights[f"{name}.weight"], program.weights[f"{name}.bias"])


def normed(program: PublishedProgram, name: str, features: Tensor) -> Tensor:
    return F.layer_norm(features, (WIDTH,), program.weights[f"{name}.weight"], program.weights[f"{name}.bias"], 1e-12)


def attended(program: PublishedProgram, layer: str, features: Tensor, bias: Tensor | None = None) -> Tensor:
    """One layer's self-attention with residual and LayerNorm; the tests' BERT has 4 heads."""
    query, key, value = (
        projected(program, f"{layer}.hir_attn.self.{part}", features).view(-1, 4, WIDTH // 4).transpose(0, 1)
        for part in ("q_proj", "k_proj", "v_proj")
    )
    mixed = F.scaled_dot_product_attention(query, key, value, bias).transpose(0, 1).flatten(1)
    mixed = projected(program, f"{layer}.hir_attn.self.out_proj", mixed)
    return normed(program, f"{layer}.hir_attn.layer_norm", mixed + features)


def bias_of(program: PublishedProgram) -> Tensor:
    """What is added to the attention logits between labels, (K, K); the padding row is 0."""
    distances = program.weights["graph_encoder.distance_embedding.weight"][:, 0]
    edges = program.weights["graph_encoder.edge_embedding.weight"][:, 0]
    bias = torch.empty(len(NAMES), len(NAMES))
    for i in range(len(NAMES)):
        for j in range(len(NAMES)):
            path = path_edges(PARENTS, i, j)
            bias[i, j] = distances[len(path)] + sum(edges[child + 1] for child in path) / max(1, len(path))
    return bias


def two_layer_features(program: PublishedProgram, names: Tensor) -> Tensor:
    bias = bias_of(program)
    features = attended(program, LAYER, names + program.weights["graph_encoder.id_embedding.weight"][:-1], bias)
    inner = F.gelu(projected(program, f"{LAYER}.output_layer.0", features))
    features = projected(program, f"{LAYER}.output_layer.2", inner) + features
    return attended(program, LAST, normed(program, f"{LAYER}.output_layer_norm", features), bias)


def neighbours() -> Tensor:
    near = torch.eye(len(NAMES))
    for child, parent in enumerate(PARENTS):
        if parent >= 0:
            near[child, parent] = near[parent, child] = 1.0
    return near


def gcn_features(program: PublishedProgram, names: Tensor) -> Tensor:
    matrix = program.weights.get(f"{LAYER}.hir_attn.weight")  # multiplies from the right
    if matrix is None:
        matrix = program.weights[f"{LAYER}.hir_attn.lin.weight"].T
    near = neighbours()
    root = near.sum(1).rsqrt()
    return (root[:, None] * near * root) @ names @ matrix + program.weights[f"{LAYER}.hir_attn.bias"]


def gat_features(program: PublishedProgram, names: Tensor) -> Tensor:
    prefix = f"{LAYER}.hir_attn."
    parts = {name.removeprefix(prefix): weight for name, weight in program.weights.items() if name.startswith(prefix)}
    old = "att_l" in parts
    features = names @ parts["lin_l.weight" if old else "lin_src.weight"].T
    source = features @ parts["att_l" if old else "att_src"].flatten()
    target = features @ parts["att_r" if old else "att_dst"].flatten()
    logits = F.leaky_relu(target[:, None] + source, 0.2)
    return logits.masked_fill(neighbours() == 0, -torch.inf).softmax(-1) @ features + parts["bias"]


SQUARE, VECTOR, BIAS = (WIDTH, WIDTH), (1, 1, WIDTH), {"bias": (WIDTH,)}
OLD_GCN = convolved({"weight": SQUARE} | BIAS)
OLD_GAT = convolved({"lin_l.weight": SQUARE, "att_l": VECTOR, "att_r": VECTOR} | BIAS)
NEW_GCN = convolved({"lin.weight": SQUARE} | BIAS)
NEW_GAT = convolved({"lin_src.weight": SQUARE, "att_src": VECTOR, "att_dst": VECTOR} | BIAS)
PARTS = {"label_embedding": False, "spatial_encoding": False, "edge_encoding": False}
FORMS: dict[str, tuple[Change, Callable[[PublishedProgram, Tensor], Tensor], dict[str, Any]]] = {
    "graph 0": (without_graph, lambda program, names: attended(program, LAYER, names), PARTS),
    "two layers": (two_layers, two_layer_features, {"label_layers": 2, "label_embedding": True}),
    "gcn of torch_geometric 1": (OLD_GCN, gcn_features, {"label_encoder": "gcn", "label_embedding": False}),
    "gcn": (NEW_GCN, gcn_features, {"label_encoder": "gcn", "label_embedding": False}),
    "gat of torch_geometric 1": (OLD_GAT, gat_features, {"label_encoder": "gat", "label_embedding": False}),
    "gat": (NEW_GAT, gat_features, {"label_encoder": "gat", "label_embedding": False}),
}


@pytest.mark.parametrize("form", FORMS)
def test_label_features_are_those_of_the_published_program(
    program: PublishedProgram,
    make_encoder: Callable[[str], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    form: str,
) -> None:
    change, features, settings = FORMS[form]
    change(program)
    result = import_published(*program.write(tmp_path), make_encoder("bert"), tmp_path / "out")
    assert not caplog.records
    model = HGCLRForSequenceClassification.from_pretrained(result.training_model).eval()
    assert {name: getattr(model.config, name) for name in settings} == settings
    with torch.no_grad():
        expected = features(program, model.name_embeddings())
        torch.testing.assert_close(model.label_features(), expected, atol=1e-5, rtol=1e-4)
    last = f"graph_encoder.hir_layers.{model.config.label_layers - 1}"
    for ours, theirs in (("query", "q_proj"), ("key", "k_proj")):
        found = getattr(model.token_label_attention, ours).weight
        assert torch.equal(found, program.weights[f"{last}.cross_attn.{theirs}.weight"])
    ids = torch.tensor([[2, 8, 9, 3]])
    output = model.train()(ids, torch.ones_like(ids), torch.eye(len(NAMES))[:1])
    assert output.loss.isfinite()
