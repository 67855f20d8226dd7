"""The YAML files that the docs show are read by what they are meant for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hgclr.config import method_settings
from hgclr.training import RunConfig
from hgclr.tuning import read_space
from support.doc_pages import DOCS, PAGES, Block, blocks, name_of

RUN_FILES = [
    (page, block)
    for page in PAGES
    for block in blocks(page)
    if block.language == "yaml" and block.text.startswith("data:")
]


@pytest.mark.parametrize(("page", "block"), RUN_FILES, ids=[name_of(page) for page, _ in RUN_FILES])
def test_run_files_fit(page: Path, block: Block) -> None:
    run = RunConfig.build(yaml.safe_load(block.text) | {"output": "runs/shown"})
    method_settings(run.model.preset, run.model.overrides)


def test_run_files_are_found() -> None:
    assert {DOCS / "guides" / "training.md", DOCS / "tutorial" / "index.md"} <= {page for page, _ in RUN_FILES}


def test_the_space_to_search_fits() -> None:
    (block,) = (block for block in blocks(DOCS / "guides" / "tuning.md") if block.title == "space.yaml")
    read_space(yaml.safe_load(block.text), RunConfig(data={"path": "my-data"}, output="runs/tuned"))
