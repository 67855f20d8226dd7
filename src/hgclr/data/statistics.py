"""Describe a data folder in numbers: the paper's Table 1 row, and what else makes it easy or hard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hgclr.data.folder import DataFolder, empty_split
from hgclr.data.rows import BadRow, BadRowLog
from hgclr.data.survey import Histogram, SplitDistance, SplitSurvey, TokenLengths, agreement, survey_split
from hgclr.encoders import ENCODERS, TEXTRCNN, cached_encoder, resolve_encoder
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy

__all__ = ["Branch", "Statistics", "describe", "statistics_json", "token_lengths", "unused_branches"]

logger = logging.getLogger(__name__)
USUAL_LENGTH = 512
"""Tokens that most encoders can read."""


class LevelStatistics(NamedTuple):
    """One level of the tree, counted from 1 at the top.

    Of its ``labels``, some are ``leaves`` and some are ``used`` by a document of any split; so many ``documents`` have
    one of them. The last three are training documents of its most frequent label, of the median and of its rarest.
    """

    level: int
    labels: int
    leaves: int
    used: int
    documents: int
    largest: int
    median: float
    smallest: int


class Frequency(NamedTuple):
    """The documents of the most frequent label, the median, and those of the rarest that has any; and rare labels.

    Labels without a document, the ``unused``, are among those ``below_5`` and ``below_10``.
    """

    largest: int
    median: float
    smallest: int
    unused: int
    below_5: int
    below_10: int

    @property
    def imbalance(self) -> float:
        """The most frequent label's documents for one of the rarest."""
        return self.largest / self.smallest if self.smallest else 0.0


@dataclass(frozen=True)
class Statistics:
    """What a data folder holds, computed from the counts of its splits.

    Args:
        taxonomy: the label tree.
        splits: the counts.
        encoder: whose tokens were counted, if any.
        max_length: tokens that a model is to read, to tell how many texts would be cut.
    """

    taxonomy: Taxonomy
    splits: Mapping[str, SplitSurvey]
    encoder: str | None = None
    max_length: int | None = None

    @property
    def documents(self) -> int:
        """The documents of all splits."""
        return sum(split.documents for split in self.splits.values())

    @property
    def labels_per_document(self) -> float:
        """The paper's Avg(|y|): the mean number of labels of a document, ancestors counted, over all splits."""
        return self.together("labels").mean

    @property
    def reference(self) -> Literal["train", "all splits"]:
        """Where label frequencies are counted: in train, if there is one."""
        return "train" if "train" in self.splits else "all splits"

    @property
    def training_counts(self) -> NDArray[np.int64]:
        """(K,) documents by label in the reference."""
        return self.splits["train"].label_counts if self.reference == "train" else self.all_counts

    @property
    def all_counts(self) -> NDArray[np.int64]:
        """(K,) documents by label in all splits."""
        counts: NDArray[np.int64] = np.sum([split.label_counts for split in self.splits.values()], axis=0)
        return counts

    @property
    def limits(self) -> list[int]:
        """The lengths in tokens at which to tell how many texts would be cut."""
        return sorted({USUAL_LENGTH, self.max_length or USUAL_LENGTH})

    @property
    def above_leaf(self) -> int:
        """The documents with a path that ends in a label with children."""
        return sum(split.above_leaf for split in self.splits.values())

    @property
    def children(self) -> Histogram:
        """Of each label with children, how many it has."""
        inner = self.taxonomy.parents[self.taxonomy.parents >= 0]
        return Histogram(np.unique_counts(inner).counts.tolist())

    def together(self, name: Literal["labels", "paths", "depths", "words", "tokens"]) -> Histogram:
        """Return one of the histograms of `SplitSurvey` over all splits."""
        return sum((getattr(split, name) for split in self.splits.values()), start=Histogram())

    def levels(self) -> list[LevelStatistics]:
        """Return what each level holds, top first."""
        used, counts = self.all_counts, self.training_counts
        depths = self.together("depths")
        return [
            LevelStatistics(
                level=number,
                labels=len(labels),
                leaves=len(np.intersect1d(labels, self.taxonomy.leaves)),
                used=int(np.count_nonzero(used[labels])),
                documents=depths.above(number - 1),  # a label brings its ancestors, so that no level is left out
                largest=int(counts[labels].max()),
                median=float(np.median(counts[labels])),
                smallest=int(counts[labels].min()),
            )
            for number, labels in enumerate(self.taxonomy.levels, 1)
        ]

    def frequency(self) -> Frequency:
        """Return how often labels occur in the reference."""
        counts = self.training_counts
        return Frequency(
            largest=int(counts.max()),
            median=float(np.median(counts)),
            smallest=int(counts[counts > 0].min(initial=counts.max())),
            unused=int(np.count_nonzero(counts == 0)),
            below_5=int(np.count_nonzero(counts < 5)),
            below_10=int(np.count_nonzero(counts < 10)),
        )

    def agreement(self, split: str) -> SplitDistance | None:
        """Return how far the labels of a split are from those of train; None for train itself and empty splits."""
        if split == "train" or self.reference != "train":
            return None
        return agreement(self.splits["train"], self.splits[split])


