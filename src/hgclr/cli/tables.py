"""Printing predictions, scores, comparisons, audits, decisions and explanations on a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple
from typing import Any

from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from hgclr.cli.console import Console, print_table
from hgclr.decisions.settings import Decisions
from hgclr.decisions.tuning import Calibrated
from hgclr.evaluation.audit import Audit
from hgclr.evaluation.comparison import PLAUSIBLE, Comparison, level_lines, score_lines
from hgclr.evaluation.drift import RATES, Change, Drift
from hgclr.evaluation.explanation import METHODS, Explanation, counted
from hgclr.evaluation.positive_samples import PositiveSample
from hgclr.files import HARMLESS
from hgclr.inference.classifier import PredictedLabel, Prediction
from hgclr.presentation import excerpt

SHOWN_CHANGES = 20
"""Limit on the listed labels whose share changed."""
# Colours of equal lightness, on which black is readable on light and dark terminals.
FOR = ("#a3adb8", "#86a5c9", "#639ddd", "#3f8ef0")
AGAINST = ("#b5aba1", "#c9a27d", "#dd9555", "#ee8a2d")


def prediction_tree(text: str, prediction: Prediction) -> Tree:
    """Return the labels of a text as a tree with a bar for each probability.

    Abstained labels are grey with a question mark; parents that are not predicted are grey without a bar. A label is
    drawn under its main parent, with its other paths beside it.
    """

    def bar(label: PredictedLabel) -> str:
        full = round(10 * label.probability)
        return "█" * full + "░" * (10 - full)

    known = {}
    for label in prediction.labels:
        colour = "green" if label.probability >= 0.75 else "yellow" if label.probability >= 0.5 else "red"
        known[label.path] = Text.assemble(
            (bar(label), colour), f" {label.probability:4.0%} ", label.path[-1], (also_under(label), "dim")
        )
    for label in prediction.abstained:
        known[label.path] = Text(f"{bar(label)} {label.probability:4.0%} {label.path[-1]} ?{also_under(label)}", "dim")
    tree = Tree(Text(excerpt(text, 100), "bold"), guide_style="dim")
    branches: dict[tuple[str, ...], Tree] = {(): tree}
    if not prediction.labels:
        why = "the model abstains from all labels" if known else "no label is above its threshold"
        tree.add(Text(prediction.note or why, "yellow"))
    elif prediction.note:
        tree.add(Text(prediction.note, "yellow"))
    for whole in known:
        for depth in range(1, len(whole) + 1):
            path = whole[:depth]
            if path not in branches:
                shown = known.get(path, Text(f"{path[-1]} (not predicted)", "dim"))
                branches[path] = branches[path[:-1]].add(shown)
    return tree


def also_under(label: PredictedLabel) -> str:
    """Return the paths to a label's further places in the tree, such as `` (also under crafts)``."""
    return (
        f" (also under {'; '.join(' > '.join(path[:-1]) for path in label.other_paths)})" if label.other_paths else ""
    )


