"""Published vocabularies: each format, choices, repairs, and files that try to reach out or to fill the memory."""

from __future__ import annotations

import gzip
import io
import json
import socket
import time
from pathlib import Path

import pytest

from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.concepts import Choices, ImportSummary
from support.vocabulary import BASE, CORE, ESCO, IDS, IPTC, JSON_LD, TURTLE, XML, n_triples

pytest.importorskip("rdflib")
SHARED = Path(__file__).parents[2].parent / "shared" / "data" / "taxonomies"
PREFIX = f"@prefix skos: <{CORE}> .\n@prefix c: <{BASE}> .\n"


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any connection fails the test."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("a parse reached for the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def load(tmp_path: Path, text: str | bytes, **choices: object) -> tuple[Taxonomy, ImportSummary]:
    file = tmp_path / "vocabulary"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    taxonomy, found = Taxonomy.import_from([file], Choices(**choices))
    assert found is not None
    return taxonomy, found


def concepts(links: dict[str, str], **names: str) -> str:
    """Return Turtle with one concept per key; the value has further facts."""
    return PREFIX + "\n".join(
        f'c:{key} a skos:Concept ; skos:prefLabel "{names.get(key, key.upper())}"@en {facts and "; " + facts} .'
        for key, facts in links.items()
    )


def parents_of(taxonomy: Taxonomy) -> dict[str, list[str]]:
    """Return the parents of each label by the ends of the ids."""
    short = [one.removeprefix(BASE) for one in taxonomy.ids]
    return {
        short[index]: [short[one] for one in (int(taxonomy.parents[index]), *taxonomy.more_parents[index]) if one >= 0]
        for index in range(len(taxonomy))
    }


@pytest.mark.parametrize("form", ["turtle", "xml", "n-triples", "json-ld", "iptc", "gzip"])
def test_every_form_of_skos_gives_the_same_labels(form: str, tmp_path: Path) -> None:
    forms = {"turtle": TURTLE, "xml": XML, "json-ld": JSON_LD, "iptc": IPTC, "gzip": gzip.compress(TURTLE.encode())}
    taxonomy, found = load(tmp_path, n_triples() if form == "n-triples" else forms[form])
    above = parents_of(taxonomy)
    assert {key: set(links) for key, links in above.items()} == {"s": set(), "p": {"s"}, "l": {"s"}, "o": {"p", "l"}}
    assert dict(zip(above, taxonomy.names, strict=True)) == {
        "s": "Science",
        "p": "Physics",
        "l": "Light",
        "o": "Optics",
    }
    physics, science = taxonomy.resolve(f"{BASE}p"), taxonomy.resolve(f"{BASE}s")
    assert taxonomy.alternatives[physics] == ("natural philosophy",)
    assert taxonomy.descriptions[physics] == "Matter and motion."
    assert taxonomy.codes[science] == "S"
    assert found.left_out["deprecated"] == 1
    assert found.repairs["shortcuts"] == 1
    assert "orphans" not in found.repairs
    assert Taxonomy.read(tmp_path / "vocabulary") == taxonomy, "read without choices"


def test_languages(tmp_path: Path) -> None:
    german, found = load(tmp_path, TURTLE, languages=("de", "en"))
    assert german.names == ("Wissenschaft", "Physik", "Licht", "Optik")
    assert set(german.alternatives[1]) == {"Physics", "natural philosophy", "Naturlehre"}
    assert german.descriptions[1] == "Matter and motion."
    assert found.languages == ("de", "en")
    kept, found = load(tmp_path, TURTLE, languages=("de",), keep_deprecated=True)
    assert "Alchemy" in kept.names, "the fall-back is English"
    assert found.repairs["missing_names"] == 1
    assert not any(kept.descriptions), "there is none in German"
    nameless, _ = load(tmp_path, PREFIX + "c:a a skos:Concept .\nc:b a skos:Concept ; skos:broader c:a .")
    assert nameless.names == ("a", "b")
    with pytest.raises(InputError):
        load(tmp_path, TURTLE, languages=("fr",))


