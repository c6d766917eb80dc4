# `make demo` and `make test` set up what they need; nothing is installed by hand.
PYTHON ?= python3
VENV   := .venv
VENV4  := .venv-tl4
BIN    := $(VENV)/bin

# The pins are what CI installs, on Python 3.11; other Pythons take pyproject.toml's ranges.
PY311  := $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info[:2] == (3, 11) else "")')
PINS   := $(if $(PY311),-c constraints.txt)
PINS4  := $(if $(PY311),-c constraints-tl4.txt)
PIP    := install --quiet --disable-pip-version-check

.PHONY: demo test test-tl4 check format lint types imports bench docs clean

demo: $(VENV)/ready
	$(BIN)/python examples/xor_demo.py demo
	$(BIN)/python examples/induction_heads.py demo
	$(BIN)/python examples/sorting.py demo
	$(BIN)/python examples/superposition.py demo
	$(BIN)/python examples/random_attention.py demo

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2

test-tl4: $(VENV4)/ready
	$(VENV4)/bin/python -m pytest -n 2

check: lint types imports test

format: $(VENV)/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/ready
	$(BIN)/mypy

imports: $(VENV)/ready
	$(BIN)/lint-imports

bench: $(VENV)/ready
	$(BIN)/python benchmarks/logistic_targets.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/head_detectors.py
	$(BIN)/python benchmarks/head_calibration.py --models 200
	$(BIN)/python benchmarks/sorting_steps.py
	$(BIN)/python benchmarks/sorting_batches.py
	$(BIN)/python benchmarks/uand_readoffs.py
	$(BIN)/python benchmarks/skip_bigram_levels.py --seeds 2 --heads 200
	$(BIN)/python benchmarks/variant_throughput.py

docs: $(VENV)/ready
	$(BIN)/pip $(PIP) -e ".[docs]"
	$(BIN)/mkdocs build

clean:
	rm -rf $(VENV) $(VENV4) demo build dist *.egg-info

$(VENV)/ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (TransformerLens 3, sae-lens, development tools): a few minutes"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip $(PIP) $(PINS) "transformer-lens<4" -e ".[sae,dev]"
	@touch $@

$(VENV4)/ready: pyproject.toml constraints-tl4.txt
	@echo "Setting up $(VENV4) (TransformerLens 4): a few minutes"
	$(PYTHON) -m venv $(VENV4)
	$(VENV4)/bin/pip $(PIP) $(PINS4) "transformer-lens>=4" -e ".[dev]"
	@touch $@
