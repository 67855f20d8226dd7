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
from hgclr.errors import InputError
from hgclr.taxonomy import Taxonomy
from hgclr.taxonomy.reading import FileFormat

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
    assert len(lines) == 1 + command.ROWS + 1
    assert lines[-1].startswith("800 of 1,000 labels are not shown")


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


def test_formats_are_the_librarys() -> None:
    assert get_args(command.FileFormat) == get_args(FileFormat)


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
