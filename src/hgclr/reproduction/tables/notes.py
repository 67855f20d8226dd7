"""What a reader of a table must know, in words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hgclr.config import method_settings
from hgclr.reproduction.tables.experiment import Experiment
from hgclr.reproduction.tables.layout import CORPORA, Row, Table
from hgclr.reproduction.tables.summary import Line
from hgclr.reproduction.tables.systems import SYSTEMS

__all__ = ["notes_of", "setting_of"]

WHOLE = 0.95
"""Share of tokens from which a positive sample hardly differs from the text."""


def setting_of(table: Table, experiment: Experiment, lines: Sequence[Line], seeds: Sequence[int]) -> str:
    """Return a line on what the table was made from."""
    done = [line for line in lines if line.documents is not None]
    parts = [experiment.data.name]
    if done:
        documents = done[0].documents or {}
        sizes = ", ".join(f"{split} {size:,}" for split, size in documents.items())
        parts.append(f"{done[0].labels:,} labels, documents: {sizes}")
    parts.append(Path(experiment.encoder).name)
    preset = "" if table.key == "systems" else f"preset {experiment.preset}, "
    parts.append(f"{preset}recipe {experiment.chosen_recipe}, {experiment.precision}")
    parts.append(f"{table.split} scores, seeds {', '.join(map(str, seeds))}")
    return "; ".join(parts)


def notes_of(table: Table, experiment: Experiment, lines: Sequence[Line], base: Row) -> list[str]:
    """Return what the figures mean, and what went otherwise than planned."""
    notes = list(table.notes)
    if any(line.paper for line in lines):
        corpus = CORPORA[experiment.corpus]
        notes.append(
            f"The paper's figures: {corpus}, all documents, bert-base-uncased, one seed. Where data, encoder or budget "
            f"are others, the difference from them means little; the gains over {base.title}, the paper's and ours, "
            "can be compared."
        )
    systems = [(line, SYSTEMS[line.key]) for line in lines if line.key in SYSTEMS]
    if any(system.length == 5 for _, system in systems):
        notes.append(
            "TextRCNN learns from scratch: its rows have five times the epochs and the patience of the others."
        )
    if experiment.preset != "default":
        chosen = method_settings(experiment.preset, {})
        notes.append(
            f"The preset {experiment.preset} holds for all rows: a head that starts from "
            f"{chosen['classifier_start']} weights, pooling {chosen['pooling']}, classification loss "
            f"{chosen['classification_loss']}, no documents of the label tree, decisions at one half."
        )
    if experiment.chosen_recipe == "paper":
        for line, system in systems:
            if own := system.recipe:
                listed = ", ".join(f"{name} {value}" for name, value in own.items())
                notes.append(f"{line.title} has the recipe of its own paper: {listed}.")
    if positives := [_positives(line) for line in lines if line.kept is not None]:
        notes.append(f"Share of tokens that positive samples kept: {'; '.join(positives)}.")
    if any(len(line.runs) > 1 for line in lines):
        notes.append("± is the standard deviation over the seeds; gains are taken seed by seed, on the same documents.")
    for line in lines:
        notes.extend(f"{line.title}, seed {seed}, could not be run: {reason}" for seed, reason in line.refused.items())
    resumed = [line.title for line in lines if any(run["resumed"] for run in line.runs)]
    if resumed:
        notes.append(f"Killed and resumed, left out of the seconds: runs of {', '.join(resumed)}.")
    return notes


def _positives(line: Line) -> str:
    """Say what the positive samples of a row were."""
    assert line.kept is not None
    text = "" if line.kept.mean < WHOLE else ", as good as the text itself"
    return f"{line.title} {line.kept.mean:.1%}{text}"
