"""A report as one HTML page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hgclr.html_page import Html, Section, facts, page, tiles
from hgclr.reporting.decision_sections import (
    decision_facts,
    probability_section,
    rule_section,
    sureness_section,
    threshold_section,
)
from hgclr.reporting.headlines import HEADLINES
from hgclr.reporting.label_sections import LABEL_STYLE, confusion_section, tree_section, worst_section
from hgclr.reporting.label_tree import tree_script, tree_style
from hgclr.reporting.overview_sections import frequency_section, level_section, plain_words, score_section
from hgclr.reporting.plots import Plot

__all__ = ["provenance", "report_page"]

TILES = ("micro_f1", "macro_f1", "hierarchical_f1", "precision", "recall", "subset_accuracy")
STYLE = """
td .quiet, th .quiet { font-weight: 400; } th .name { white-space: nowrap; }
td .meaning { display: block; min-width: 15rem; }
"""

Content = Mapping[str, Any]


def report_page(content: Content, plots: Sequence[Plot]) -> str:
    """Return the page.

    Args:
        content: as in report.json.
        plots: from :func:`~hgclr.reporting.plots.draw_plots`.
    """
    drawn = {plot.name: plot for plot in plots}
    sections = [
        Section("In plain words", plain_words(content)),
        Section("All scores", score_section(content)),
        Section("Level by level", level_section(content)),
        Section("Frequent and rare labels", frequency_section(content)),
        Section("The label tree", tree_section(content)),
        Section("Confused siblings", confusion_section(content)),
        Section("Labels to look at first", worst_section(content)),
        Section("Can the probabilities be trusted?", probability_section(content, drawn)),
        Section("Leaving out what is unsure", sureness_section(content, drawn)),
        Section("Thresholds", threshold_section(content, drawn)),
        Section("Decoding rules", rule_section(content)),
        Section("How this was made", provenance(content)),
    ]
    return page(
        f"How well {content['model']} does",
        sections,
        lead=_lead(content),
        style=STYLE + tree_style() + LABEL_STYLE,
        script=tree_script(),
    )


def _lead(content: Content) -> Html:
    """Return what was scored and how it decided, and the first scores in large type."""
    headlines = {score.key: score for score in HEADLINES}
    first = [headlines[key] for key in TILES]
    scored = [
        ("Data", f"{content['data']}, {content['split']}: {content['documents']:,} documents"),
        ("Label tree", f"{len(content['labels']):,} labels in {len(content['scores']['levels'])} levels"),
        *decision_facts(content),
    ]
    large = tiles((f"{100 * score.value(content):.1f}", score.name) for score in first)
    return Html(f"{facts(scored)}\n{large}")


def provenance(content: Content) -> Html:
    """Return command, commit, versions and machine."""
    machine = content["machine"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    commit = machine["commit"] or "unknown"
    memory = f", {machine['memory_bytes'] / 2**30:.0f} GiB" if machine["memory_bytes"] else ""
    pairs = [
        ("Command", content["command"]),
        ("Commit", f"{commit}, with changes" if machine["modified"] else commit),
        ("Versions", f"Python {machine['python']}, {packages}"),
        ("Machine", f"{machine['processor']}, {machine['threads']} threads{memory}, {machine['platform']}"),
        ("Documents", f"SHA-256 of texts and labels in their order: {content['documents_digest']}"),
    ]
    return facts((name, value) for name, value in pairs if value)
