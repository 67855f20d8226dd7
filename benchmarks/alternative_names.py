"""Measure what alternative names add to the efforts ``names`` and ``head``.

    python benchmarks/alternative_names.py esco FOLDER --output benchmarks/results/alternative-names/esco.json
    python benchmarks/alternative_names.py skos stw-skos.ttl.gz --output benchmarks/results/alternative-names/stw.json

``esco``: the labels are the ISCO groups; the texts are the names and alternative names of ESCO's occupations. Half of
the occupations give their names to their groups as alternative names; of the others, 20 % give training documents,
10 % dev and 20 % test, so that no occupation has names on two sides. ``skos``: the labels are the concepts of a
thesaurus, each below its main parent; of each concept with two or more alternative names one is a text of dev or test,
of each with three or more another one is a training document, and the others stay alternative names. In both sets a
text is left out if it is also a name in the tree, or a text of another label, capitals and spaces aside.
"""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from collections import Counter
from pathlib import Path

from hgclr.taxonomy import Taxonomy
from hgclr.training import RunConfig, train
from measuring import arguments_of, provenance, show, write

Rows = dict[str, list[tuple[str, int]]]
SEED, SPLITS = 0, ("train", "dev", "test")


def folded(text: str) -> str:
    """Return a text without capitals and repeated spaces."""
    return " ".join(text.casefold().split())


def esco(source: Path) -> tuple[Taxonomy, Rows]:
    """Return the tree of ISCO groups with alternative names, and the texts with their labels."""
    whole, _ = Taxonomy.import_from([source])
    groups = [index for index in range(len(whole)) if whole.codes[index].isdigit()]
    place = {index: number for number, index in enumerate(groups)}
    occupations = sorted(set(range(len(whole))) - set(groups), key=whole.ids.__getitem__)
    random.Random(SEED).shuffle(occupations)
    names: list[list[str]] = [[] for _ in groups]
    rows: Rows = {split: [] for split in SPLITS}
    for number, occupation in enumerate(occupations):
        group = place[next(above for above in whole.ancestors(occupation).tolist() if above in place)]
        texts = [whole.names[occupation], *whole.alternatives[occupation]]
        share = number / len(occupations)
        if share < 0.5:
            names[group] += texts
        else:
            split = "train" if share < 0.7 else "dev" if share < 0.8 else "test"
            rows[split] += [(text, group) for text in texts]
    parents = [place.get(int(whole.parents[index]), -1) for index in groups]
    parts = [[of[index] for index in groups] for of in (whole.ids, whole.names, whole.descriptions)]
    return Taxonomy(parts[0], parents, parts[1], parts[2], alternatives=names), rows


def skos(source: Path) -> tuple[Taxonomy, Rows]:
    """Return the thesaurus without the alternative names that are texts, and these."""
    whole, _ = Taxonomy.import_from([source])
    draw = random.Random(SEED)
    rows: Rows = {split: [] for split in SPLITS}
    kept = []
    for index, names in enumerate(whole.alternatives):
        names = draw.sample(names, len(names))
        if len(names) > 1:
            rows["dev" if draw.random() < 0.25 else "test"].append((names.pop(), index))
        if len(names) > 1:
            rows["train"].append((names.pop(), index))
        kept.append(names)
    return Taxonomy(whole.ids, whole.parents, whole.names, whole.descriptions, alternatives=kept), rows


def without_leaks(tree: Taxonomy, rows: Rows) -> Rows:
    """Leave out texts that the tree has, and those with several labels or in several splits."""
    known = {folded(text) for text in tree.names} | {folded(text) for names in tree.alternatives for text in names}
    places = Counter(folded(text) for split in rows.values() for text in {folded(text): None for text, _ in split})
    labels = Counter(text for text, _ in {(folded(text), label) for split in rows.values() for text, label in split})
    return {
        split: list({
            folded(text): (text, label)
            for text, label in texts
            if folded(text) not in known and places[folded(text)] == labels[folded(text)] == 1
        }.values())
        for split, texts in rows.items()
    }  # fmt: skip


def scores(tree: Taxonomy, rows: Rows, effort: str, folder: Path, encoder: str) -> dict[str, float]:
    """Train with the tree alone or on the rows, and return the scores of test."""
    data = folder / "data"
    data.mkdir(parents=True)
    tree.write(data / "taxonomy.json")
    for split, texts in rows.items():
        with gzip.open(data / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
            for text, label in texts:
                row = {"text": text, "labels": [tree.ids[one] for one in sorted(tree.closure([label]).tolist())]}
                file.write(json.dumps(row) + "\n")
    run = RunConfig(
        data={"path": data},
        model={"encoder": encoder},
        training={"effort": effort, "seed": SEED},
        output=folder / "run",
    )
    train(run)
    test = json.loads((folder / "run" / "metrics.json").read_text())["test"]
    bands = [band for band in test["by_frequency"].values() if band["labels_with_gold"]]
    labels = sum(band["labels_with_gold"] for band in bands)
    gold = sum(band["labels_with_gold"] * band["macro_gold"]["f1"] for band in bands) / labels
    return {
        **{f"{name}_f1": test[name]["f1"] for name in ("micro", "macro")},
        "macro_gold_f1": gold,
        "labels_with_gold": labels,
    }


def main() -> None:
    """Measure, write and print."""
    parser = arguments_of(__doc__)
    parser.add_argument("set", choices=("esco", "skos"))
    parser.add_argument("source", type=Path, help="folder of ESCO's tables, or a thesaurus")
    parser.add_argument("--efforts", default="names,head", help="efforts to measure")
    parser.add_argument("--encoder", default="all-MiniLM-L6-v2")
    parser.add_argument("--output", type=Path, required=True, help="JSON file to write")
    arguments = parser.parse_args()
    tree, rows = {"esco": esco, "skos": skos}[arguments.set](arguments.source)
    rows = without_leaks(tree, rows)
    bare = Taxonomy(tree.ids, tree.parents, tree.names, tree.descriptions)
    found = {}
    for effort in arguments.efforts.split(","):
        for name, one in (("without", bare), ("with", tree)):
            with tempfile.TemporaryDirectory() as folder:
                found[f"{effort}, {name}"] = scores(one, rows, effort, Path(folder), arguments.encoder)
    counts = {split: len(texts) for split, texts in rows.items()}
    counts |= {"labels": len(tree), "alternative_names": sum(map(len, tree.alternatives))}
    write(
        {"set": arguments.set, "encoder": arguments.encoder, **counts, "test": found, **provenance()}, arguments.output
    )
    headings = ("effort, alternative names", "Micro-F1", "Macro-F1", "Macro-F1 of gold labels")
    kinds = ("micro_f1", "macro_f1", "macro_gold_f1")
    show(arguments.set, headings, [(name, *(f"{100 * of[kind]:.1f}" for kind in kinds)) for name, of in found.items()])


if __name__ == "__main__":
    main()
