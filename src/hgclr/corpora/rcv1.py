"""RCV1-V2: the Reuters disks, with the topic tree and the training documents of Lewis et al. (2004)."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Literal

import numpy as np

from hgclr.corpora.rcv1_disks import (
    IdList,
    ItemReader,
    Story,
    TextForm,
    Unusable,
    find_disks,
    in_order,
    usable_cores,
)
from hgclr.data.folder_writer import CorpusSummary, Progress, write_corpus
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.entries import LabelEntry, Source, link

__all__ = ["build_rcv1", "read_topics", "split_training"]

logger = logging.getLogger(__name__)
LabelNames = Literal["codes", "descriptions"]
LINE = re.compile(r"\s*parent:\s*(\S+)\s+child:\s*(\S+)\s+child-description:\s*(\S.*)")
ROOT = "Root"
"""What stands above the top topics; it is no topic."""
TRAINING_FILE, TOPIC_FILE = "lyrl2004_tokens_train.dat", "rcv1.topics.hier.orig"
DOCUMENTS = 804_414
"""What RCV1-v2 has."""
MOST_WORKERS = 4
"""Compressing the text takes half as long as reading it and is done by one process, which two readers keep busy."""


def build_rcv1(
    source: str | Path,
    output: str | Path,
    *,
    train_ids: str | Path | None = None,
    topics: str | Path | None = None,
    label_names: LabelNames = "codes",
    text: TextForm = "full",
    ids: str | Path | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CorpusSummary:
    """Write RCV1-V2 as a data folder.

    **Documents** are the news items that have a topic and a region, or those that ``ids`` lists, in the order of the
    names of their archives and then of their ids. Of items with the same id, the first usable one counts.

    **Labels** are the topics of an item and all above them, which the disks leave out at times. Topics that the topic
    file does not have are dropped and reported in the log; an item with no other topic is left out.

    **Splits**: the ids of the training file in ascending order, split 90/10 as scikit-learn's
    ``train_test_split(test_size=0.1, random_state=0)`` does, are train and dev; all other documents are test.

    The arguments are the options of ``hgclr data prepare rcv1``; ``progress`` is called with the number of archives
    done and to do. With several workers, a script that calls this needs ``if __name__ == "__main__":``.
    """
    disks = find_disks(Path(source))
    training_file = Path(train_ids or disks.named(TRAINING_FILE, f"{TRAINING_FILE}.gz", option="--train-ids"))
    training = IdList(training_file, mark=".I")
    topic_file = Path(topics or disks.named(TOPIC_FILE, option="--topics"))
    tree = read_topics(topic_file, label_names)
    wanted = None if ids is None else IdList(Path(ids))
    reader = ItemReader.of(tree, text=text, need_region=wanted is None)
    settings = {
        "source": disks.source,
        "train_ids": training.path,
        "topics": topic_file,
        "label_names": label_names,
        "text": text,
        "ids": wanted and wanted.path,
    }
    splits, ids_wanted = split_training(training.ids), None if wanted is None else wanted.ids
    used: set[int] = set()
    lost: set[int] = set()
    unknown: Counter[str] = Counter()
    with write_corpus(output, name="rcv1", settings=settings) as writer:
        writer.taxonomy = tree
        with closing(in_order(reader, disks.portions, workers or min(usable_cores(), MOST_WORKERS))) as portions:
            for done, contents in enumerate(portions, 1):
                unknown += contents.unknown
                for document in contents.documents:
                    if problem := _problem(document, used, ids_wanted):
                        writer.leave_out(problem[0], document.where, problem[1])
                        lost |= set() if document.id is None else {document.id}
                    elif isinstance(document, Story):
                        used.add(document.id)
                        split = splits.get(document.id, "test")
                        writer.add(split, document.text, document.labels, id=str(document.id))
                if progress is not None:
                    progress(done, len(disks.portions))
        for listed in (training, wanted):
            if listed is not None:
                listed.require(used | lost)
    if unknown:
        shown = ", ".join(f"{topic} ({count:,})" for topic, count in sorted(unknown.items()))
        logger.warning("dropped topics that %s does not have (in so many documents): %s", topic_file.name, shown)
    if len(used) != DOCUMENTS:
        logger.warning("RCV1-v2 has %s documents, this corpus %s", f"{DOCUMENTS:,}", f"{len(used):,}")
    return writer.summary


def _problem(document: Story | Unusable, used: set[int], wanted: set[int] | None) -> tuple[str, str | None] | None:
    """Return why a document is left out, if so, and what is wrong with this one."""
    if isinstance(document, Unusable):
        return document.reason, document.detail
    if document.id in used:
        return "an id that an earlier document has", str(document.id)
    if wanted is not None and document.id not in wanted:
        return "not among the wanted ids", str(document.id)
    return None


def read_topics(path: str | Path, label_names: LabelNames = "codes") -> Taxonomy:
    """Read lines ``parent: CCAT  child: C11  child-description: STRATEGY/PLANS`` in any order.

    The topics come in the order of the literature's label file, so that an index means the same topic in the
    published models: the children of the root, then, going down the tree depth first, the children of each topic.

    Args:
        path: the file.
        label_names: what a topic is called: its code or its description. Its id is the code in both cases.
    """
    source = Source.load(path)
    entries = []
    for number, line in source.lines():
        found = LINE.fullmatch(line)
        if found is None:
            raise source.error(
                f"not a line of a topic file: {line.strip()[:60]!r}",
                number,
                "write 'parent: CODE  child: CODE  child-description: TEXT'",
            )
        parent, code, description = found.groups()
        if code != ROOT:
            name = code if label_names == "codes" else " ".join(description.split())
            entries.append(LabelEntry(code, name, None if parent == ROOT else parent, number))
    return _in_literature_order(Taxonomy(*link(entries, source)))


def _in_literature_order(tree: Taxonomy) -> Taxonomy:
    order = [child for node in (-1, *tree.walk.tolist()) for child in tree.children(node).tolist()]
    place = {old: new for new, old in enumerate(order)} | {-1: -1}
    parents = [place[int(tree.parents[old])] for old in order]
    return Taxonomy([tree.ids[old] for old in order], parents, [tree.names[old] for old in order])


def split_training(ids: Iterable[int]) -> dict[int, str]:
    """Return ``train`` or ``dev`` for each id; it depends on the ids alone, not on which of them can be used."""
    ordered = sorted(ids)
    # What train_test_split(test_size=0.1, random_state=0) does; numpy promises never to change this stream.
    shuffled = np.random.RandomState(0).permutation(len(ordered)).tolist()
    dev = math.ceil(0.1 * len(ordered))
    return {ordered[place]: "dev" if rank < dev else "train" for rank, place in enumerate(shuffled)}
