# make help lists the targets. Everything lives in .venv; nothing is installed by hand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet -c constraints.txt
NATIVE := $(wildcard src/roughformer/signatures/native/*.cpp src/roughformer/signatures/native/*.h) \
	src/roughformer/signatures/native/build.py src/roughformer/signatures/native/codegen.py \
	src/roughformer/signatures/words.py

.DEFAULT_GOAL := help
.PHONY: help run test lint types contract unit slow lowest attack bench docs wheel clean

help:  ## what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1\t/' | expand -t 20

# The environment is rebuilt only when what it is made of has changed.
$(VENV)/.installed: pyproject.toml paper/pyproject.toml constraints.txt hatch_build.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "roughformer needs Python 3.11 or newer: make PYTHON=/path/to/python"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(INSTALL) -e '.[dev]' -e ./paper
	@touch $@

$(VENV)/.native: $(VENV)/.installed $(NATIVE)
	$(BIN)/python -m roughformer.signatures.native.build --if-needed || \
		echo "no native kernel: the torch engine is used"
	@touch $@

run: $(VENV)/.native  ## the main job: the default beside MiniRocket, boosting and a Transformer
	$(BIN)/roughformer demo

test: lint types contract unit  ## lint + types + import contract + all tests

lint: $(VENV)/.native  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.native  ## mypy
	$(BIN)/mypy

contract: $(VENV)/.native  ## imports go one way
	$(BIN)/lint-imports

# Each of two workers begins with its half of the folders, whose tests share trained models.
unit: $(VENV)/.native  ## the test suite
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal

$(VENV)/.slow: $(VENV)/.native
	$(INSTALL) -e '.[slow]'
	@touch $@

# An environment of its own, with the lowest versions that users may have.
$(VENV)-lowest/.installed: pyproject.toml constraints.txt lowest.txt
	$(PYTHON) -m venv $(VENV)-lowest
	$(subst $(VENV)/,$(VENV)-lowest/,$(INSTALL)) -r lowest.txt -e . torch pytest httpx hypothesis
	@touch $@

slow: $(VENV)/.slow lowest  ## also a Ray cluster on this machine, whose nodes are killed; lowest versions
	$(BIN)/pytest -m slow

lowest: $(VENV)/.native $(VENV)-lowest/.installed  ## tests with the lowest versions that are declared
	OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest tests/serve tests/test_hard_inputs.py \
		tests/test_io_tables.py tests/test_series_tables.py tests/store/test_stored.py \
		tests/store/test_store_again.py tests/test_checkpoint.py tests/test_ensemble.py

attack: $(VENV)/.native  ## hostile input, clients, disks and clocks, within ten minutes; docs/faults.md
	OMP_NUM_THREADS=1 $(BIN)/python attacks/run.py --publish

$(VENV)/.bench: $(VENV)/.native
	$(INSTALL) -e '.[bench]' setuptools
	@# iisignature needs numpy while it is built, so it cannot be declared as a dependency
	@$(INSTALL) --no-build-isolation iisignature || \
		echo "iisignature does not install here; it will be skipped"
	@touch $@

bench: $(VENV)/.bench  ## speed of the signature engine beside its peers
	$(BIN)/python benchmarks/signature.py

$(VENV)/.docs: $(VENV)/.native
	$(INSTALL) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs  ## HTML documentation in docs/_build/html
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html

# PYTHONS: with torch; BARE: Pythons for which torch has no build here.
PYTHONS ?= $(PYTHON)
BARE ?=
wheel:  ## sdist and wheels in dist/, tried in clean environments without a compiler
	$(PYTHON) tools/wheel.py $(PYTHONS) --no-torch $(BARE)

clean:  ## remove what was made
	rm -rf $(VENV) $(VENV)-lowest build dist docs/_build docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache runs
	rm -f src/roughformer/signatures/native/libroughformer.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