def describe(
    folder: DataFolder,
    *,
    encoder: str | None = None,
    max_length: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Statistics:
    """Read every document of every split and describe what is there.

    Args:
        folder: the data.
        encoder: count this encoder's tokens, too: a folder, or a name whose encoder is on this machine. Of any other
            name a warning says that tokens are not counted; nothing is downloaded.
        max_length: tokens that a model is to read, for the share of texts that would be cut.
        progress: called with the number of rows read since the last call.
    """
    count = None if encoder is None else token_lengths(encoder)
    if count is None:
        encoder = max_length = None
    splits = {}
    for name in folder.splits:
        with BadRowLog(None) as log:

            def bad_row(row: BadRow, log: BadRowLog = log) -> None:
                if not folder.skip_bad_rows:
                    raise row.error()
                log.add(row)

            splits[name] = survey_split(folder, name, bad_row=bad_row, token_lengths=count, progress=progress)
        log.warn()
        if not splits[name].documents:
            raise empty_split(folder.split_path(name), log.count)
    return Statistics(folder.taxonomy, splits, encoder, max_length)


def token_lengths(encoder: str) -> TokenLengths | None:
    """Return a function that counts the tokens of texts of any length, special tokens included.

    Nothing is downloaded: None, with a warning, for an encoder that is not on this machine.

    Args:
        encoder: a name or a folder, as `hgclr.encoders.resolve_encoder` takes it.
    """
    if encoder == TEXTRCNN:
        raise InputError(
            f"the tokens of {TEXTRCNN} are the words of a training set, and unknown before it is trained",
            remedy="leave out --encoder: lengths in words are close",
        )
    file = _tokenizer_file(encoder)
    if file is None:
        listed = encoder.removeprefix("sentence-transformers/")
        remedy = f"hgclr encoders get {listed} fetches it" if listed in ENCODERS else "give its folder"
        logger.warning("tokens are not counted: the encoder %s is not on this machine; %s", encoder, remedy)
        return None
    from tokenizers import Tokenizer

    if not file.is_file():
        remedy = "give the folder of an encoder that has one"
        raise InputError("no tokenizer.json in it", path=file.parent, remedy=remedy)
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # what tokenizers raises is of no narrower class
        raise InputError(f"not a tokenizer: {error}", path=file, remedy="copy it again from its source") from error
    # Published files carry a maximum length and a padding of their own.
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def count(texts: Sequence[str]) -> list[int]:
        return [len(encoding) for encoding in tokenizer.encode_batch_fast(list(texts))]

    return count


def _tokenizer_file(encoder: str) -> Path | None:
    """Return where the tokenizer of an encoder is or should be; None if the encoder is not on this machine."""
    listed = encoder.removeprefix("sentence-transformers/")
    if listed in ENCODERS and not Path(encoder).expanduser().is_dir():
        cached = cached_encoder(listed)
        return None if cached is None else cached / "tokenizer.json"
    place = resolve_encoder(encoder)  # which downloads what is listed only
    if Path(place).is_dir():
        return Path(place) / "tokenizer.json"
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(place, "tokenizer.json")
    return Path(found) if isinstance(found, str) else None


class Branch(NamedTuple):
    """A label, given by its id and its path of names, and how many labels its branch has, itself included."""

    top: str
    path: str
    labels: int


def unused_branches(taxonomy: Taxonomy, counts: NDArray[np.int64]) -> list[Branch]:
    """Return the largest branches without a document, in the order of a walk through the tree.

    The counts, (K,), are documents by label, ancestors counted, so that below an unused label none is used.
    """
    unused = np.append(counts == 0, False)  # the last entry, at -1, is the virtual root
    tops = unused[:-1] & ~unused[taxonomy.parents]
    return [
        Branch(taxonomy.ids[top], taxonomy.path_name(top), int(taxonomy.branch_sizes[top]))
        for top in taxonomy.walk[tops[taxonomy.walk]].tolist()
    ]


def statistics_json(statistics: Statistics) -> dict[str, Any]:
    """Return everything that `Statistics` knows, and how often each label occurs."""
    taxonomy, frequency = statistics.taxonomy, statistics.frequency()
    counts = {name: split.label_counts.tolist() for name, split in statistics.splits.items()}
    return {
        "table1": {
            "labels": len(taxonomy),
            "depth": taxonomy.depth,
            "labels_per_document": statistics.labels_per_document,
            "documents": {name: split.documents for name, split in statistics.splits.items()},
        },
        "tree": {
            "top_labels": len(taxonomy.levels[0]),
            "leaves": len(taxonomy.leaves),
            "children": statistics.children.summary(),
            "only_children": statistics.children.counts[1],
        },
        "levels": [level._asdict() for level in statistics.levels()],
        "documents": {
            "paths": statistics.together("paths").to_json(),
            "labels": statistics.together("labels").to_json(),
            "ending_above_a_leaf": statistics.above_leaf,
        },
        "label_frequency": {
            "split": statistics.reference,
            **frequency._asdict(),
            "imbalance": frequency.imbalance,
        },
        "encoder": statistics.encoder,
        "max_length": statistics.max_length,
        "splits": {name: _split_json(statistics, name) for name in statistics.splits},
        "labels": [
            {"id": identifier, "path": taxonomy.path_name(index), "level": int(taxonomy.depths[index])}
            | {name: values[index] for name, values in counts.items()}
            for index, identifier in enumerate(taxonomy.ids)
        ],
    }


def _split_json(statistics: Statistics, name: str) -> dict[str, Any]:
    split, distance = statistics.splits[name], statistics.agreement(name)
    values: dict[str, Any] = {
        "documents": split.documents,
        "labels_per_document": split.labels.mean,
        "paths_per_document": split.paths.mean,
        "labels_used": split.labels_used,
        "ending_above_a_leaf": split.above_leaf,
        "words": split.words.summary(),
        "labels_compared_with_train": distance._asdict() if distance else None,
    }
    if statistics.encoder is not None:
        cut = {str(limit): split.tokens.share_above(limit) for limit in statistics.limits}
        values["tokens"] = {**split.tokens.summary(), "share_cut_at": cut}
    return values
