"""``hgclr taxonomy`` as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from hgclr.cli import taxonomy as command
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from support.vocabulary import TURTLE

app = typer.Typer()
app.add_typer(command.app, name="taxonomy")

TREE = "child,parent,name\ns,,Science\np,s,Physics\no,p,Optics\nb,s,Biology\nl,,Law\n"
NEW = "child,parent,name\nl2,,Law and order\ns,,Science\np,s,Natural physics\no,s,Optics\nw,p,Waves\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    file = tmp_path / "labels.csv"
    file.write_text(TREE)
    return file


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    file = tmp_path / "newer.csv"
    file.write_text(NEW)
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["taxonomy", *(str(argument) for argument in arguments)])


def output(*arguments: object) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def facts(text: str) -> dict[str, str]:
    """Return the summary's lines as subject and finding, which are two spaces or more apart."""
    pairs = (line.strip().split("  ", 1) for line in text.splitlines()[1:])
    return {subject: finding.strip() for subject, finding in pairs}


def test_check_summarises_the_tree(tree: Path, tmp_path: Path) -> None:
    found = facts(output("check", tree))
    assert (found["labels"], found["depth"], found["per level"], found["leaves"]) == ("5", "3", "2 · 2 · 1", "3")
    file = tmp_path / "paths.txt"
    file.write_text("A/x\nA/y\nA/z\nB/x\nB/y\n")
    found = facts(output("check", file, "--separator", "/"))
    assert found["repeated names"] == "2, such as 'x'"
    assert found["most children"] == "3, of 'A'"


def test_a_refusal_reaches_the_program_as_our_error(tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("child,parent\na,\nb,c\n")
    for arguments in (["check", file], ["show", file], ["convert", file, tmp_path / "out.json"]):
        error = run(*arguments).exception
        assert isinstance(error, InputError)
        assert (error.path, error.line) == (file, 3)
    assert not (tmp_path / "out.json").exists()


def test_show_draws_the_tree_with_ids(tree: Path, tmp_path: Path) -> None:
    assert output("show", tree).splitlines() == [
        "labels.csv",
        "  Science  s",
        "    Physics  p",
        "      Optics  o",
        "    Biology  b",
        "  Law  l",
    ]
    file = tmp_path / "paths.txt"
    file.write_text("A > B\n")
    assert output("show", file).splitlines() == ["paths.txt", "  A", "    B"]


def test_show_and_check_a_tree_of_a_thousand_levels(tmp_path: Path) -> None:
    file = tmp_path / "deep.tsv"
    file.write_text("Root\tn0\n" + "".join(f"n{level}\tn{level + 1}\n" for level in range(999)))
    lines = output("show", file, "--depth", 1000).splitlines()
    assert len(lines) == 1001
    assert lines[-1].strip() == "n999"
    assert max(map(len, lines)) < 100
    assert facts(output("check", file))["depth"] == "1,000"


def test_show_keeps_markup_and_control_characters_from_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"[bold]x[/]": {}, "a\x1b[31mb\nc": {}}))
    assert output("show", file).splitlines() == ["odd.json", "  [bold]x[/]", "  a [31mb c"]


def test_convert(tree: Path, tmp_path: Path) -> None:
    target, tabs = tmp_path / "labels.json", tmp_path / "labels.tsv"
    output("convert", tree, target)
    assert Taxonomy.read(target) == Taxonomy.read(tree)
    output("convert", tree, tabs)
    assert tabs.read_text() == "Root\ts\tl\ns\tp\tb\np\to\n"


def test_convert_joins_descriptions(tree: Path, tmp_path: Path) -> None:
    about, target = tmp_path / "about.csv", tmp_path / "described.csv"
    about.write_text("label,description\np,Of matter\nOptics,Of light\nchemistry,Of compounds\n")
    text = output("convert", tree, target, "--descriptions", about)
    assert f"{about}:4: " in text
    assert Taxonomy.read(target).descriptions == ("", "Of matter", "Of light", "", "")
    assert facts(output("check", target))["descriptions"] == "2"
    about.write_text("key,id,text\ns,p,Of matter\n")
    columns = ["--label-column", "id", "--description-column", "text"]
    output("convert", tree, target, "--descriptions", about, *columns)
    assert Taxonomy.read(target).descriptions == ("", "Of matter", "", "", "")
    none = tmp_path / "none.json"
    for options in (columns, ["--descriptions", about, "--label-column", "nothing"]):
        assert isinstance(run("convert", tree, none, *options).exception, InputError)
    assert not none.exists()


