# Every target sets up what it needs: the environment is rebuilt only when pyproject.toml changes.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Python compiles what it imports, once: pip would compile everything, which takes half a minute.
PIP    := $(BIN)/pip --disable-pip-version-check --quiet install --no-compile --editable
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test setup test-all test-more test-slurm cpython-tests chaos lint docs docs-serve
.PHONY: paper bench clean

demo: $(VENV)/.installed
	$(BIN)/hesrpt run examples/demo.toml

# Four processes for two cores, because many tests only wait. tests/conftest.py groups the tests.
PYTEST := $(BIN)/pytest --quiet --numprocesses=4 --dist=loadfile --no-loadscope-reorder

# A test that hangs ends its process after five minutes, which shows where it was.
LIMIT := -o faulthandler_timeout=300 -o faulthandler_exit_on_timeout=true
test: setup cpython-tests $(VENV)/.collected
	$(PYTEST) $(LIMIT)

# On a new machine, what uses one core only runs beside something else.
setup: $(VENV)/.installed
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.compiled $(VENV)/.test

# Slow tests as well, and more examples of the property tests, which differ from run to run.
test-all: setup lint cpython-tests $(VENV)/.docs
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m ''

# The slow tests, which CI runs too, one after another: some need much memory.
test-more: $(VENV)/.test $(VENV)/.docs
	$(BIN)/pytest --quiet $(LIMIT:300=1200) -m slow

# The tests that need a real Slurm; installs Debian's packages of it if necessary, as root.
test-slurm: $(VENV)/.test
	@sh .ci/install-slurm
	$(BIN)/pytest --quiet -m slurm tests

# Kills the live scheduler and its processes at random; CHAOS='--seed 7 --kills 200' for another run.
CHAOS ?= --seed 1 --kills 1000
chaos: $(VENV)/.test
	PYTHONPATH=tests $(BIN)/python -m chaos $(CHAOS)

cpython-tests: $(VENV)/.test
	@sh .ci/fetch-cpython-tests $(VENV)

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "open site/index.html; the search box needs a web server: 'make docs-serve'"

docs-serve: docs
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory site 8000

paper: $(VENV)/.installed
	$(BIN)/hesrpt paper --out docs/paper

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

$(VENV)/.created: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.created
	$(PIP) .
	@touch $@

# Names of extras.
$(VENV)/.test $(VENV)/.docs $(VENV)/.bench: $(VENV)/.%: $(VENV)/.installed
	$(PIP) '.[$*]'
	@touch $@

# Compiles most of what numba ever compiles, while pip installs what the tests need.
$(VENV)/.compiled: $(VENV)/.installed
	-@$(BIN)/hesrpt whatif examples/cluster.swf --p 0.7 --bound --window 0d..1d >/dev/null
	@touch $@

# Lets Python compile what the tests import once, before several processes do it at the same time.
$(VENV)/.collected: $(VENV)/.test
	-@$(BIN)/pytest --quiet --collect-only >/dev/null
	@touch $@

clean:
	rm -rf $(VENV) out site
