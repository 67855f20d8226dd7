"""One vocabulary in every format: Science > Physics > Optics; Optics also below Light; Alchemy is deprecated."""

from __future__ import annotations

import json

CORE = "http://www.w3.org/2004/02/skos/core#"
BASE = "http://example.org/"
TURTLE = f"""# a thesaurus
@prefix skos: <{CORE}> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix c: <{BASE}> .
c:all a skos:ConceptScheme ; owl:imports <http://example.org/other> ; skos:hasTopConcept c:s .
c:s a skos:Concept ; skos:prefLabel "Science"@en , "Wissenschaft"@de ; skos:notation "S" .
c:p a skos:Concept ; skos:prefLabel "Physics"@en , "Physik"@de ; skos:broader c:s ;
    skos:altLabel "natural philosophy"@en , "Naturlehre"@de ; skos:definition "Matter and  motion."@en .
c:l a skos:Concept ; skos:prefLabel "Light"@en-gb , "Licht"@de ; skos:broader c:s .
c:o a skos:Concept ; skos:prefLabel "Optics"@en , "Optik"@de ; skos:broader c:p , c:l , c:s .
c:x a skos:Concept ; skos:prefLabel "Alchemy"@en ; skos:broader c:s ; owl:deprecated true .
c:g a skos:Collection ; skos:prefLabel "by method"@en ; skos:member c:p .
"""
XML = f"""<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [<!ENTITY skos "{CORE}">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="&skos;" xml:base="{BASE}"
  xmlns:owl="http://www.w3.org/2002/07/owl#">
<skos:ConceptScheme rdf:about="all"><skos:hasTopConcept rdf:resource="s"/></skos:ConceptScheme>
<skos:Concept rdf:about="s"><skos:prefLabel xml:lang="en">Science</skos:prefLabel>
  <skos:prefLabel xml:lang="de">Wissenschaft</skos:prefLabel><skos:notation>S</skos:notation></skos:Concept>
<skos:Concept rdf:about="p"><skos:prefLabel xml:lang="en">Physics</skos:prefLabel>
  <skos:prefLabel xml:lang="de">Physik</skos:prefLabel><skos:broader rdf:resource="s"/>
  <skos:altLabel xml:lang="en">natural philosophy</skos:altLabel><skos:altLabel xml:lang="de">Naturlehre</skos:altLabel>
  <skos:definition xml:lang="en">Matter and motion.</skos:definition></skos:Concept>
<skos:Concept rdf:about="l"><skos:prefLabel xml:lang="en-GB">Light</skos:prefLabel>
  <skos:prefLabel xml:lang="de">Licht</skos:prefLabel><skos:broader rdf:resource="s"/></skos:Concept>
<skos:Concept rdf:about="o"><skos:prefLabel xml:lang="en">Optics</skos:prefLabel>
  <skos:prefLabel xml:lang="de">Optik</skos:prefLabel><skos:broader rdf:resource="p"/>
  <skos:broader rdf:resource="l"/><skos:broader rdf:resource="s"/></skos:Concept>
<skos:Concept rdf:about="x"><skos:prefLabel xml:lang="en">Alchemy</skos:prefLabel>
  <skos:broader rdf:resource="s"/><owl:deprecated>true</owl:deprecated></skos:Concept>
<skos:Collection rdf:about="g"><skos:member rdf:resource="p"/></skos:Collection>
</rdf:RDF>
"""
NAMES = {
    "s": ("Science", "Wissenschaft"),
    "p": ("Physics", "Physik"),
    "l": ("Light", "Licht"),
    "o": ("Optics", "Optik"),
}
ABOVE = {"p": ["s"], "l": ["s"], "o": ["p", "l", "s"], "x": ["s"]}


def _members(*, uri: str, name: str, alternative: str, text: str) -> list[dict[str, object]]:
    """Return the concepts as JSON, with these keys for ids, names and texts."""
    members: list[dict[str, object]] = []
    for key, (english, german) in {**NAMES, "x": ("Alchemy", "Alchemie")}.items():
        one: dict[str, object] = {uri: BASE + key, name: {"en-GB" if key == "l" else "en": english, "de": german}}
        if above := ABOVE.get(key):
            one["broader"] = [BASE + parent for parent in above]
        if key == "p":
            one |= {alternative: {"en": ["natural philosophy"], "de": "Naturlehre"}, text: {"en": "Matter and motion."}}
        members.append(one)
    return members


_IPTC = _members(uri="uri", name="prefLabel", alternative="altLabel", text="definition")
_IPTC[0] |= {"qcode": "S", "topConceptOf": [f"{BASE}all"], "narrower": [f"{BASE}p"]}
_IPTC[-1] |= {"retired": "2020-01-01T00:00:00+00:00"}
IPTC = json.dumps({"uri": f"{BASE}all", "conceptSet": _IPTC})
_LINKED = _members(uri="@id", name="prefLabel", alternative="altLabel", text="definition")
_LINKED[0] |= {"notation": "S", "topConceptOf": f"{BASE}all"}
_LINKED[-1] |= {"deprecated": True}
_TERMS = {key: {"@id": f"skos:{key}", "@container": "@language"} for key in ("prefLabel", "altLabel", "definition")}
_TERMS |= {key: {"@id": f"skos:{key}", "@type": "@id"} for key in ("broader", "topConceptOf")}
JSON_LD = json.dumps({
    "@context": {"skos": CORE, "notation": "skos:notation", "deprecated": "http://www.w3.org/2002/07/owl#deprecated",
                 **_TERMS},
    "@graph": [{"@type": "skos:Concept", **one} for one in _LINKED],
})  # fmt: skip
IDS = (
    "# a catalogue\n\ns   : Science\np   : Science > Physics\nl   : Science > Light\no   : Science > Physics > Optics\n"
)
ESCO = {
    "groups.csv": "ORIGINURI,ID,CODE,PREFERREDLABEL,ALTLABELS,DESCRIPTION\n"
    'u:1,k1,1,Managers,,\nu:11,k2,11,Chiefs,,"a,\nb"\n',
    "occupations.csv": "conceptType,conceptUri,iscoGroup,preferredLabel,altLabels,status,description,code\n"
    'Occupation,u:m,11,mayor,"lord mayor\nburgomaster",released,Leads a town.,11.1\n'
    "Occupation,u:d,11,deputy,,released,,11.1.1\nOccupation,u:k,11,king,,obsolete,,11.2\n",
    "links.csv": "PARENTOBJECTTYPE,PARENTID,CHILDID,CHILDOBJECTTYPE\ng,k1,k2,g\no,u:m,u:d,o\n",
}


def n_triples() -> str:
    """Return the vocabulary as N-Triples, written by rdflib."""
    from rdflib import Graph

    return Graph().parse(data=TURTLE, format="turtle").serialize(format="nt")
