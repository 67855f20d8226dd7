# Every target creates or updates .venv first. All targets can be repeated.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOWEST ?= .venv-lowest
NEWEST ?= .venv-newest
# Two workers take whole files, in the order of tests/conftest.py, so that the fixtures of a file are built once.
TEST   := -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
# The benchmark data sets, which are not part of the repository.
DATA   ?= ../shared/data
# The tests start many processes. Without bytecode files, each of them would compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-rest test-all test-lowest test-newest lock soak check size lint types docs-check docs bench format clean

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(VENV)/.user  ## train four models on ICD-10-CM, HGCLR among them, and try them (about five minutes with the install)
	$(BIN)/hgclr quickstart

# The core must work without hgclr.paper, so these tests see a package of links to everything else.
test: $(VENV)/.dev  ## the tests of the core, without the slow ones (about two minutes on two cores)
	rm -rf $(VENV)/core && mkdir -p $(VENV)/core/hgclr
	ln -s $(filter-out %/paper,$(abspath $(wildcard src/hgclr/*))) $(VENV)/core/hgclr
	PYTHONPATH=$(VENV)/core $(BIN)/python $(TEST) -m "not slow" --ignore tests/paper --ignore tests/docs --durations 20

test-rest: $(VENV)/.dev  ## the slow tests: the paper, fuzzing, crashes, browsers, Ray, several processes, docs
	$(BIN)/python $(TEST) -m slow --durations 20

test-all: test test-rest  ## test and test-rest

test-lowest:  ## the tests with the oldest dependencies that pyproject.toml allows, in LOWEST=.venv-lowest
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --extra dev --output-file $(LOWEST)/constraints.txt pyproject.toml
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt --editable '.[dev]'
	$(LOWEST)/bin/python $(TEST) -m "not slow"

# PIN=torch==2.13.0, for example, pins a package of which the index has only some builds.
test-newest:  ## the tests with the newest dependencies on the index, in NEWEST=.venv-newest
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --editable '.[dev]' $(PIN)
	$(NEWEST)/bin/python $(TEST) -m "not slow"

lock:  ## write requirements.lock, which the container installs, after a change of constraints.txt
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate --constraint constraints.txt --extra onnx --extra serve --output-file requirements.lock pyproject.toml

soak: $(VENV)/.dev  ## 10,000 damaged and generated files of each kind, then the service under mixed load for half an hour
	$(BIN)/python benchmarks/file_soak.py --cases 10000 --output benchmarks/results/file-soak.json
	$(BIN)/python benchmarks/serving_soak.py --data $(DATA)/clinc150 --seconds 1800 --output benchmarks/results/serving-soak.json

check: size lint types docs-check docs  ## the next five targets; -j2 runs two at a time

size:  ## compare the lines of each package with its budget in pyproject.toml
	@$(PYTHON) .ci/check_size.py

lint: $(VENV)/.dev  ## formatting, lint, spelling, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/typos
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## mypy
	$(BIN)/mypy

docs-check: $(VENV)/.dev  ## commands, options, settings, links and line length in the Markdown files
	$(BIN)/python -m pytest --quiet $(addprefix tests/docs/test_docs_,commands.py links.py settings.py wrapping.py)

docs: $(VENV)/.dev  ## build the site in site/; fails on a broken link and on a page outside the navigation
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev  ## measure speed and compare it with the goals, on the sets in DATA=../shared/data (about five minutes)
	$(BIN)/python benchmarks/bench.py --data $(DATA)

format: $(VENV)/.dev  ## format the code and apply ruff's fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the virtual environment, the site and caches
	rm -rf $(VENV) .venv-lowest .venv-newest .venv-lock site .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/.user: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[train,icd10cm]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable '.[dev]'
	@touch $@