@pytest.mark.parametrize(
    ("choices", "names"),
    [
        ({"below": f"{BASE}s"}, {"Physics", "Light", "Optics"}),
        ({"below": "S"}, {"Physics", "Light", "Optics"}),
        ({"below": "Physik"}, {"Optics"}),
        ({"depth": 1}, {"Science"}),
        ({"below": "Science", "depth": 1}, {"Physics", "Light"}),
        ({"keep_deprecated": True}, {"Science", "Physics", "Light", "Optics", "Alchemy"}),
        ({"keep_groups": True}, {"Science", "Physics", "Light", "Optics", "by method"}),
        ({"scheme": f"{BASE}all"}, {"Science"}),
    ],
)
def test_parts(choices: dict[str, object], names: set[str], tmp_path: Path) -> None:
    taxonomy, _ = load(tmp_path, TURTLE, **choices)
    assert set(taxonomy.names) == names
    assert taxonomy.depth <= choices.get("depth", 9)


def test_a_kept_group_is_a_parent_of_its_members(tmp_path: Path) -> None:
    taxonomy, _ = load(tmp_path, TURTLE, keep_groups=True)
    assert parents_of(taxonomy)["p"] == ["s", "g"]


@pytest.mark.parametrize("choices", [{"below": "Optik"}, {"below": "Opticks"}, {"scheme": "x"}])
def test_parts_that_are_not_there(choices: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError):
        load(tmp_path, TURTLE, **choices)


@pytest.mark.parametrize(
    ("facts", "repairs", "parents"),
    [
        ({"a": "", "b": "skos:broader c:a"}, {"only_broader": 1, "no_top_concepts": 1}, {"a": [], "b": ["a"]}),
        ({"a": "skos:narrower c:b", "b": ""}, {"only_narrower": 1, "no_top_concepts": 1}, {"a": [], "b": ["a"]}),
        (
            {"a": "skos:topConceptOf c:t ; skos:narrower c:b", "b": "skos:broader c:a", "z": ""},
            {"orphans": 1},
            {"a": [], "b": ["a"], "z": []},
        ),
        (
            {"a": "skos:topConceptOf c:t", "b": "skos:topConceptOf c:t ; skos:broader c:gone"},
            {"unknown_links": 1},
            {"a": [], "b": []},
        ),
        (
            {"a": "skos:topConceptOf c:t ; skos:inScheme c:u", "b": "skos:topConceptOf c:t , c:t"},
            {"several_schemes": 1},
            {"a": [], "b": []},
        ),
    ],
)
def test_repairs_of_links(facts: dict[str, str], repairs: dict[str, int], parents: object, tmp_path: Path) -> None:
    taxonomy, found = load(tmp_path, concepts(facts))
    assert (dict(found.repairs), parents_of(taxonomy)) == (repairs, parents)
    assert len(found.repair_lines()) == len(repairs)


def test_children_of_what_is_left_out_move_up(tmp_path: Path) -> None:
    deprecated = "skos:broader c:a ; <http://www.w3.org/2002/07/owl#deprecated> true"
    taxonomy, _ = load(
        tmp_path, concepts({"a": "", "b": deprecated, "c": deprecated.replace("c:a", "c:b"), "d": "skos:broader c:c"})
    )
    assert parents_of(taxonomy) == {"a": [], "d": ["a"]}


def test_cycles_are_written_out_or_cut(tmp_path: Path) -> None:
    text = concepts(
        {
            "t": "",
            "a": "skos:broader c:t , c:c",
            "b": "skos:broader c:a",
            "c": "skos:broader c:b",
            "d": "skos:broader c:d",
        }
    )
    with pytest.raises(InputError, match=r"example.org/a' .A. > .*b' .B. > .*c' .C. > .*a'"):
        load(tmp_path, text)
    taxonomy, found = load(tmp_path, text, cut_cycles=True)
    assert parents_of(taxonomy) == {"t": [], "a": ["t"], "b": ["a"], "c": ["b"], "d": []}
    assert found.repairs["cycles"] == 2


