"""Concepts of published vocabularies, and their arrangement as labels: choices, repairs and a summary."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count

from hgclr.errors import InputError
from hgclr.taxonomy.entries import LabelEntry, Source, close_matches

REPAIRS = {
    "only_broader": "links given only as broader",
    "only_narrower": "links given only as narrower",
    "unknown_links": "links to concepts that are not in the file removed",
    "from_codes": "parents taken from the code of the ISCO group",
    "missing_parents": "missing parents of a path added",
    "cycles": "links cut that closed a cycle",
    "shortcuts": "shortcuts to an ancestor removed",
    "no_top_concepts": "top concepts found, as the file names none",
    "orphans": "orphans put at the top",
    "missing_names": "names taken from another language or from the id",
    "codes_in_names": "codes removed from the beginning of names",
    "repeated_names": "names used twice under one parent, code added",
    "several_schemes": "concepts in several schemes",
}
"""The repairs by their names in JSON, in the order in which they are made."""
SHOWN = 12
"""Maximum number of concepts of a cycle, and of candidates, in an error message."""
Text = tuple[str, str]
"""A language tag in small letters, "" if there is none, and a text in it."""


@dataclass(slots=True)
class Concept:
    """A concept as its file describes it; links are ids."""

    id: str
    names: list[Text] = field(default_factory=list)
    alternatives: list[Text] = field(default_factory=list)
    descriptions: list[Text] = field(default_factory=list)
    code: str = ""
    broader: list[str] = field(default_factory=list)
    narrower: list[str] = field(default_factory=list)
    schemes: list[str] = field(default_factory=list)
    top: bool = False
    deprecated: bool = False
    group: bool = False


@dataclass(frozen=True)
class Choices:
    """What to take from a vocabulary.

    Args:
        languages: language tags. Names come from the first; names in the others become alternative names. A concept
            without a name in the first is named in the next language that it has, then by a name without language, in
            English, in any language, and at last by the end of its id. By default English if half of the concepts have
            an English name, else the most frequent language.
        below: take only the labels below this concept: an id, a code or a name.
        depth: number of levels to take.
        scheme: take only the concepts of this scheme.
        keep_deprecated: keep deprecated concepts.
        keep_groups: keep groups, such as collections and thesaurus arrays; their members are below them.
        cut_cycles: cut cycles instead of raising.
    """

    languages: tuple[str, ...] = ()
    below: str | None = None
    depth: int | None = None
    scheme: str | None = None
    keep_deprecated: bool = False
    keep_groups: bool = False
    cut_cycles: bool = False


@dataclass
class ImportSummary:
    """What was found in a vocabulary, and what was changed.

    Args:
        format: the format of the file.
        concepts: concepts in the file, before any was left out.
        languages: the chosen languages, "" for texts without a language.
        available: names by language.
        schemes: concepts by scheme.
        left_out: concepts left out, by reason.
        repairs: the count of each repair of :data:`REPAIRS` that was made.
    """

    format: str
    concepts: int
    languages: tuple[str, ...] = ()
    available: dict[str, int] = field(default_factory=dict)
    schemes: dict[str, int] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, object]:
        """Return all fields in plain Python types."""
        return vars(self) | {"left_out": dict(self.left_out), "repairs": dict(self.repairs)}

    def repair_lines(self) -> list[str]:
        """Return one line per repair: its count and its name."""
        return [f"{self.repairs[name]:,} {text}" for name, text in REPAIRS.items() if self.repairs[name]]


@dataclass
class Vocabulary:
    """The concepts of a file by id, in its order; ``linked`` if the format gives links in both directions."""

    format: str
    concepts: dict[str, Concept] = field(default_factory=dict)
    linked: bool = False
    repairs: Counter[str] = field(default_factory=Counter)

    def concept(self, identifier: str) -> Concept:
        """Return the concept with this id, a new one if there is none."""
        if (concept := self.concepts.get(identifier)) is None:
            concept = self.concepts[identifier] = Concept(identifier)
        return concept


def arrange(vocabulary: Vocabulary, choices: Choices, source: Source) -> tuple[list[LabelEntry], ImportSummary]:
    """Return the labels of a vocabulary without cycles, shortcuts and repeated siblings, and the summary.

    Raises:
        InputError: if the concepts form a cycle, if nothing is left, or if a choice names nothing in the file.
    """
    concepts = vocabulary.concepts
    found = ImportSummary(vocabulary.format, len(concepts), repairs=vocabulary.repairs)
    schemes = Counter(scheme for concept in concepts.values() for scheme in set(concept.schemes))
    found.schemes = dict(schemes.most_common())
    if choices.scheme is not None:
        if choices.scheme not in schemes:
            listed = ", ".join(map(repr, [*found.schemes][:SHOWN])) or "none"
            raise source.error(f"unknown scheme {choices.scheme!r}", remedy=f"schemes in the file: {listed}")
        kept = {key: concept for key, concept in concepts.items() if choices.scheme in concept.schemes}
        found.left_out["in another scheme"] = len(concepts) - len(kept)
        concepts = kept
    found.repairs["several_schemes"] = sum(len(set(concept.schemes)) > 1 for concept in concepts.values())
    parents = _linked(concepts, found, vocabulary.linked)
    _leave_out(concepts, parents, choices, found)
    parents = {key: links for key, links in parents.items() if key in concepts}
    tops = [key for key, links in parents.items() if not links]
    stated = [key for key in parents if concepts[key].top]
    found.repairs["cycles"] = _open_cycles(concepts, parents, [*stated, *tops], choices, source)
    found.repairs["shortcuts"] = _remove_shortcuts(parents)
    if vocabulary.linked:
        if stated:
            found.repairs["orphans"] = sum(not concepts[key].top for key in tops)
        else:
            found.repairs["no_top_concepts"] = sum(not links for links in parents.values())
    if choices.below is not None:
        top = _resolve(concepts, choices.below, source)
        inside = {key for level in _levels(parents, [top])[1:] for key in level}
        if not inside:
            raise source.error(f"no label is below {choices.below!r}", remedy="give a concept that has narrower ones")
        parents = {key: [one for one in links if one in inside] for key, links in parents.items() if key in inside}
    if choices.depth is not None:
        levels = _levels(parents, [key for key, links in parents.items() if not links])
        places = {key: number for number, level in enumerate(levels[: choices.depth]) for key in level}
        parents = {  # the main parent is the one nearest to the top, so that no path is longer
            key: sorted((one for one in links if one in places), key=places.__getitem__)
            for key, links in parents.items()
            if key in places
        }
    found.left_out["outside the chosen part"] = len(concepts) - len(parents)
    taken = {key: concepts[key] for key in parents}
    found.available = dict(
        Counter(tag for one in taken.values() for tag in {tag for tag, _ in one.names}).most_common()
    )
    found.languages = tuple(one.strip().lower() for one in choices.languages) or _usual(taken, found.available)
    if choices.languages and not any(_matches(tag, found.languages[0]) for tag in found.available):
        listed = ", ".join(tag or "none" for tag in found.available)
        raise source.error(f"no name is in the language {found.languages[0]!r}", remedy=f"languages: {listed}")
    entries = _entries(taken, parents, found)
    found.left_out, found.repairs = +found.left_out, +found.repairs  # without zeros
    return entries, found


def _linked(concepts: Mapping[str, Concept], found: ImportSummary, linked: bool) -> dict[str, list[str]]:
    """Return the parents of each concept, from the links of both directions."""
    parents: dict[str, list[str]] = {key: [] for key in concepts}
    below: dict[str, set[str]] = {key: set(concept.narrower) for key, concept in concepts.items()}
    for key, concept in concepts.items():
        for above in dict.fromkeys(concept.broader):
            if above in concepts:
                parents[key].append(above)
                found.repairs["only_broader"] += linked and key not in below[above]
            else:
                found.repairs["unknown_links"] += 1
    both = {key: set(links) for key, links in parents.items()}
    for key, concept in concepts.items():
        for child in dict.fromkeys(concept.narrower):
            if child not in concepts:
                found.repairs["unknown_links"] += 1
            elif key not in both[child]:
                parents[child].append(key)
                found.repairs["only_narrower"] += linked and not concept.group
    return parents


def _leave_out(
    concepts: dict[str, Concept], parents: dict[str, list[str]], choices: Choices, found: ImportSummary
) -> None:
    """Remove deprecated concepts and groups; what is below them moves up to their parents."""
    gone = {}
    for key, concept in concepts.items():
        if concept.group and not choices.keep_groups:
            gone[key] = "groups"
        elif concept.deprecated and not choices.keep_deprecated:
            gone[key] = "deprecated"
    for key in gone.keys() & parents.keys():
        found.left_out[gone[key]] += 1
    for key, links in parents.items():
        if key not in gone and not gone.keys().isdisjoint(links):
            pending, kept, seen = links[::-1], dict[str, None](), set[str]()
            while pending:
                if (above := pending.pop()) not in gone:
                    kept[above] = None
                elif above not in seen:
                    seen.add(above)
                    pending += reversed(parents[above])
            kept.pop(key, None)
            parents[key] = list(kept)
    for key in gone:
        del concepts[key]


def _open_cycles(
    concepts: Mapping[str, Concept],
    parents: dict[str, list[str]],
    starts: Iterable[str],
    choices: Choices,
    source: Source,
) -> int:
    """Cut the links that close a cycle and return their number; raise at the first without ``cut_cycles``."""
    children = _children(parents)
    done: set[str] = set()
    cut = 0
    for start in (*starts, *parents):
        if start in done:
            continue
        path = {start: iter(list(children[start]))}  # from the top down, each with the children not yet visited
        while path:
            key = next(reversed(path))
            for child in path[key]:
                if child in path:
                    if not choices.cut_cycles:
                        raise _cycle_error(concepts, [*path][[*path].index(child) :], source)
                    parents[child].remove(key)
                    cut += 1
                elif child not in done:
                    path[child] = iter(list(children[child]))
                    break
            else:
                done.add(key)
                del path[key]
    return cut


def _cycle_error(concepts: Mapping[str, Concept], cycle: Sequence[str], source: Source) -> InputError:
    named = [f"{key!r} ({concepts[key].names[0][1]})" if concepts[key].names else repr(key) for key in cycle]
    shown = [*named[:SHOWN], *([f"... {len(cycle) - SHOWN} more ..."] if len(cycle) > SHOWN else []), repr(cycle[0])]
    what = f"concepts form a cycle, each above the next: {' > '.join(' '.join(one.split()) for one in shown)}"
    return source.error(what, remedy="remove one link, or run hgclr taxonomy import with --cut-cycles")


def _remove_shortcuts(parents: dict[str, list[str]]) -> int:
    """Remove parents that are ancestors of another parent, and return their number."""
    removed = 0
    for key, links in parents.items():
        if len(links) > 1:
            above: set[str] = set()
            pending = [one for link in links for one in parents[link]]
            while pending:
                if (one := pending.pop()) not in above:
                    above.add(one)
                    pending += parents[one]
            parents[key] = [link for link in links if link not in above]
            removed += len(links) - len(parents[key])
    return removed


def _children(parents: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    children: dict[str, list[str]] = defaultdict(list)
    for key, links in parents.items():
        for above in links:
            children[above].append(key)
    return children


def _levels(parents: Mapping[str, Sequence[str]], starts: Sequence[str]) -> list[list[str]]:
    """Return the given concepts, those one link below them, and so on, each at its first level."""
    children, levels, seen = _children(parents), [list(starts)], set(starts)
    while levels[-1]:
        below = dict.fromkeys(child for key in levels[-1] for child in children[key] if child not in seen)
        seen.update(below)
        levels.append(list(below))
    return levels[:-1]


def _resolve(concepts: Mapping[str, Concept], wanted: str, source: Source) -> str:
    """Return the id of the one concept with this id, code or name."""
    if wanted in concepts:
        return wanted
    found = [key for key, concept in concepts.items() if concept.code == wanted]
    found = found or [key for key, one in concepts.items() if any(wanted == text for _, text in one.names)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(map(repr, found[:SHOWN]))
        raise source.error(f"the concept {wanted!r} is ambiguous: {listed}", remedy="give one of these ids")
    near = close_matches(wanted, list({text for concept in concepts.values() for _, text in concept.names}))
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else "give an id, a code or a name of the file"
    raise source.error(f"there is no concept {wanted!r}", remedy=hint)


def _entries(
    concepts: Mapping[str, Concept], parents: Mapping[str, Sequence[str]], found: ImportSummary
) -> list[LabelEntry]:
    """Return the labels with names, alternative names and descriptions in the chosen languages."""
    languages = found.languages
    entries, taken = [], set[tuple[str | None, str]]()
    for key, concept in concepts.items():
        name = _pick(concept.names, languages[:1])
        if name is None:
            found.repairs["missing_names"] += 1
            name = _pick(concept.names, (*languages[1:], "", "en")) or next((text for _, text in concept.names), "")
        code = " ".join(concept.code.split())
        end = re.split(r"[/#]", key.rstrip("/#"))[-1] or key
        short = " ".join(name.split()) or end
        if code and short.startswith(f"{code} "):
            short = short.removeprefix(code).lstrip(" -:.") or short
            found.repairs["codes_in_names"] += 1
        above: Sequence[str | None] = parents[key] or [None]
        unique = short
        for addition in chain((code or end, key), map(str, count(2))):
            if not any((one, unique) in taken for one in above):
                break
            unique = f"{short} ({addition})"
        found.repairs["repeated_names"] += unique != short
        taken.update((one, unique) for one in above)
        others = [text for language in (*languages, "") for tag, text in concept.names if _matches(tag, language)]
        others += [text for tag, text in concept.alternatives if any(_matches(tag, one) for one in (*languages, ""))]
        alternatives = dict.fromkeys(" ".join(text.split()) for text in others)
        unwanted = {short, unique, " ".join(name.split()), ""}
        entries.append(
            LabelEntry(
                key,
                unique,
                above[0],
                None,
                _pick(concept.descriptions, (*languages, "")) or "",
                tuple(parents[key][1:]),
                tuple(text for text in alternatives if text not in unwanted),
                code,
            )
        )
    return entries


def _usual(concepts: Mapping[str, Concept], available: Mapping[str, int]) -> tuple[str, ...]:
    """Return English if half of the concepts have an English name, else the most frequent language."""
    english = sum(any(_matches(tag, "en") for tag, _ in concept.names) for concept in concepts.values())
    return ("en",) if 2 * english >= len(concepts) and english else tuple(available)[:1]


def _matches(tag: str, language: str) -> bool:
    """Return whether a language tag is the language or one of its regions, as ``en-gb`` for ``en``."""
    return tag == language or (bool(language) and tag.startswith(f"{language}-"))


def _pick(texts: Sequence[Text], languages: Sequence[str]) -> str | None:
    """Return the first text in the first language that has one; the exact tag before its regions."""
    for language in languages:
        found = [(tag != language, text) for tag, text in texts if _matches(tag, language)]
        if found:
            return min(found, key=lambda pair: pair[0])[1]
    return None