def test_diff_lists_changes_by_kind(tree: Path, newer: Path, tmp_path: Path) -> None:
    text = output("diff", tree, newer, "--json", tmp_path / "diff.json")
    assert text.splitlines() == [
        f"{tree} (5 labels) → {newer} (5)",
        "kept      1",
        "added     2",
        "  Law and order  l2",
        "  Science > Natural physics > Waves  w",
        "removed   2",
        "  Science > Biology  b",
        "  Law  l",
        "renamed   1",
        "  Science > Physics  p → Science > Natural physics  p",
        "moved     1",
        "  Science > Physics > Optics  o → Science > Optics  o",
    ]
    written = json.loads((tmp_path / "diff.json").read_text())
    assert [label["id"] for label in written["added"]] == ["l2", "w"]


def test_diff_reads_data_folders_and_models(tree: Path, tmp_path: Path) -> None:
    data, model = tmp_path / "data", tmp_path / "model"
    data.mkdir()
    (data / "train.jsonl").write_text('{"text": "a", "labels": ["s"]}\n')
    (data / "taxonomy.csv").write_text(TREE)
    model.mkdir()
    read = Taxonomy.read(tree)
    config = {
        "id2label": {str(index): label for index, label in enumerate(read.ids)},
        "label_parents": read.parents.tolist(),
        "label_names": list(read.names),
    }
    (model / "config.json").write_text(json.dumps(config))
    for one in (data, model, model / "config.json"):
        assert output("diff", one, tree).splitlines() == [f"{one} (5 labels) → {tree} (5)", "kept      5"]
    turned = tmp_path / "turned.csv"
    turned.write_text("child,parent,name\nl,,Law\ns,,Science\np,s,Physics\no,p,Optics\nb,s,Biology\n")
    assert "kept      5, in another order" in output("diff", model, turned)


def test_diff_refuses_what_is_no_tree(tree: Path, tmp_path: Path) -> None:
    error = run("diff", tree, tmp_path / "nothing.tsv").exception
    assert isinstance(error, InputError)
    assert error.path == tmp_path / "nothing.tsv"
    bad = tmp_path / "changes.tsv"
    bad.write_text("old\tnew\nPhysic\tp\n")
    error = run("diff", tree, tree, "--changes", bad).exception
    assert isinstance(error, InputError)
    assert (error.path, error.line) == (bad, 2)


def test_a_vocabulary_is_imported_with_a_summary(tmp_path: Path) -> None:
    pytest.importorskip("rdflib")
    (tmp_path / "v.ttl").write_text(TURTLE)
    written, facts = tmp_path / "tree.json", tmp_path / "facts.json"
    result = run("import", tmp_path / "v.ttl", "--output", written, "--language", "de,en", "--json", facts)
    assert result.exit_code == 0
    assert "1 shortcuts" in result.output
    taxonomy, found = Taxonomy.read(written), json.loads(facts.read_text())
    assert taxonomy.names == ("Wissenschaft", "Physik", "Licht", "Optik")
    assert (found["labels"], found["depth"], found["several_parents"]) == (4, 3, 1)
    assert (found["repairs"], found["left_out"]) == (
        {"only_broader": 6, "shortcuts": 1},
        {"groups": 1, "deprecated": 1},
    )
    assert found["seconds"] >= 0
    assert run("convert", written, tmp_path / "back.ttl").exit_code == 0
    assert Taxonomy.read(tmp_path / "back.ttl") == taxonomy


@pytest.mark.parametrize("options", [["--below", "Alchemie"], ["--language", "fr"], ["--output", "tree.csv"]])
def test_an_import_that_fails_writes_nothing(tmp_path: Path, options: list[str]) -> None:
    pytest.importorskip("rdflib")
    (tmp_path / "v.ttl").write_text(TURTLE)
    result = run("import", tmp_path / "v.ttl", "--output", tmp_path / "tree.json", *options)
    assert isinstance(result.exception, InputError)
    assert [path.name for path in tmp_path.iterdir()] == ["v.ttl"]
