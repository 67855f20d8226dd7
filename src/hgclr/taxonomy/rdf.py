"""SKOS through rdflib: Turtle, N-Triples, RDF/XML and JSON-LD, without network and without keeping the triples."""

from __future__ import annotations

import gc
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote
from xml.parsers import expat
from xml.sax import SAXParseException

from rdflib import BNode, Graph, Literal
from rdflib.parser import InputSource
from rdflib.plugins.parsers.jsonld import to_rdf
from rdflib.plugins.parsers.notation3 import BadSyntax, RDFSink, SinkParser
from rdflib.plugins.parsers.rdfxml import create_parser

from hgclr.errors import HGCLRError, InputError
from hgclr.taxonomy.concepts import Concept, Text, Vocabulary
from hgclr.taxonomy.entries import Source
from hgclr.taxonomy.vocabularies import CORE, OWN_ID, is_xml

XL = "http://www.w3.org/2008/05/skos-xl#"
RDF, RDFS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#", "http://www.w3.org/2000/01/rdf-schema#"
ISO, OWL = "http://purl.org/iso25964/skos-thes#", "http://www.w3.org/2002/07/owl#"
GROUPS = {f"{CORE}Collection", f"{CORE}OrderedCollection", f"{ISO}ThesaurusArray", f"{ISO}ConceptGroup"}
UP = {
    f"{CORE}broader",
    f"{ISO}superOrdinate",
    *(f"{ISO}broader{kind}" for kind in ("Generic", "Partitive", "Instantial")),
}
DOWN = {f"{CORE}narrower", f"{CORE}member", f"{ISO}subordinateArray"}
DOWN |= {f"{ISO}narrower{kind}" for kind in ("Generic", "Partitive", "Instantial")}
NAME, LABEL, ALTERNATIVE = f"{CORE}prefLabel", f"{RDFS}label", f"{CORE}altLabel"
TEXTS = {NAME, LABEL, ALTERNATIVE, f"{CORE}definition", f"{CORE}scopeNote"}
XL_NAMES = {f"{XL}prefLabel": NAME, f"{XL}altLabel": ALTERNATIVE}
BASE = "file:///"
"""Base of relative URIs in a file that does not give one."""
CHUNK = 2**16
LONGEST_ENTITY, LONGEST_TEXT = 200, 2**20
"""Limits on an entity, which abbreviates a namespace, and on the text of one XML element."""


class _Collector(Graph):
    """A sink for rdflib's parsers that keeps what describes concepts and forgets the other triples."""

    def __init__(self) -> None:
        super().__init__(bind_namespaces="none")
        self.concepts: dict[str, Concept] = {}
        self.typed: set[str] = set()
        self.schemes: set[str] = set()
        self.labels: dict[str, list[Text]] = {}
        self.notes: dict[str, list[Text]] = {}
        self.xl_links: list[tuple[str, str, str]] = []
        self.xl_forms: dict[str, Text] = {}

    def add(self, triple: tuple[Any, Any, Any]) -> _Collector:
        subject, predicate, value = str(triple[0]), str(triple[1]), triple[2]
        if predicate in XL_NAMES:
            self.xl_links.append((subject, XL_NAMES[predicate], str(value)))
        elif predicate == f"{XL}literalForm":
            self.xl_forms[subject] = _text(value)
        elif not isinstance(triple[0], BNode):
            self._describe(_plain(subject), predicate, value)
        return self

    def _describe(self, subject: str, predicate: str, value: Any) -> None:
        if predicate in TEXTS:
            if isinstance(value, Literal):
                self._say(subject, predicate, _text(value))
        elif predicate == f"{RDF}type":
            kind = str(value)
            if kind == f"{CORE}ConceptScheme":
                self.schemes.add(subject)
            elif kind in GROUPS:
                self._concept(subject).group = True
                self.typed.add(subject)
            elif kind == f"{CORE}Concept":
                self._concept(subject)
                self.typed.add(subject)
        elif predicate == f"{CORE}notation":
            concept = self._concept(subject)
            concept.code = concept.code or str(value)
        elif predicate == f"{OWL}deprecated":
            self._concept(subject).deprecated = str(value).strip().lower() in ("true", "1")
        elif isinstance(value, BNode):
            return
        elif predicate in UP:
            self._concept(subject).broader.append(_plain(str(value)))
        elif predicate in DOWN:
            self._concept(subject).narrower.append(_plain(str(value)))
        elif predicate in (f"{CORE}inScheme", f"{CORE}topConceptOf"):
            concept = self._concept(subject)
            concept.schemes.append(str(value))
            concept.top |= predicate == f"{CORE}topConceptOf"
        elif predicate == f"{CORE}hasTopConcept":
            concept = self._concept(_plain(str(value)))
            concept.schemes.append(subject)
            concept.top = True

    def _concept(self, identifier: str) -> Concept:
        if (concept := self.concepts.get(identifier)) is None:
            concept = self.concepts[identifier] = Concept(identifier)
        return concept

    def _say(self, subject: str, predicate: str, text: Text) -> None:
        if predicate == NAME:
            self._concept(subject).names.append(text)
        elif predicate == ALTERNATIVE:
            self._concept(subject).alternatives.append(text)
        elif predicate == LABEL:
            self.labels.setdefault(subject, []).append(text)
        elif predicate == f"{CORE}scopeNote":
            self.notes.setdefault(subject, []).append(text)
        else:
            self._concept(subject).descriptions.append(text)

    def finish(self) -> Vocabulary:
        """Return what is a concept: typed as one, or named and in a scheme or linked."""
        for subject, predicate, form in self.xl_links:
            if form in self.xl_forms:
                self._say(_plain(subject), predicate, self.xl_forms[form])
        found = Vocabulary("SKOS", linked=True)
        for key, concept in self.concepts.items():
            concept.names = concept.names or self.labels.get(key, [])
            concept.descriptions = concept.descriptions or self.notes.get(key, [])
            links = concept.broader or concept.narrower or concept.schemes
            if key not in self.schemes and (key in self.typed or (concept.names and links)):
                found.concepts[key] = concept
        return found