def test_names_used_twice_and_codes_in_names(tmp_path: Path) -> None:
    facts = {
        "a": 'skos:notation "A.1"',
        "b": "skos:broader c:a",
        "c": 'skos:broader c:a ; skos:notation "7"',
        "d": "skos:broader c:a",
    }
    taxonomy, found = load(tmp_path, concepts(facts, a="A.1  Arts", b="Other", c="Other", d="Other"))
    assert taxonomy.names == ("Arts", "Other", "Other (7)", "Other (d)")
    assert (found.repairs["repeated_names"], found.repairs["codes_in_names"]) == (2, 1)


def test_labels_of_skos_xl(tmp_path: Path) -> None:
    text = PREFIX + (
        "@prefix xl: <http://www.w3.org/2008/05/skos-xl#> .\n"
        'c:a a skos:Concept ; xl:prefLabel c:l1 ; xl:altLabel [ xl:literalForm "arts and crafts"@en ] .\n'
        'c:l1 xl:literalForm "Arts"@en .'
    )
    taxonomy, _ = load(tmp_path, text)
    assert (taxonomy.names, taxonomy.alternatives) == (("Arts",), (("arts and crafts",),))


def test_ids_survive_skos(tmp_path: Path) -> None:
    ids = ["http://example.org/a", "b c > d", 'quote"\\', "ü/%20", "urn:hgclr:x"]
    tree = Taxonomy(
        ids, [-1, 0, 0, 1, -1], ["A", 'say "b"\n', "C\\", "D", "E"], [None, "What\tit is.", "", None, None],
        alternatives=[["a1", "a2"], [], [], ["é"], []], codes=["", "1.2", "", "", ""],
        more_parents=[[], [], [], [2], []],
    )  # fmt: skip
    tree.write(tmp_path / "tree.ttl")
    again, found = Taxonomy.import_from([tmp_path / "tree.ttl"], Choices())
    assert (again.ids, again.parents.tolist(), again.more_parents) == (
        tree.ids,
        tree.parents.tolist(),
        tree.more_parents,
    )
    assert (again.alternatives, again.codes, again.descriptions) == (tree.alternatives, tree.codes, tree.descriptions)
    assert again.names == ("A", 'say "b"', "C\\", "D", "E"), "spaces are tidied"
    assert found is not None
    assert set(found.repairs) == {"only_broader"}


def test_lists_of_ids(tmp_path: Path) -> None:
    taxonomy, found = load(tmp_path, IDS)
    assert (taxonomy.ids, taxonomy.path_name(3)) == (("s", "p", "l", "o"), "Science > Physics > Optics")
    assert not found.repairs
    google, found = load(tmp_path, "# Google\n7 - A > B > C\n1 - A\n8 - A > B > C\n")
    assert parents_of(google) == {"7": ["A > B"], "A > B": ["1"], "1": [], "8": ["A > B"]}
    assert found.repairs == {"missing_parents": 1, "repeated_names": 1}
    for text in ("a : A\nb : A > \n", "a : A\na : B\n", "a : A\n" * 200 + "x\n"):
        with pytest.raises(InputError):
            load(tmp_path, text)


def test_tables_of_esco(tmp_path: Path) -> None:
    for name, text in ESCO.items():
        (tmp_path / name).write_text(text)
    taxonomy = Taxonomy.read(tmp_path)
    assert set(taxonomy.ids) == {"u:1", "u:11", "u:m", "u:d"}
    assert taxonomy.path_names(taxonomy.resolve("deputy")) == ("Managers", "Chiefs", "mayor", "deputy")
    assert taxonomy.alternatives[taxonomy.resolve("mayor")] == ("lord mayor", "burgomaster")
    assert taxonomy.resolve("11.1") == taxonomy.resolve("burgomaster")
    _, found = Taxonomy.import_from([tmp_path / name for name in ESCO], Choices())
    assert found is not None
    assert (found.repairs["from_codes"], found.left_out["deprecated"]) == (2, 1)


