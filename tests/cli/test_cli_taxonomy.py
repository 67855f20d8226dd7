"""``hgclr taxonomy`` as a user runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
import typer
from typer.testing import CliRunner, Result

from hgclr.cli import taxonomy as command
from hgclr.cli.taxonomy import ROWS
from hgclr.cli.taxonomy import FileFormat as OfferedFormat
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.tree import FileFormat

app = typer.Typer()
app.add_typer(command.app, name="taxonomy")

TREE = "child,parent,name\ns,,Science\np,s,Physics\no,p,Optics\nb,s,Biology\nl,,Law\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    file = tmp_path / "labels.csv"
    file.write_text(TREE)
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


def test_check_says_what_is_in_the_tree(tree: Path) -> None:
    text = output("check", tree)
    assert text.startswith(f"{tree}: a valid label tree\n")
    assert facts(text) == {
        "labels": "5",
        "depth": "3",
        "per level": "2 · 2 · 1",
        "leaves": "3",
        "repeated names": "none",
        "descriptions": "none",
        "widest node": "the virtual root with 2 children",
    }


def test_check_counts_repeated_names_and_children(tmp_path: Path) -> None:
    file = tmp_path / "paths.txt"
    file.write_text("A/x\nA/y\nA/z\nB/x\nB/y\n")
    found = facts(output("check", file, "--separator", "/"))
    assert found["repeated names"] == "2 on 4 labels, such as 'x' on 2"
    assert found["widest node"] == "'A' with 3 children"


def test_a_refusal_reaches_the_program_as_our_error(tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text("child,parent\na,\nb,c\n")
    for arguments in (["check", file], ["show", file], ["convert", file, tmp_path / "out.json"]):
        error = run(*arguments).exception
        assert isinstance(error, InputError)
        assert str(error).startswith(f"{file}:3: the parent 'c' of 'b' is not listed as a label; ")
    assert not (tmp_path / "out.json").exists()


def test_show_draws_the_tree_with_ids(tree: Path) -> None:
    assert output("show", tree).splitlines() == [
        "labels.csv",
        "├── Science  s",
        "│   ├── Physics  p",
        "│   │   └── Optics  o",
        "│   └── Biology  b",
        "└── Law  l",
    ]


def test_show_leaves_out_ids_that_say_nothing_new(tmp_path: Path) -> None:
    file = tmp_path / "paths.txt"
    file.write_text("A > B\n")
    assert output("show", file).splitlines() == ["paths.txt", "└── A", "    └── B"]


def test_show_cut_by_depth_counts_what_is_hidden(tree: Path) -> None:
    assert output("show", tree, "--depth", 1).splitlines() == [
        "labels.csv",
        "├── Science  s  +3",
        "└── Law  l",
        "3 of 5 labels are not shown: --depth 3 shows all, --under LABEL one branch",
    ]


@pytest.mark.parametrize("label", ["s", "Science"])
def test_show_one_branch(label: str, tree: Path) -> None:
    assert output("show", tree, "--under", label, "--depth", 1).splitlines() == [
        "Science  s",
        "├── Physics  p  +1",
        "└── Biology  b",
        "1 of 3 labels are not shown: --depth 3 shows all, --under LABEL one branch",
    ]
    assert output("show", tree, "--under", "Science > Physics > Optics").splitlines() == ["Optics  o"]


def test_show_of_an_unknown_label(tree: Path) -> None:
    error = run("show", tree, "--under", "Phisics").exception
    assert isinstance(error, InputError)
    assert error.remedy == "did you mean 'Physics'?"


def test_show_draws_the_levels_that_fit(tmp_path: Path) -> None:
    file = tmp_path / "wide.txt"
    file.write_text("".join(f"{top} > {below}\n" for top in range(20) for below in range(15)))
    lines = output("show", file).splitlines()
    assert len(lines) == 1 + 20 + 1
    assert lines[1] == "├── 0  +15"
    assert lines[-1].startswith("300 of 320 labels are not shown")
    assert len(output("show", file, "--depth", 2).splitlines()) == 1 + 320


def test_show_cuts_a_level_that_does_not_fit(tmp_path: Path) -> None:
    file = tmp_path / "wide.txt"
    file.write_text("Root" + "".join(f"\t{top}" for top in range(1000)))
    lines = output("show", file).splitlines()
    assert len(lines) == 1 + ROWS + 1
    assert lines[-1].startswith("800 of 1,000 labels are not shown")


@pytest.mark.slow
def test_show_and_check_a_tree_of_a_thousand_levels(tmp_path: Path) -> None:
    file = tmp_path / "deep.tsv"
    file.write_text("Root\tn0\n" + "".join(f"n{level}\tn{level + 1}\n" for level in range(999)))
    lines = output("show", file, "--depth", 1000).splitlines()
    assert len(lines) == 1001
    assert lines[1].strip() == "└── n0"
    assert lines[-1].startswith("1000 ")
    assert lines[-1].endswith("└── n999")
    assert max(map(len, lines)) < 100
    assert output("show", file).splitlines()[-1].startswith("800 of 1,000")
    assert "984 more levels" in facts(output("check", file))["per level"]


def test_show_keeps_markup_and_control_characters_from_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "odd.json"
    file.write_text(json.dumps({"[bold]x[/]": {}, "a\x1b[31mb\nc": {}}))
    assert output("show", file).splitlines() == ["odd.json", "├── [bold]x[/]", "└── a [31mb c"]


def test_convert_to_json_keeps_everything(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "labels.json"
    assert output("convert", tree, target) == f"{target}: 5 labels written\n"
    assert Taxonomy.read(target) == Taxonomy.read(tree)


def test_convert_to_the_tab_format_says_what_is_lost(tree: Path, tmp_path: Path) -> None:
    target = tmp_path / "labels.tsv"
    text = output("convert", tree, target)
    assert target.read_text() == "Root\ts\tl\ns\tp\tb\np\to\n"
    assert "this format does not keep the order of the labels and the names; .json does" in text
    plain = tmp_path / "again.tsv"
    assert "note" not in output("convert", target, plain)
    assert plain.read_bytes() == target.read_bytes()


ABOUT = "label,description\np,Of matter\nOptics,Of light\nchemistry,Of compounds\n"


def test_convert_joins_descriptions_and_says_how_many(tree: Path, tmp_path: Path) -> None:
    about, target = tmp_path / "about.csv", tmp_path / "described.csv"
    about.write_text(ABOUT)
    assert output("convert", tree, target, "--descriptions", about).splitlines() == [
        f"{about}: 2 of 3 rows name a label of the tree, 2 labels have a description there",
        f"{about}: what names no label is left out: 'chemistry' (line 4)",
        f"{target}: 5 labels written, 2 with a description",
    ]
    assert Taxonomy.read(target).descriptions == ("", "Of matter", "Of light", "", "")
    assert facts(output("check", target))["descriptions"] == "2 of 5 labels"
    assert output("show", target).splitlines()[-1] == "2 of 5 labels have a description"
    short = tmp_path / "described.tsv"
    assert output("convert", target, short).splitlines() == [
        f"{short}: 5 labels written",
        "note: this format does not keep the order of the labels, the names and the descriptions; .json does",
    ]


def test_convert_with_columns_that_are_told(tree: Path, tmp_path: Path) -> None:
    about, target = tmp_path / "about.tsv", tmp_path / "described.json"
    about.write_text("s\tp\tOf matter\ns\to\tOf light\n")
    columns = ["--label-column", 2, "--description-column", 3]
    output("convert", tree, target, "--descriptions", about, *columns)
    assert Taxonomy.read(target).descriptions == ("", "Of matter", "Of light", "", "")
    error = run("convert", tree, tmp_path / "none.json", *columns).exception
    assert str(error) == "a column is named, but no table; give --descriptions TABLE, too"
    error = run("convert", tree, tmp_path / "none.json", "--descriptions", about, "--label-column", 9).exception
    assert isinstance(error, InputError)
    assert not (tmp_path / "none.json").exists()


def test_formats_are_the_librarys() -> None:
    assert get_args(OfferedFormat) == get_args(FileFormat)


@pytest.mark.parametrize("name", ["check", "show", "convert"])
def test_help_shows_an_example(name: str) -> None:
    assert f"hgclr taxonomy {name} labels" in output(name, "--help")


def test_the_command_needs_no_heavy_import() -> None:
    program = (
        "import sys, hgclr.cli.taxonomy\n"
        "print([name for name in ('numpy', 'torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


NEW = "child,parent,name\nl2,,Law and order\ns,,Science\np,s,Natural physics\no,s,Optics\nw,p,Waves\n"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    file = tmp_path / "newer.csv"
    file.write_text(NEW)
    return file


def test_diff_lists_changes_by_kind(tree: Path, newer: Path, tmp_path: Path) -> None:
    text = output("diff", tree, newer, "--json", tmp_path / "diff.json", "--suggestions", tmp_path / "perhaps.tsv")
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
        "  Science > Physics  p → Natural physics  p",
        "moved     1",
        "  Science > Optics  o  from 'Physics' to 'Science'",
        "perhaps   1",
        "  renamed: Law  l → Law and order  l2",
        f"{tmp_path / 'perhaps.tsv'} has these: keep what is true and give it as --changes",
    ]
    assert (tmp_path / "perhaps.tsv").read_text() == "old\tnew\nl\tl2\n"
    written = json.loads((tmp_path / "diff.json").read_text())
    assert [label["id"] for label in written["added"]] == ["l2", "w"]
    assert written["perhaps"]["renamed"] == [{"old": "l", "new": "l2", "below": 0}]
    again = output("diff", tree, newer, "--changes", tmp_path / "perhaps.tsv")
    assert "  Law  l → Law and order  l2" in again.splitlines()
    assert "perhaps" not in again
    assert "kept      1\n" in again


def test_diff_of_merged_and_split_labels(tree: Path, newer: Path, tmp_path: Path) -> None:
    changes = tmp_path / "changes.json"
    changes.write_text('{"b": "o", "l": ["l2", "w"]}')
    lines = output("diff", tree, newer, "--changes", changes).splitlines()
    assert (
        lines[lines.index("merged    1") + 1]
        == "  Science > Physics > Optics  o + Science > Biology  b → Science > Optics  o"
    )
    assert lines[lines.index("split     1") + 1] == (
        "  Law  l → Law and order  l2 + Science > Natural physics > Waves  w"
    )


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
    assert "nothing to suggest" in output("diff", model, turned, "--suggestions", tmp_path / "none.tsv")
    assert not (tmp_path / "none.tsv").exists()


def test_diff_cuts_long_lists(tree: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    file.write_text(TREE + "".join(f"x{number},,Number {number}\n" for number in range(60)))
    lines = output("diff", tree, file).splitlines()
    assert lines[2] == "added     60"
    assert lines[3].startswith("  the top: Number 0, Number 1, ")
    assert lines[3].endswith(" more")
    assert lines[4:] == ["--json FILE writes every label"]
    assert all(len(line) <= 80 for line in lines[2:])


def test_a_renamed_top_label_is_one_suggestion(tmp_path: Path) -> None:
    """Ids are paths, as where the tree is drawn from them: every label below has another id, too."""
    below = [f"Area {area} > Topic {area}.{topic}" for area in range(9) for topic in range(7)]
    (tmp_path / "old.txt").write_text("".join(f"Mental Processes > {path}\n" for path in below))
    (tmp_path / "new.txt").write_text("".join(f"Cognition > {path}\n" for path in [*below, "Area 9 > Fresh"]))
    text = output("diff", tmp_path / "old.txt", tmp_path / "new.txt", "--suggestions", tmp_path / "perhaps.tsv")
    assert text.splitlines()[1:] == [
        "kept      0",
        "added     75",
        "  Cognition (+74 below)",
        "removed   73",
        "  Mental Processes (+72 below)",
        "perhaps   1",
        "  renamed: Mental Processes → Cognition (+72 below)",
        "--json FILE writes every label",
        f"{tmp_path / 'perhaps.tsv'} has these: keep what is true and give it as --changes",
    ]
    assert (tmp_path / "perhaps.tsv").read_text() == "old\tnew\nMental Processes\tCognition\n"
    text = output("diff", tmp_path / "old.txt", tmp_path / "new.txt", "--changes", tmp_path / "perhaps.tsv")
    assert text.splitlines()[2:] == [
        "added     2",
        "  Cognition > Area 9 (+1 below)",
        "renamed   73",
        "  Mental Processes → Cognition (+72 below)",
        "--json FILE writes every label",
    ]


def test_diff_refuses_what_is_no_tree(tree: Path, tmp_path: Path) -> None:
    error = run("diff", tree, tmp_path / "nothing.tsv").exception
    assert isinstance(error, InputError)
    assert str(error).startswith(f"{tmp_path / 'nothing.tsv'}: there is no such file; ")
    bad = tmp_path / "changes.tsv"
    bad.write_text("old\tnew\nPhysic\tp\n")
    error = run("diff", tree, tree, "--changes", bad).exception
    assert str(error) == f"{bad}:2: unknown label 'Physic' in the old tree; did you mean 'Physics'?"