def _text(value: Any) -> Text:
    return (getattr(value, "language", None) or "").lower(), str(value)


def _plain(uri: str) -> str:
    """Return the id that ``write_skos`` has written as this URI."""
    return unquote(uri.removeprefix(OWN_ID)) if uri.startswith(OWN_ID) else uri


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence rdflib on values that are not valid, such as a date, and pause the garbage collector, for speed."""
    logger, collecting = logging.getLogger("rdflib"), gc.isenabled()
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        if collecting:
            gc.enable()


def read_skos(sources: Sequence[Source], data: Any = None) -> Vocabulary:
    """Read the concepts of files in RDF/XML, Turtle or N-Triples; of JSON-LD, if ``data`` is the parsed JSON of one.

    Raises:
        InputError: with the line if it is known, if a file is damaged or would need another file.
    """
    sink = _Collector()
    for source in sources:
        try:
            with _quiet():
                _parse(source, data, sink)
        except HGCLRError:
            raise
        except BadSyntax as error:
            raise _damaged(source, error._why, error.lines + 1) from None
        except SAXParseException as error:
            raise _damaged(source, error.getMessage(), error.getLineNumber()) from None
        except expat.ExpatError as error:
            raise _damaged(source, expat.ErrorString(error.code), error.lineno) from None
        except RecursionError:
            raise _damaged(source, "nested too deep") from None
        except Exception as error:  # damaged files make rdflib raise errors of many types
            raise _damaged(source, str(error) or type(error).__name__) from None
    return sink.finish()


def _parse(source: Source, data: Any, sink: Graph) -> None:
    if data is not None:
        _refuse_remote_contexts(source, data)
        to_rdf(data, sink, base=BASE)
    elif is_xml(source.text):
        _check_entities(source)
        whole = InputSource(BASE)
        whole.setCharacterStream(io.StringIO(source.text))
        parser = create_parser(whole, sink)
        _limit_texts(parser.getContentHandler(), source)
        parser.parse(whole)
    else:
        SinkParser(RDFSink(sink), baseURI=BASE, turtle=True).loadBuf(source.text)


def _damaged(source: Source, reason: str, line: int | None = None) -> InputError:
    return source.error(f"damaged RDF: {' '.join(reason.split())[:200]}", line, "correct the file, or write it again")


def _check_entities(source: Source) -> None:
    """Refuse a DOCTYPE that names another file, or entities that are external, long or contain entities."""
    parser = expat.ParserCreate()
    begun = False

    def refuse(what: str) -> None:
        raise source.error(what, parser.CurrentLineNumber, "remove the DOCTYPE; hgclr reads only the file itself")

    def doctype(_name: str, system: str | None, public: str | None, _internal: int) -> None:
        if system is not None or public is not None:
            refuse("the DOCTYPE names another file")

    def entity(name: str, parameter: int, value: str | None, *_places: str | None) -> None:
        if value is None or parameter or len(value) > LONGEST_ENTITY or "&" in value or "%" in value:
            refuse(f"the entity {name[:40]!r} is external, long, or made of entities")

    def start(_name: str, _attributes: object) -> None:
        nonlocal begun
        begun = True

    parser.StartDoctypeDeclHandler, parser.EntityDeclHandler, parser.StartElementHandler = doctype, entity, start
    for place in range(0, len(source.text), CHUNK):
        parser.Parse(source.text[place : place + CHUNK])
        if begun:  # entities are declared before the first element
            return


def _limit_texts(handler: Any, source: Source) -> None:
    """Raise at an element with a very long text: rdflib joins its parts in quadratic time."""
    read, start, length = handler.characters, handler.startElementNS, 0

    def characters(content: str) -> None:
        nonlocal length
        length += len(content)
        if length > LONGEST_TEXT:
            raise source.error(f"an element has more than {LONGEST_TEXT:,} characters", remedy="shorten its text")
        read(content)

    def begin(*arguments: Any) -> None:
        nonlocal length
        length = 0
        start(*arguments)

    handler.characters, handler.startElementNS = characters, begin


def _refuse_remote_contexts(source: Source, data: Any) -> None:
    """Raise if JSON-LD refers to a context outside the file, which rdflib would fetch."""
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            context = value.get("@context")
            for one in [*(context if isinstance(context, list) else [context]), value.get("@import")]:
                if isinstance(one, str):
                    remedy = "write the context itself into the file, or convert the file to Turtle"
                    raise source.error(f"the context {one[:80]!r} is not in the file and is not fetched", None, remedy)
            pending += value.values()
        elif isinstance(value, list):
            pending += value
