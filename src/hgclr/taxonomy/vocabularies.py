"""Published vocabularies: lists of ids and paths, ESCO's tables, IPTC's JSON; SKOS written as Turtle."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from hgclr.taxonomy.concepts import Text, Vocabulary
from hgclr.taxonomy.entries import Labels, Source, read_rows

ID_LINE = re.compile(r"(\S+)\s+:\s+(\S.*)|(\d+)\s+-\s+(\S.*)")
"""A line ``id : A > B``, or ``12 - A > B`` with a number."""
XML = re.compile(r"\s*<(\?xml\s|!|[\w.-]+(:[\w.-]+)?\s+[\w.:-]+\s*=)")
CORE = "http://www.w3.org/2004/02/skos/core#"
OWN_ID = "urn:hgclr:"
"""Beginning of the URI of a label whose id is no URI; the quoted id follows."""
IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|\\^`]+")
SAMPLE = 100
"""Lines of a file that decide whether it is a list of ids."""
URI, LABEL, KEY = ("concepturi", "originuri", "uri", "id"), "preferredlabel", "id"
LINKS = (("concepturi", "broaderuri"), ("childid", "parentid"))
"""The columns of ESCO's tables of links: the child and its parent."""


def is_xml(text: str) -> bool:
    """Return whether a text begins as XML; an IRI of Turtle has no attributes."""
    return XML.match(text) is not None


def lines_of(source: Source) -> list[tuple[int, str]]:
    """Return the lines that are not blank and no comment, with their numbers."""
    return [(number, line) for number, line in source.lines() if not line.lstrip().startswith("#")]


def is_id_list(lines: Sequence[tuple[int, str]]) -> bool:
    """Return whether each of the first lines is an id and a path."""
    return bool(lines) and all(ID_LINE.fullmatch(line.strip()) for _, line in lines[:SAMPLE])


def read_ids(source: Source, separator: str) -> Vocabulary:
    """Read lines ``id : A > B > C``, in any order; the last name is that of the label with this id."""
    found = Vocabulary("ids")
    listed: list[tuple[str, tuple[str, ...]]] = []
    places: dict[tuple[str, ...], str] = {}
    for number, line in lines_of(source):
        match = ID_LINE.fullmatch(line.strip())
        if match is None:
            raise source.error(f"not an id and a path: {line.strip()[:60]!r}", number, "write 'id : A > B'")
        identifier, text = match[1] or match[3], match[2] or match[4]
        path = tuple(name.strip() for name in text.split(separator))
        sign = separator.strip()
        if not all(name and name.strip(sign) == name for name in path):
            raise source.error("empty label name", number, "fill in the name or delete the entry")
        if identifier in found.concepts:
            raise source.error(f"the id {identifier!r} is used twice", number, "give each label a different id")
        found.concept(identifier).names.append(("", path[-1]))
        places.setdefault(path, identifier)
        listed.append((identifier, path))
    for identifier, path in listed:
        while len(path) > 1:
            above = path[:-1]
            known = above in places
            if not known:
                places[above] = separator.join(above)
                found.concept(places[above]).names.append(("", above[-1]))
                found.repairs["missing_parents"] += 1
            found.concept(identifier).broader.append(places[above])
            if known:
                break
            identifier, path = places[above], above
    return found


def is_esco(header: str) -> bool:
    """Return whether a line is the header of ESCO's tables of concepts."""
    return LABEL in header.casefold().replace('"', "").split(",")


def read_esco(sources: Sequence[Source]) -> Vocabulary:
    """Read ESCO's tables as ESCO or Tabiya publish them: concepts of each kind, and their links.

    A concept without a link is put below the ISCO group of its code.
    """
    found = Vocabulary("ESCO")
    keys: dict[str, str] = {}
    links: list[tuple[str, str]] = []
    groups: dict[str, str] = {}
    owners: dict[str, str] = {}
    for source in sources:
        rows = read_rows(source, ",")
        titles = [title.casefold() for title in next(rows, (0, []))[1]]
        pair = next((pair for pair in LINKS if set(pair) <= {*titles}), None)
        if LABEL not in titles and pair is None:
            remedy = "give tables with the columns preferredLabel, or conceptUri and broaderUri"
            raise source.error("not a table of ESCO", 1, remedy)
        for number, cells in rows:
            row = dict(zip(titles, cells, strict=True))
            if LABEL not in row and pair is not None:
                links.append((row[pair[0]], row[pair[1]]))
                continue
            identifier = next((row[title] for title in URI if row.get(title)), "")
            if not identifier:
                raise source.error("the row has no id", number, "fill in conceptUri or ID")
            keys[row.get(KEY, "") or identifier] = identifier
            concept = found.concept(identifier)
            concept.names.append(("", row[LABEL]))
            texts = row.get("altlabels", "").split("\n")
            concept.alternatives += [("", text.strip()) for text in texts if text.strip()]
            about = next((row[title] for title in ("description", "definition", "scopenote") if row.get(title)), "")
            concept.descriptions.append(("", " ".join(about.split())))
            group = row.get("iscogroup") or row.get("iscogroupcode") or ""
            concept.code = row.get("code") or group
            concept.deprecated = row.get("status", "").casefold() in ("obsolete", "deprecated")
            if not group and concept.code.isdigit():
                groups[concept.code] = identifier
            owners[identifier] = group or concept.code[:-1]
    for child, above in links:
        child, above = keys.get(child, child), keys.get(above, above)
        if child in found.concepts:
            found.concepts[child].broader.append(above)
    for identifier, code in owners.items():
        if not found.concepts[identifier].broader and groups.get(code, identifier) != identifier:
            found.concepts[identifier].broader.append(groups[code])
            found.repairs["from_codes"] += 1
    return found


