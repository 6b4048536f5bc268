# Every target sets up what it needs: a fresh clone and `make train` or `make test` is enough.
#
# The set-up is done once and again only when pyproject.toml or constraints.txt change. To install from another
# index, or another build of PyTorch: make train PIP_ARGS="--index-url ..."

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_ARGS ?=
PIP := $(BIN)/python -m pip install --disable-pip-version-check --no-input --constraint constraints.txt $(PIP_ARGS)
ARGS ?=

export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: bench-auto bench-changes help venv dev train test lint format test-slow bench-network bench-codec bench-quality bench-frontier bench-planner bench-advise bench-exchange bench-recovery bench-time-to-loss clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

venv: $(VENV)/.runtime ## create .venv with what training needs

dev: $(VENV)/.dev ## create .venv with what the tests need, too

train: $(VENV)/.runtime ## set up, then train: make train ARGS="--workers 2"
	@$(BIN)/trainingkit train $(ARGS)

test: lint ## set up, then lint and run the tests
	@echo "== pytest"
	@$(BIN)/python -m pytest -m "not slow" $(ARGS)

test-slow: $(VENV)/.dev ## set up, then run the slow tests
	@$(BIN)/python -m pytest -m slow $(ARGS)

lint: $(VENV)/.dev ## set up, then check style, types and import layers
	@echo "== ruff check";  $(BIN)/ruff check --quiet .
	@echo "== ruff format"; $(BIN)/ruff format --quiet --check . \
	  || { echo "Not formatted; run: make format"; $(BIN)/ruff format --check .; exit 1; }
	@echo "== pyright";     $(BIN)/pyright
	@echo "== lint-imports"; $(BIN)/lint-imports

format: $(VENV)/.dev ## set up, then format the code and mend what ruff can
	@$(BIN)/ruff check --fix --quiet . ; $(BIN)/ruff format .

bench-network: $(VENV)/.runtime ## slow links, side by side: make bench-network ARGS="--link 25mbit --minutes 8"
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench network --json benchmarks/results/network.json --page benchmarks/results/network.html $(ARGS)

bench-codec: $(VENV)/.runtime ## codecs against a copy, on one thread
	@$(BIN)/trainingkit bench codec --json benchmarks/results/codec.json $(ARGS)

bench-quality: $(VENV)/.runtime ## loss with the codec against plain DDP, three seeds; a quarter of an hour
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench quality --json benchmarks/results/quality.json $(ARGS)

bench-frontier: $(VENV)/.runtime ## quality against bits on three tasks; hours, but it can be interrupted
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench frontier --only near-frontier --json benchmarks/results/frontier.json --page benchmarks/results/frontier.html $(ARGS)

bench-advise: $(VENV)/.runtime ## what advise predicts against what a lab measures; ten minutes
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench advise --json benchmarks/results/advise.json $(ARGS)

bench-exchange: $(VENV)/.runtime ## bytes and RAM from 2 to 64 ranks, and islands behind a slow link; five minutes
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench exchange --json benchmarks/results/exchange.json --page benchmarks/results/exchange.html $(ARGS)

bench-recovery: $(VENV)/.runtime ## what journal and snapshots cost, and how quickly a run is replayed; twenty minutes
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench recovery --json benchmarks/results/recovery.json $(ARGS)

bench-time-to-loss: $(VENV)/.runtime ## minutes until plain DDP's loss on slow links; hours, but in parts: ARGS="--part curves --budget 60"
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench time-to-loss --json benchmarks/results/time-to-loss.json --page benchmarks/results/time-to-loss.html $(ARGS)

bench-planner: $(VENV)/.runtime ## the planner against measured runs of others; seconds: make bench-planner ARGS="--file RUNS.csv"
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench planner --json benchmarks/results/planner.json $(ARGS)

bench-auto: $(VENV)/.runtime ## the controller at 10, 25, 100, 1000 Mbit/s and unshaped; half an hour
	@mkdir -p benchmarks/results
	@for link in 100mbit 25mbit 10mbit 1gbit unshaped; do \
		$(BIN)/trainingkit bench network --codec auto --link $$link --contenders plain --rounds 8 --minutes 3 --loss-steps 0 \
			--json benchmarks/results/network-auto-$$link.json $(ARGS) || true; \
	done

bench-changes: $(VENV)/.runtime ## does the controller follow links that change in mid-run? ten minutes
	@mkdir -p benchmarks/results
	@$(BIN)/trainingkit bench changes --json benchmarks/results/changes.json $(ARGS)

clean: ## remove what the other targets made (not your runs)
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -not -path './runs/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, found: $$($(PYTHON) --version). Choose one: make PYTHON=python3.12"; exit 1; }
	@echo "== virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "== installing PyTorch (some hundred MB on the first time)"
	@$(PIP) torch==2.13.0
	@echo "== installing TrainingKit"
	@$(PIP) --quiet --editable ".[numba]"
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime
	@echo "== installing the tools for tests"
	@$(PIP) --quiet --editable '.[dev]'
	@touch $@
