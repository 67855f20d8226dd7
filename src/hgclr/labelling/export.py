"""A data folder, and the disagreements of people as rows of an audit, from the answers of a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hgclr.data.folder import CorpusSummary, write_corpus
from hgclr.data.readers import text_hash
from hgclr.errors import InputError
from hgclr.evaluation.contradictions import ContradictedDocument, Scorer
from hgclr.labelling.store import Answer, Store
from hgclr.taxonomy import Taxonomy

DISAGREE, PARTIAL, NOWHERE, SKIPPED = "people disagree", "partial answer", "belongs nowhere", "skipped"
"""The reasons why a text with an answer is not in the data folder."""


def export(store: Store, taxonomy: Taxonomy, output: str | Path) -> CorpusSummary:
    """Write the answers on which people agree as a data folder, and return what was written and left out.

    Texts of the random slice become dev and test, half each by a hash of the text, so that a text stays in its split
    when more answers are exported. All others become train. Partial answers are left out because the rows of a data
    folder cannot say that a label is unknown, and texts that belong nowhere because each row needs a label.
    ``contradictions.jsonl`` has the texts on which people disagree.

    Raises:
        InputError: if train would be empty, or the output is another folder with files.
    """
    texts, settled, contradicted = store.documents(), store.settled(), store.disagreements()
    skipped = {answer.document for answer in store.current()} - settled.keys() - contradicted.keys()
    usable = {document for document, row in settled.items() if not np.isnan(row).any() and (row == 1).any()}
    if not any(text.id in usable and not text.random for text in texts):
        what = f"no answer for train; usable answers in the random slice: {len(usable):,}"
        raise InputError(what, path=store.folder, remedy="label more texts, to the end of their paths")
    settings = {"folder": store.folder.resolve().name, "seed": store.meta("seed")}
    with write_corpus(output, name="label", settings=settings) as writer:
        writer.taxonomy = taxonomy
        for text in texts:
            where = f"text {text.id}"
            if text.id in usable:
                split = "train" if not text.random else ("dev", "test")[text_hash(text.text) % 2]
                labels = [taxonomy.ids[label] for label in np.flatnonzero(settled[text.id]).tolist()]
                writer.add(split, text.text, labels, id=text.source)
            elif text.id in contradicted:
                answers = contradicted[text.id]
                writer.leave_out(DISAGREE, where, ", ".join(answer.user for answer in answers))
                writer.contradict(text.text, [(answer.user, answer.labels) for answer in answers])
            elif text.id in settled:
                writer.leave_out(PARTIAL if np.isnan(settled[text.id]).any() else NOWHERE, where)
            elif text.id in skipped:
                writer.leave_out(SKIPPED, where)
    return writer.summary


def disagreements(store: Store) -> list[dict[str, object]]:
    """Return the texts on which people disagree as rows of ``audit.csv``, where ``gold`` is the first person's answer.

    There is a row for each further person with other labels. ``source`` is the text's id in the file it is from.
    """
    taxonomy, texts, rows = store.taxonomy, store.documents(), list[dict[str, object]]()
    scorer = Scorer(taxonomy, np.ones((2, len(taxonomy))))

    def labels(answer: Answer) -> frozenset[int]:
        return frozenset(taxonomy.closure([taxonomy.resolve(label) for label in answer.labels]).tolist())

    def paths(answer: Answer) -> str:
        return "; ".join(taxonomy.path_name(taxonomy.resolve(label)) for label in answer.labels)

    for document, (first, *others) in store.disagreements().items():
        for other in others:
            pair = ContradictedDocument(document, {}, labels(first), labels(other))
            if differing := pair.extra | pair.missing:
                own = {"row": document, "text": texts[document].text, "gold": paths(first), "predicted": paths(other)}
                level = min(int(taxonomy.depths[label]) for label in differing)
                own |= {"kind": scorer.kind(pair), "level": level, "score": "", "verdict": ""}
                people = {"source": texts[document].source, "gold user": first.user, "predicted user": other.user}
                rows.append(own | people | {"gold note": first.note, "predicted note": other.note})
    return rows