def test_choices_for_a_plain_tree_and_several_files(tmp_path: Path) -> None:
    taxonomy, found = load(tmp_path, "A > B > C\nA > D\n", below="A", depth=1)
    assert taxonomy.ids == ("A > B", "A > D")
    assert found.format == "paths"
    (tmp_path / "more.ttl").write_text(PREFIX + 'c:n a skos:Concept ; skos:prefLabel "New"@en ; skos:broader c:s .')
    load(tmp_path, TURTLE)
    both, _ = Taxonomy.import_from([tmp_path / "vocabulary", tmp_path / "more.ttl"], Choices())
    assert "New" in both.names
    (tmp_path / "vocabulary").write_text("A > B\n")
    with pytest.raises(InputError):
        Taxonomy.import_from([tmp_path / "vocabulary", tmp_path / "more.ttl"], Choices())


BOMB = '<!DOCTYPE x [<!ENTITY a "ha">' + "".join(
    f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9)
) + "]>"  # fmt: skip
ROOT = XML[XML.index("<rdf:RDF") :].replace("&skos;", CORE)


@pytest.mark.parametrize(
    "text",
    [
        BOMB + ROOT.replace("Science", "&j;"),
        '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + ROOT.replace("Science", "&a;"),
        '<!DOCTYPE x [<!ENTITY % a SYSTEM "http://example.org/x.dtd"> %a;]>' + ROOT,
        '<!DOCTYPE x SYSTEM "http://example.org/x.dtd">' + ROOT,
        f'<!DOCTYPE x [<!ENTITY a "{"x" * 5_000}">]>' + ROOT,
        ROOT.replace("Science", "x" * 2**21),
        ROOT.replace("</rdf:RDF>", ""),
        json.dumps({"@context": "http://example.org/context.json", "@graph": []}),
        json.dumps({"@context": [{"a": {"@id": "x:a", "@context": "c.json"}}], "@graph": []}),
        json.dumps({"@context": {"@import": "http://example.org/c"}, "@id": "x:a"}),
        '{"@graph": [' + "[" * 4_000 + "]" * 4_000 + "]}",
        TURTLE.replace("c:s a", "c:s b", 1),
        PREFIX + "c:a skos:broader " + "[ skos:broader " * 20_000,
        gzip.compress(TURTLE.encode())[:-20],
        PREFIX,
    ],
)
def test_dangerous_and_damaged_files_are_refused(text: str | bytes, tmp_path: Path, in_time) -> None:
    started = time.process_time()
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert in_time(time.process_time() - started, 5.0)
    assert "\n" not in str(caught.value)


def test_a_small_gzip_of_a_large_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hgclr.taxonomy.entries.LARGEST", 10_000)
    packed = io.BytesIO()
    with gzip.open(packed, "wb") as file:
        file.write(b"A > B\n" * 10_000)
    with pytest.raises(InputError):
        load(tmp_path, packed.getvalue())


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared benchmark data is not beside this repository")
@pytest.mark.parametrize(
    ("file", "labels", "depth", "several", "repairs"),
    [
        ("stw-skos.ttl.gz", 6243, 12, 2795, {"shortcuts": 3447, "codes_in_names": 497}),
        ("uat.rdf.gz", 2275, 10, 299, {"shortcuts": 53}),
        ("shopify-categories.txt.gz", 14606, 8, 0, {}),
        ("esco", 3626, 8, 0, {}),
    ],
)
def test_real_files(file: str, labels: int, depth: int, several: int, repairs: dict[str, int], tmp_path: Path) -> None:
    taxonomy, found = Taxonomy.import_from([SHARED / file], Choices())
    assert found is not None
    assert (len(taxonomy), taxonomy.depth, sum(map(bool, taxonomy.more_parents))) == (labels, depth, several)
    assert found.repairs == repairs
    taxonomy.write(tmp_path / "tree.ttl")
    assert Taxonomy.read(tmp_path / "tree.ttl") == taxonomy