def print_scores(
    title: str, sets: Mapping[str, Mapping[str, Any]], console: Console, decided: Decisions | None = None
) -> None:
    """Print Micro- and Macro-F1 over all labels and per level, one row per set of scores (see ``to_json``)."""

    def f1(scores: Mapping[str, Any], digits: int) -> list[str]:
        return [f"{100 * scores[average]['f1']:.{digits}f}" for average in ("micro", "macro")]

    levels = max(len(scores["levels"]) for scores in sets.values())
    rows = []
    for name, scores in sets.items():
        per_level = [" / ".join(f1(level, 1)) for level in scores["levels"]]
        per_level += [""] * (levels - len(per_level))
        rows.append([name, *f1(scores, 2), *per_level, f"{scores['inconsistency_rate']:.1%}"])
    headings = ("", "Micro-F1", "Macro-F1", *(f"level {depth + 1}" for depth in range(levels)), "orphans")
    captions = ["levels: micro / macro; orphans: share of predicted labels without their parent"]
    if decided is not None:
        captions.insert(0, decided.summary())
    name, scores = list(sets.items())[-1]
    present, labels = scores["macro_present"], scores["labels"]
    if labels - present["labels"] > 0.05 * labels:
        captions.append(
            f"{name}: {labels - present['labels']:,} of {labels:,} labels are neither gold nor predicted and count as 0"
            f" in Macro-F1; without them it is {100 * present['f1']:.2f}"
        )
    print_table(console, headings, rows, title=title, caption="\n".join(captions))


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print the scores of each report beside those of the first; significant differences are coloured."""
    first = comparison.contents[0]
    console.say(f"{first['data']}, {first['split']}: {first['documents']:,} documents", "bold")
    colours = {"better": "bold green", "worse": "bold red", None: ""}
    lines = [*score_lines(comparison), *level_lines(comparison)]
    for place, name in enumerate(comparison.names[1:]):
        others = [line.others[place] for line in lines]
        rows: list[list[str | Text]] = [
            [line.name, line.first, other.value, Text(other.difference, colours[other.verdict]), other.p_value]
            for line, other in zip(lines, others, strict=True)
        ]
        print_table(console, ("", comparison.names[0], name, "difference", "p"), rows)
    console.say(f"p: paired bootstrap test; coloured: p < {PLAUSIBLE}; scores without p are not resampled")


def print_audit(found: Audit, console: Console) -> None:
    """Print the documents that are contradicted most, and the number of doubted documents."""
    title = f"likeliest errors: {len(found.findings):,} of {found.documents:,} documents in {found.split}"
    console.say(
        title if found.findings else f"no error found in {found.documents:,} documents in {found.split}", "bold"
    )
    console.say(f"judged by {found.judge}", "dim")
    if not found.findings:
        return
    rows: list[list[str | Text]] = []
    for finding in found.findings:
        strengths = {contradiction.label.path: contradiction.strength for contradiction in finding.contradictions}
        changes = []
        for sign, style, labels in (("−", "red", finding.gold), ("+", "green", finding.predicted)):
            differing = sorted((one.path for one in labels if one.path in strengths), key=lambda path: -strengths[path])
            # The last names of a path tell most.
            changes += [Text(f"{sign} {' > '.join(path[-3:])}", style) for path in differing[:3]]
        rows.append(
            [excerpt(finding.text, console.width), Text("\n").join(changes), str(finding.row), f"{finding.score:.2f}"]
        )
    print_table(console, ("text", "gold (−), predicted (+)", "row", "score"), rows, texts=2)
    console.say(f"score 1 or more: {found.doubted:,} documents; 1 is ten times less probable than usual", "dim")
    if len(found.findings) < found.contradicted:
        console.say(f"--all lists all {found.contradicted:,} documents with other predicted labels", "dim")


def print_drift(found: Drift, split: str, console: Console) -> None:
    """Print mean confidence, shares of texts, and the labels whose share changed significantly."""

    def row(name: str, change: Change) -> list[str | Text]:
        mark = " *" if change.significant else "  "
        numbers = f"{100 * change.before:.1f}", f"{100 * change.now:.1f}", f"{100 * change.difference:+.1f}{mark}"
        return [Text(name), *numbers, "< 0.001" if change.p_value < 0.001 else f"{change.p_value:.3f}"]

    named = {"confidence": "mean confidence", **RATES}
    rows = [row(named[change.name], change) for change in (found.confidence, *found.rates)]
    rows += [row(" > ".join(change.path), change) for change in found.changed[:SHOWN_CHANGES]]
    title = f"{found.now:,} new texts compared with {found.before:,} of {split}, in %"
    captions = ["*: significant at 5 % over all tests (Holm); p: corrected in the same way"]
    if not found.changed:
        captions.append("no label has a significantly different share")
    elif len(found.changed) > SHOWN_CHANGES:
        captions.append(f"{len(found.changed) - SHOWN_CHANGES:,} more labels changed: --json FILE lists them")
    print_table(console, ("", split, "new", "change", "p"), rows, title=title, caption="\n".join(captions))


def print_calibrated(found: Calibrated, console: Console) -> None:
    """Print the tuned decisions, and scores before and after tuning."""
    title = f"decisions, scored out of fold on {found.decisions.provenance['documents']:,} documents"
    after = "after" if found.best is not None else "after (unchanged)"
    rows = [
        [name, *(f"{100 * value:.2f}" for value in astuple(quality))]
        for name, quality in (("before", found.before), (after, found.after))
    ]
    print_table(console, ("", "Micro-F1", "Macro-F1", "precision", "recall", "exact"), rows, title=title)
    before, now = found.calibration_before, found.calibration_after
    error = f"calibration error {before.ece():.2%} → {now.ece():.2%}"
    lines = [found.decisions.summary(), f"{error}, Brier score {before.brier():.4f} → {now.brier():.4f}"]
    if (worse := found.rejected) is not None:
        lines.append(
            f"calibration is not kept: calibration error {worse.ece():.2%}, Brier score {worse.brier():.4f} out of fold"
        )
    if found.decisions.abstain_below is not None:
        lines.append(f"labels less probable than {found.decisions.abstain_below:.1%} are abstained")
    if (other := found.most_exact) is not None:
        exact, micro, macro = (100 * value for value in (other.held_out.exact, *astuple(other.held_out)[:2]))
        lines.append(
            f"{other.rule} predicts {exact:.2f} % of the documents exactly, with {micro:.2f} Micro-F1 and {macro:.2f}"
            f" Macro-F1; to use it, run hgclr calibrate --rule {other.rule}"
        )
    for line in lines:
        console.say(line)


def print_pool(found: Mapping[str, Any], console: Console) -> None:
    """Print how many unlabelled texts were read and labelled, and the scores on dev without and with them."""
    left_out = ", ".join(f"{count:,} {reason}" for reason, count in found["left_out"].items())
    console.say(f"unlabelled texts: {found['texts']:,}" + (f"; left out: {left_out}" if left_out else ""))
    best = max(found["tried"], key=lambda one: float(one["dev"]))
    console.say(f"pseudo-labels: {best['texts']:,} texts")
    verdict = "the head learned from them is kept" if found["kept"] else "not kept: the model stays as it was"
    if found["dev"] is None:
        console.say(f"Micro-F1 on a tenth of them, held out: {100 * best['dev']:.1f}; {verdict}")
    else:
        change = f"{100 * found['dev']:.1f} → {100 * best['dev']:.1f}"
        console.say(f"mean of Micro- and Macro-F1 on dev: {change}; {verdict}")


def print_candidates(found: Calibrated, console: Console) -> None:
    """Print all decisions that were compared, and mark the chosen ones."""
    rows = []
    for candidate in found.candidates:
        quality, chosen = candidate.held_out, candidate is found.best
        values = (quality.micro_f1, quality.macro_f1, quality.by("both"), quality.exact)
        name = f"{candidate.thresholds}, chosen" if chosen else candidate.thresholds
        cells = (candidate.rule, name, *(f"{100 * value:.2f}" for value in values))
        rows.append([Text(cell, "bold green" if chosen else "") for cell in cells])
    headings = ("decoding rule", "thresholds", "Micro-F1", "Macro-F1", "mean", "exact")
    print_table(console, headings, rows, texts=2, title="compared")


def print_explanations(explanations: Iterable[Explanation], console: Console) -> None:
    """Print the labels of each text, with the relevance of its words in colours and numbers."""
    coloured = console.color_system is not None and not console.no_color
    say = console.say
    for explanation in explanations:
        if not coloured:  # otherwise the coloured text follows
            say(explanation.text, "bold")
        say(METHODS[explanation.method], "dim")
        if explanation.unread:
            say(f"not read: the last {counted(explanation.unread, 'word')}; the model reads no further", "yellow")
        for label in explanation.labels:
            *above, name = label.label.path
            status = "" if label.status == "predicted" else f" ({label.status})"
            start = (f"\n{label.label.probability:4.0%} ", "bold"), ("".join(f"{step} > " for step in above), "dim")
            console.print(Text.assemble(*start, (name, "bold"), (also_under(label.label), "dim"), (status, "yellow")))
            if coloured:
                read = explanation.text[: explanation.words[-1].stop].translate(HARMLESS)
                marked = Text(read + (" …" if explanation.unread else ""))
                for word, shade in zip(explanation.words, explanation.shades(label, len(FOR)), strict=True):
                    if shade:
                        style = f"{'bold ' if abs(shade) == len(FOR) else ''}black on"
                        ground = (FOR if shade > 0 else AGAINST)[abs(shade) - 1]
                        marked.stylize(f"{style} {ground}", word.start, word.stop)
                console.print(Padding(marked, (0, 0, 0, 2)))
            for side, words in zip(("for", "against"), explanation.strongest(label, 4), strict=True):
                if words:
                    listed = "   ".join(f"{explanation.word(word)} {label.relevance[word]:+.2f}" for word in words)
                    say(f"  {side:<8} {listed}")
            say(
                f"  tested   {counted(len(label.kept), 'word')} only {label.only_kept:.0%}   as many random words"
                f" {label.only_random:.0%}   without them {label.without_kept:.0%}"
            )
        if explanation.unexplained:
            more = counted(explanation.unexplained, "less probable label")
            say(f"\nnot shown: {more}; give one with --label", "yellow")
        stability = explanation.stability
        change = "the labels stay the same" if stability.same else "the labels change"
        kept = " ".join(explanation.word(word) for word in stability.kept)
        say(f"\nwith {len(stability.kept)} of {counted(len(explanation.words), 'word')} {change}: {kept}")
        for what, labels in (("lost", stability.lost), ("gained", stability.gained)):
            for one in labels:
                say(f"  {what}: {' > '.join(one.path)}{also_under(one)} ({one.probability:.0%})")
        console.print()


def print_positive_samples(samples: Iterable[PositiveSample], rule: str, console: Console) -> None:
    """Print each text with the kept tokens of one draw marked, and the words that most and fewest draws keep."""
    marked = console.color_system is not None
    console.say(f"positive samples keep {rule}\n", "dim")
    for sample in samples:
        text = Text()
        for part, kept in sample.parts():
            text.append(part if marked or not kept else f"[{part}]", "bold underline" if kept else "dim")
        console.print(text.append(" …" if sample.unread else ""))
        rows = [("labels", path) for path in sample.paths]
        if sample.unread:
            rows.append(("not read", f"the last {counted(sample.unread, 'word')}; the model reads no further"))
        if sample.whole:
            rows.append(("one draw", "keeps the whole text; --keep 0.5 shows the half that its labels choose"))
        else:
            count = f"{sample.kept[0].sum()} of {counted(len(sample.spans), 'token')}"
            rows.append(("one draw", f"keeps {count}: {'underlined' if marked else 'in brackets'}"))
            words = [sample.text[word.start : word.stop] for word in sample.words]
            order = sorted(zip(sample.shares, words, strict=True), key=lambda pair: -pair[0])
            listed = [f"{word} {share:.0%}" for share, word in order if any(map(str.isalnum, word))]
            rows += [("most often", "   ".join(listed[:5])), ("least often", "   ".join(listed[:-6:-1]))]
            scale = "0 is chance, 1 always the same tokens"
            rows.append(("agreement", f"{sample.agreement:z.2f} of {len(sample.kept)} draws: {scale}"))
        grid = Table.grid(padding=(0, 2))
        for name, value in rows:
            grid.add_row(name, Text(value))
        console.print(Padding(grid, (0, 0, 1, 2)))
