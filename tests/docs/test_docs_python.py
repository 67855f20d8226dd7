"""Every Python example of the docs is run: those of a page in their order, those of docstrings as doctests."""

from __future__ import annotations

import doctest
import importlib
import shutil
from pathlib import Path

import pytest

from support.doc_pages import DOCS, PAGES, ROOT, blocks, name_of

# These have a test of their own, which looks closer at what they print.
ELSEWHERE = {DOCS / "guides" / "scikit-learn.md": "tests/estimator/test_classifier.py"}
WITH_PYTHON = [page for page in PAGES if page not in ELSEWHERE and any(b.language == "python" for b in blocks(page))]
WITH_DOCTESTS = sorted(path for path in (ROOT / "src").rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


def test_pages_with_examples_are_found() -> None:
    assert DOCS / "guides" / "report.md" in WITH_PYTHON
    for page, test in ELSEWHERE.items():
        assert page.name in (ROOT / test).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_PYTHON, ids=name_of)
def test_the_examples_of_a_page_run(
    page: Path, workshop: Path, default_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(workshop, tmp_path / "here")
    monkeypatch.chdir(folder)
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python" and block.not_run is None:
            # Line numbers of a traceback are those of the page.
            exec(compile("\n" * block.line + block.text, str(page), "exec"), names)


def test_code_in_python_is_marked_as_such() -> None:
    """An example in an indented block would not be run."""
    for page in PAGES:
        for block in blocks(page):
            if block.language in ("", "py", "pycon"):
                assert not block.text.startswith(("import ", "from ", ">>> ")), f"{name_of(page)}:{block.line}"


@pytest.mark.parametrize("path", WITH_DOCTESTS, ids=name_of)
def test_the_examples_of_docstrings_run(path: Path) -> None:
    name = ".".join(path.with_suffix("").relative_to(ROOT / "src").parts)
    assert doctest.testmod(importlib.import_module(name.removesuffix(".__init__"))).failed == 0
