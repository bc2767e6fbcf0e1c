# Every target sets up what it needs: the environment is rebuilt only when pyproject.toml changes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/pip --disable-pip-version-check --quiet

.PHONY: demo test docs paper bench clean

demo: $(VENV)/.installed
	$(BIN)/hesrpt run examples/demo.toml

test: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest --quiet --numprocesses=3 --dist=loadfile

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

paper: $(VENV)/.installed
	$(BIN)/hesrpt paper --out docs/paper

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --editable .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	$(PIP) install --editable '.[test]'
	@touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(PIP) install --editable '.[docs]'
	@touch $@

$(VENV)/.bench: $(VENV)/.installed
	$(PIP) install --editable '.[bench]'
	@touch $@

clean:
	rm -rf $(VENV) out site
