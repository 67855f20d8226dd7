# Every target sets itself up in .venv and can be repeated.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
LOWEST ?= .venv-lowest
NEWEST ?= .venv-newest
# Two workers that take file by file, so that what a file sets up is set up once, in the order of tests/conftest.py.
TEST   := -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder
# The benchmark sets, which are not part of the project.
DATA   ?= ../shared/data
# The tests start many processes: each would compile our sources anew where the environment says not to keep bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-rest test-all test-lowest test-newest lock soak check size lint types docs bench format clean

help:  ## list what can be made
	@awk -F':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(VENV)/.user  ## train four models on ICD-10-CM, HGCLR among them, and try them (about eight minutes with the install)
	$(BIN)/hgclr quickstart

# Without hgclr.paper: the core must work alone, so its tests see a package of links to everything else.
test: $(VENV)/.dev  ## the test suite of the core, without what takes long (about six minutes on two cores)
	rm -rf $(VENV)/core && mkdir -p $(VENV)/core/hgclr
	ln -s $(filter-out %/paper,$(abspath $(wildcard src/hgclr/*))) $(VENV)/core/hgclr
	PYTHONPATH=$(VENV)/core $(BIN)/python $(TEST) -m "not slow" --ignore tests/paper --ignore tests/docs --durations 20

test-rest: $(VENV)/.dev  ## the other tests: the paper, fuzzing, crashes, browsers, Ray, several processes, docs
	$(BIN)/python $(TEST) -m slow --durations 20

test-all: test test-rest  ## both

test-lowest:  ## the suite with the oldest dependencies that pyproject.toml allows, in LOWEST=.venv-lowest
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct --extra dev --output-file $(LOWEST)/constraints.txt pyproject.toml
	$(LOWEST)/bin/python -m pip install --quiet --constraint $(LOWEST)/constraints.txt --editable '.[dev]'
	$(LOWEST)/bin/python $(TEST) -m "not slow"

# Where only some build of a package can be had, PIN=torch==2.13.0 or the like takes that.
test-newest:  ## the suite with the newest dependencies there are, in NEWEST=.venv-newest
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --editable '.[dev]' $(PIN)
	$(NEWEST)/bin/python $(TEST) -m "not slow"

lock:  ## what the container installs, by hash, into requirements.lock; after a change of constraints.txt
	$(PYTHON) -m venv .venv-lock
	.venv-lock/bin/python -m pip install --quiet uv
	.venv-lock/bin/uv pip compile --quiet --python-version 3.11 --generate-hashes --no-header --no-annotate --constraint constraints.txt --extra onnx --extra serve --output-file requirements.lock pyproject.toml

soak: $(VENV)/.dev  ## ten thousand damaged and made-up files of each kind, then the service under mixed load for half an hour
	$(BIN)/python benchmarks/file_soak.py --cases 10000 --output benchmarks/results/file-soak.json
	$(BIN)/python benchmarks/serving_soak.py --data $(DATA)/clinc150 --seconds 1800 --output benchmarks/results/serving-soak.json

check: size lint types docs  ## all of the next four; with -j2 two at a time

size:  ## lines of each package beside its budget in pyproject.toml
	@$(PYTHON) .ci/check_size.py

lint: $(VENV)/.dev  ## formatting, lint, spelling, import contract
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/typos
	$(BIN)/lint-imports

types: $(VENV)/.dev  ## types
	$(BIN)/mypy

docs: $(VENV)/.dev  ## the docs as a site in site/; a broken link or a page that nothing leads to is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(VENV)/.dev  ## speed beside what must be reached, on the sets in DATA=../shared/data (about five minutes)
	$(BIN)/python benchmarks/bench.py --data $(DATA)

format: $(VENV)/.dev  ## format and mend what can be mended
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
