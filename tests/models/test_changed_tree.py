"""Models taken over to a changed tree: what old labels keep, what new ones start from, by other derivations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit

from hgclr.errors import InputError
from hgclr.models import HierarchicalPreTrainedModel, architecture
from hgclr.models.base import load_tokenizer
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.changes import TreeChanges, compare
from hgclr.training.changed_tree import carry_over

TEXTS = ["quantum laser of the atom", "judge", "serve the racket in the net of the lake", "salt is a molecule"]
SIZES = {"label_heads": 4, "classifier_dropout": 0.0}
KINDS = ["flat", "hgclr"]


@pytest.fixture
def tokenizer(make_encoder):
    return load_tokenizer(make_encoder("bert"))


@pytest.fixture
def grown(taxonomy: Taxonomy) -> Taxonomy:
    """The toy tree with labels at every depth, in another order: below a leaf, below a new label, at the top."""
    edges = {identifier: _parent(taxonomy, identifier) for identifier in taxonomy.ids}
    edges |= {"mirror": "optics", "lens": "optics", "acid": "mirror", "lake": None, "boat": "lake"}
    return make_tree(dict(sorted(edges.items(), key=lambda edge: edge[0][::-1])))


def _parent(tree: Taxonomy, identifier: str) -> str | None:
    parent = tree.parents[tree.ids.index(identifier)]
    return None if parent < 0 else tree.ids[parent]


def make_tree(edges: dict[str, str | None], names: dict[str, str] | None = None) -> Taxonomy:
    ids = list(edges)
    parents = [-1 if above is None else ids.index(above) for above in edges.values()]
    return Taxonomy(ids, parents, [(names or {}).get(identifier, identifier) for identifier in ids])


def trained(name: str, make_encoder, taxonomy: Taxonomy, tokenizer, **settings) -> HierarchicalPreTrainedModel:
    """A model all of whose weights and buffers are random numbers, as after a training that nobody can guess."""
    torch.manual_seed(1)
    model = architecture(name).from_encoder(make_encoder("bert"), taxonomy, tokenizer, **(SIZES | settings))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if not key.startswith("encoder."):
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def logits(model: HierarchicalPreTrainedModel, tokenizer, texts=TEXTS) -> torch.Tensor:
    batch = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
    with torch.no_grad():
        return model(batch["input_ids"], batch["attention_mask"]).logits


def carried(model: HierarchicalPreTrainedModel, changes: TreeChanges, tokenizer) -> HierarchicalPreTrainedModel:
    rates = torch.linspace(0.02, 0.4, len(changes.new))
    return carry_over(model, changes, tokenizer, rates=rates, texts=TEXTS)


@pytest.mark.parametrize("name", KINDS)
def test_new_labels_change_no_logit_of_an_old_one(make_encoder, taxonomy, grown, tokenizer, name: str) -> None:
    model = trained(name, make_encoder, taxonomy, tokenizer)
    new = carried(model, compare(taxonomy, grown), tokenizer)
    places = [grown.ids.index(identifier) for identifier in taxonomy.ids]
    found = logits(new, tokenizer)
    assert found.shape == (4, len(grown))
    torch.testing.assert_close(found[:, places], logits(model, tokenizer), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        logits(new.deployed(), tokenizer)[:, places], logits(model.deployed(), tokenizer), atol=1e-5, rtol=1e-5
    )
    assert new.config.taxonomy == grown


@pytest.mark.parametrize("name", KINDS)
def test_another_order_is_the_same_model(make_encoder, taxonomy, tokenizer, name: str) -> None:
    """In training mode too, so that every part of the label side has to be in its place."""
    torch.manual_seed(0)
    order = torch.randperm(len(taxonomy)).tolist()
    parents = [order.index(int(taxonomy.parents[label])) if taxonomy.parents[label] >= 0 else -1 for label in order]
    turned = Taxonomy([taxonomy.ids[label] for label in order], parents)
    model = trained(name, make_encoder, taxonomy, tokenizer, positives="hierarchy")
    new = carried(model, compare(taxonomy, turned), tokenizer)
    torch.testing.assert_close(logits(new, tokenizer), logits(model, tokenizer)[:, order], atol=1e-5, rtol=1e-5)
    if name == "hgclr":
        torch.testing.assert_close(new.label_features(), model.label_features()[order], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", KINDS)
def test_all_that_is_sized_by_labels_is_known(make_encoder, taxonomy, grown, tokenizer, name: str) -> None:
    model = trained(name, make_encoder, taxonomy, tokenizer)
    other = architecture(name).from_encoder(make_encoder("bert"), grown, tokenizer, **SIZES)
    sized = {key for key, value in other.state_dict().items() if value.shape != model.state_dict()[key].shape}
    new = carried(model, compare(taxonomy, grown), tokenizer).state_dict()
    assert {key: value.shape for key, value in new.items()} == {
        key: value.shape for key, value in other.state_dict().items()
    }
    assert {"classifier.weight", "classifier.bias"} <= sized
    for key in new.keys() - sized - {"batches"}:  # the rest is the old model's
        assert torch.equal(new[key], model.state_dict()[key]), key


def name_direction(model: HierarchicalPreTrainedModel, tokenizer, tree: Taxonomy) -> np.ndarray:
    """Where the encoder puts each name, one name at a time, less their mean, at length 1."""
    vectors = []
    for name in tree.names:
        hidden = model.encoder(**tokenizer([name], return_tensors="pt")).last_hidden_state
        vectors.append(hidden[0, 0].detach().numpy().astype(np.float64))
    centred = np.array(vectors) - np.mean(vectors, 0)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


@pytest.mark.parametrize("name", ["flat", "hgclr"])
@pytest.mark.parametrize("meaning", [1.0, -1.0])
def test_a_new_label_starts_from_its_name_and_its_parent(
    make_encoder, taxonomy, grown, tokenizer, name: str, meaning: float
) -> None:
    model = trained(name, make_encoder, taxonomy, tokenizer)
    directions = name_direction(model, tokenizer, grown)
    at = {identifier: index for index, identifier in enumerate(grown.ids)}
    rows = dict(zip(taxonomy.ids, model.classifier.weight, strict=True))
    with torch.no_grad():  # what a label has beyond its parent points to its name, or away from it
        for identifier in taxonomy.ids:
            rows[identifier] += meaning * 2 * torch.from_numpy(directions[at[identifier]]).float()
    rows = {identifier: row.detach().numpy().astype(np.float64).copy() for identifier, row in rows.items()}
    new = carried(model, compare(taxonomy, grown), tokenizer)

    above = {identifier: _parent(grown, identifier) for identifier in grown.ids}
    agreement: dict[int, list[float]] = {}
    for identifier in taxonomy.ids:
        beyond = rows[identifier] - (0 if above[identifier] is None else rows[above[identifier]])
        agreement.setdefault(int(grown.depths[at[identifier]]), []).append(beyond @ directions[at[identifier]])
    everywhere = [value for values in agreement.values() for value in values]
    for identifier in ("lake", "mirror", "lens", "boat", "acid"):  # parents first
        depth = int(grown.depths[at[identifier]])
        scale = max(0.0, np.mean(agreement.get(depth, everywhere)))
        parent = 0 if above[identifier] is None else rows[above[identifier]]
        rows[identifier] = parent + scale * directions[at[identifier]]
    assert {3, 4, 5} - set(agreement) == {4, 5}  # depths that no old label has
    for identifier, row in rows.items():
        np.testing.assert_allclose(new.classifier.weight[at[identifier]].detach().numpy(), row, atol=1e-4)
    for place, identifier in enumerate(taxonomy.ids):
        assert torch.equal(new.classifier.weight[at[identifier]], model.classifier.weight[place])
        assert new.classifier.bias[at[identifier]] == model.classifier.bias[place]


@pytest.mark.parametrize("name", KINDS)
def test_a_new_label_is_as_probable_as_it_is_frequent(make_encoder, taxonomy, grown, tokenizer, name: str) -> None:
    model = trained(name, make_encoder, taxonomy, tokenizer)
    changes = compare(taxonomy, grown)
    new = carried(model, changes, tokenizer)
    rates = np.linspace(0.02, 0.4, len(grown))
    found = logits(new, tokenizer).double().numpy()
    bias = new.classifier.bias.detach().double().numpy()
    for label in changes.added:

        def excess(b: float, label: int = label) -> float:
            return expit(found[:, label] - bias[label] + b).mean() - rates[label]

        assert bias[label] == pytest.approx(brentq(excess, -60, 60), abs=1e-4)


def test_label_side_of_new_labels(make_encoder, taxonomy, grown, tokenizer) -> None:
    model = trained("hgclr", make_encoder, taxonomy, tokenizer, edge_padding="drawn")
    model.name_tokens[taxonomy.ids.index("law"), 1] = 9  # an imported checkpoint may know a name by other tokens
    new = carried(model, compare(taxonomy, grown), tokenizer)
    at = {identifier: index for index, identifier in enumerate(grown.ids)}
    old_edges, edges = model.label_encoder.structure.edge, new.label_encoder.structure.edge
    for child, parent in (("mirror", "optics"), ("acid", "mirror"), ("boat", "lake")):
        assert edges[at[child]] == edges[at[parent]]
    tops = [taxonomy.ids.index(identifier) for identifier in ("science", "society")]
    assert float(edges[at["lake"]].detach()) == pytest.approx(float(old_edges[tops].detach().mean()))
    embedding = new.label_encoder.label_embedding.weight
    assert torch.equal(embedding[at["lens"]], embedding[at["optics"]])
    old_spatial, spatial = model.label_encoder.structure.spatial, new.label_encoder.structure.spatial
    assert (len(old_spatial), len(spatial)) == (7, 11)  # depths 3 and 5
    assert torch.equal(spatial[:7], old_spatial)
    assert (spatial[7:] == old_spatial[6]).all()
    assert new.label_encoder.structure.padding == model.label_encoder.structure.padding != 0
    for identifier, row in zip(grown.ids, new.name_tokens, strict=True):
        expected = tokenizer(identifier)["input_ids"]
        if identifier == "law":
            expected[1] = 9
        assert row[row >= 0].tolist() == expected


@pytest.mark.parametrize("name", KINDS)
def test_removed_renamed_and_moved_labels(make_encoder, taxonomy, tokenizer, name: str) -> None:
    model = trained(name, make_encoder, taxonomy, tokenizer)
    edges = {identifier: _parent(taxonomy, identifier) for identifier in taxonomy.ids if identifier != "rowing"}
    edges["law"] = "science"
    tree = make_tree(edges, {"physics": "atom of the laser"})
    new = carried(model, compare(taxonomy, tree), tokenizer)
    assert new.config.taxonomy == tree
    places = [taxonomy.ids.index(identifier) for identifier in tree.ids]
    torch.testing.assert_close(logits(new, tokenizer), logits(model, tokenizer)[:, places])
    assert torch.equal(new.classifier.weight, model.classifier.weight[places])
    assert torch.equal(new.classifier.bias, model.classifier.bias[places])


def test_merged_and_split_labels(make_encoder, taxonomy, tokenizer) -> None:
    model = trained("flat", make_encoder, taxonomy, tokenizer)
    edges = {identifier: _parent(taxonomy, identifier) for identifier in taxonomy.ids}
    del edges["tennis"], edges["rowing"], edges["law"]
    edges |= {"games": "sports", "court": "society", "judge": "society"}
    tree = make_tree(edges)
    changes = compare(taxonomy, tree, {"tennis": ["games"], "rowing": ["games"], "law": ["court", "judge"]})
    new = carried(model, changes, tokenizer)
    old = {identifier: index for index, identifier in enumerate(taxonomy.ids)}
    at = {identifier: index for index, identifier in enumerate(tree.ids)}
    weight, before = new.classifier.weight, model.classifier.weight
    torch.testing.assert_close(weight[at["games"]], (before[old["tennis"]] + before[old["rowing"]]) / 2)
    torch.testing.assert_close((weight[at["court"]] + weight[at["judge"]]) / 2, before[old["law"]])
    assert new.classifier.bias[at["science"]] == model.classifier.bias[old["science"]]
    rates = np.linspace(0.02, 0.4, len(tree))
    probabilities = torch.sigmoid(logits(new, tokenizer)).mean(0)
    for identifier in ("games", "court", "judge"):
        assert float(probabilities[at[identifier]]) == pytest.approx(rates[at[identifier]], abs=1e-4)


def test_trees_without_a_common_label_are_refused(make_encoder, taxonomy, tokenizer) -> None:
    model = trained("flat", make_encoder, taxonomy, tokenizer)
    with pytest.raises(InputError) as refused:
        carried(model, compare(taxonomy, Taxonomy(["elsewhere"], [-1])), tokenizer)
    assert refused.value.remedy
