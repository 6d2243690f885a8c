# The few commands that a person needs; CONTRIBUTING.md says more. `make install` needs Python 3.11 and its venv module.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: install demo test check live docs accuracy bench

install: $(INSTALLED)

$(INSTALLED): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "error: tonnage needs Python 3.11 or later; name one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m compileall -q src
	@touch $@

demo: install
	@$(BIN)/tonnage plan qwen3.5-4b --gpu l4 --weights fp8 --kv fp8 --users 16 --context 24k

test: install
	@scripts/check test

check: install
	@scripts/check

live: install
	@scripts/live

docs: install
	@$(BIN)/python scripts/generate-docs

bench: install
	@$(BIN)/python bench/startup.py
	@$(BIN)/python bench/sim.py
	@$(BIN)/python bench/sim_million.py

accuracy: install
	@$(BIN)/python scripts/generate-accuracy
