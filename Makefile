# One place for the commands of the project; each makes the environment it needs first.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := dev,fetch,images,hdf5,peers

.PHONY: run test test-slow lint format perf clean
.DEFAULT_GOAL := run

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "affinity-bench needs Python 3.11 or newer; name one with make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) -m venv $(VENV)

# The stamps record what is installed, so that an unchanged environment costs nothing.
$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing affinity-bench into $(VENV)"
	@$(PIP) -e .
	@touch $@

$(VENV)/.development: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing affinity-bench with its development tools into $(VENV)"
	@$(PIP) -e '.[$(EXTRAS)]'
	@touch $@ $(VENV)/.runtime

run: $(VENV)/.runtime ## make the environment and run the main job
	@$(BIN)/affinity run

test: $(VENV)/.development ## make the environment and run the tests
	@$(BIN)/python -m pytest -q -m "not slow and not perf"

test-slow: $(VENV)/.development ## the tests that take minutes
	@$(BIN)/python -m pytest -q -m "slow"

lint: $(VENV)/.development ## style and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.development
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

perf: $(VENV)/.development ## side by side with peers; minutes
	@$(BIN)/python -m tests.performance

clean:
	@rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache
