# Everything starts from a fresh machine: each target sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-oldest check docs format real passes prompts bits memory first-token draft-context control fuzz schedules soak clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

setup: $(READY) ## virtual environment in .venv, pinned by constraints.txt

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; try: make PYTHON=python3.12 ...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV); torch is large, so the first time takes minutes"
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY) ## write a text plainly and speculatively, side by side
	@$(BIN)/draftproof demo

PYTEST := OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
WORKERS := -n auto --maxprocesses 4 --dist worksteal
test: $(READY) ## the test suite (CPU, no network)
	@$(PYTEST) $(BIN)/python -m pytest $(WORKERS)

OLDEST := .venv-oldest
$(OLDEST)/.ready: pyproject.toml constraints.txt
	@test -x $(OLDEST)/bin/python || $(PYTHON) -m venv $(OLDEST)
	@grep -vE '^(transformers|huggingface_hub|tokenizers)==' constraints.txt > $(OLDEST)/constraints.txt
	@$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check -c $(OLDEST)/constraints.txt -e '.[dev]' 'transformers==5.17.*'
	@touch $@

test-oldest: $(OLDEST)/.ready ## the test suite on the oldest supported transformers
	@$(PYTEST) $(OLDEST)/bin/python -m pytest $(WORKERS)

check: $(READY) ## lint, format, types, layering, docs as the program says
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python docs/generate.py --check

docs: $(READY) ## write the tables of options and commands from the program
	@$(BIN)/python docs/generate.py

format: $(READY) ## rewrite the sources in the project's format
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

CASES ?= 10000
fuzz: $(READY) ## random requests with speculation on and off: CASES of them, compared token by token
	@DRAFTPROOF_FUZZ=$(CASES) OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(BIN)/python -m pytest tests/test_fuzz.py --timeout=7200 -k no_option

SCHEDULES ?= 2000
schedules: $(READY) ## random schedules of many texts at once: SCHEDULES of them, every text compared with itself alone
	@DRAFTPROOF_SCHEDULES=$(SCHEDULES) $(PYTEST) $(BIN)/python -m pytest $(WORKERS) tests/engines/test_schedules.py --timeout=7200

MINUTES ?= 10
soak: $(READY) ## 64 clients on a real server for MINUTES, every text compared with itself alone
	@OMP_NUM_THREADS=1 $(BIN)/python benchmarks/soak.py --minutes $(MINUTES)

real: $(READY) ## exactness on the real models in $$DRAFTPROOF_TARGET and $$DRAFTPROOF_DRAFT (slow)
	@$(BIN)/python -m pytest -m real --timeout=3600 -s

PAIR = $(DRAFTPROOF_TARGET) $(DRAFTPROOF_DRAFT)
passes: $(READY) ## pass times against the roofline, of the real models
	@$(BIN)/python benchmarks/passes.py $(or $(strip $(PAIR)),demo-target demo-draft)

prompts: $(READY) ## how fast the real target reads prompts, compiled and through transformers
	@$(BIN)/python benchmarks/prompts.py $(or $(DRAFTPROOF_TARGET),demo-target)

bits: $(READY) ## speculation on and off, bit for bit: 200 prompts, four k, two number formats
	@$(BIN)/python benchmarks/bits.py
	@$(BIN)/python benchmarks/bits.py --compile off --prompts 20

memory: $(READY) ## memory over 2,000 rounds
	@$(BIN)/python benchmarks/memory.py

control: $(READY) ## policies against every fixed k and the oracle, by replay: TRACES="a.jsonl.gz b.jsonl.gz"
	@$(BIN)/python benchmarks/control.py $(TRACES)

draft-context: $(READY) ## what a draft loses by reading the end of long prompts only: PROMPTS=FILE of JSON lines
	@$(BIN)/python benchmarks/draft_context.py $(PAIR) --prompts $(PROMPTS)

first-token: $(READY) ## from a cold process to the first token
	@$(BIN)/python benchmarks/first_token.py $(PAIR)

clean: ## remove the environment and caches
	rm -rf $(VENV) $(OLDEST) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