def read_iptc(source: Source, whole: Mapping[str, Any]) -> Vocabulary:
    """Read IPTC's JSON: a list ``conceptSet`` of concepts with ``uri``, ``prefLabel`` by language and links."""
    found = Vocabulary("IPTC", linked=True)
    listed = whole["conceptSet"]
    if not isinstance(listed, list):
        raise source.error("conceptSet is not a list", None, 'write "conceptSet": [{"uri": ...}]')
    for number, member in enumerate(listed, 1):
        if not isinstance(member, dict) or not isinstance(member.get("uri"), str) or not member["uri"].strip():
            raise source.error(f"concept {number} has no uri", None, 'write it as {"uri": "...", "prefLabel": {...}}')
        concept = found.concept(member["uri"])
        concept.names += _by_language(member.get("prefLabel"))
        concept.alternatives += _by_language(member.get("altLabel"))
        concept.descriptions += _by_language(member.get("definition"))
        concept.broader += _uris(member.get("broader"))
        concept.narrower += _uris(member.get("narrower"))
        concept.schemes += _uris(member.get("inScheme"))
        concept.top = bool(_uris(member.get("topConceptOf")))
        concept.deprecated = bool(member.get("retired"))
        code = member.get("qcode")
        concept.code = code if isinstance(code, str) else ""
    for identifier in _uris(whole.get("hasTopConcept")):
        if identifier in found.concepts:
            found.concepts[identifier].top = True
    return found


def _by_language(value: object) -> list[Text]:
    """Return the texts of an object with one text, or a list, for each language."""
    texts = value if isinstance(value, dict) else {"": value}
    return [
        (str(tag).lower(), text)
        for tag, said in texts.items()
        for text in (said if isinstance(said, list) else [said])
        if isinstance(text, str) and text.strip()
    ]


def _uris(value: object) -> list[str]:
    return [one for one in (value if isinstance(value, list) else [value]) if isinstance(one, str) and one]


def from_labels(labels: Labels, file_format: str) -> Vocabulary:
    """Return the labels of another format as a vocabulary, so that a part of them can be chosen."""
    found = Vocabulary(file_format)
    for index, identifier in enumerate(labels.ids):
        concept = found.concept(identifier)
        concept.names.append(("", labels.names[index]))
        concept.descriptions.append(("", labels.descriptions[index]))
        concept.alternatives += [("", text) for text in labels.alternatives[index]]
        concept.code = labels.codes[index]
        above = [labels.parents[index], *labels.more_parents[index]]
        concept.broader += [labels.ids[parent] for parent in above if parent >= 0]
    return found


def write_skos(labels: list[dict[str, Any]]) -> str:
    """Return Turtle for labels in the form of :meth:`Taxonomy.to_json`; texts have no language."""
    lines = [f"@prefix skos: <{CORE}> .", "", f"<{OWN_ID}> a skos:ConceptScheme ."]
    for label in labels:
        above = label.get("parents") or ([label["parent"]] if label.get("parent") else [])
        facts = ["a skos:Concept", f"skos:prefLabel {json.dumps(label['name'], ensure_ascii=False)}"]
        facts += [f"skos:broader {_uri(one)}" for one in above] or [f"skos:topConceptOf <{OWN_ID}>"]
        facts += [f"skos:altLabel {json.dumps(one, ensure_ascii=False)}" for one in label.get("alt_labels", ())]
        for key, predicate in (("code", "notation"), ("description", "definition")):
            if label.get(key):
                facts.append(f"skos:{predicate} {json.dumps(label[key], ensure_ascii=False)}")
        described = " ;\n    ".join([*facts, f"skos:inScheme <{OWN_ID}>"])
        lines += ["", f"{_uri(label['id'])} {described} ."]
    return "\n".join(lines) + "\n"


def _uri(identifier: str) -> str:
    known = IRI.fullmatch(identifier) and not identifier.startswith(OWN_ID)
    return f"<{identifier if known else OWN_ID + quote(identifier, safe='')}>"
