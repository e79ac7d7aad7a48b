# Two commands: `make run` starts a broker on port 6632, `make test` checks everything.
# `make soak-spool` kills PostgreSQL and brokers for some twenty minutes.
# All set up what they need first; a stamp file makes the second time quick.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Two workers share one PostgreSQL; tests of one file stay together. In their order: the longest are
# files of few tests, which xdist would leave for the end.
PYTEST_ARGS ?= -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: run test lint format audit soak-spool screenshots chromium clean
.DELETE_ON_ERROR:

run: $(VENV)/.installed
	@exec $(BIN)/python manage.py broker $(ARGS)

test: lint chromium
	$(BIN)/python -m pytest $(PYTEST_ARGS)

# The console's tests look at its pages in a real browser, Debian's.
chromium:
	@sh tests/browser/install_chromium.sh

# The pictures of docs/screenshots, anew.
screenshots: $(VENV)/.installed-dev chromium
	$(BIN)/python -m pytest -n 0 tests/browser --screenshots docs/screenshots

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The disk spool at full size: SOAK="outage --away 10" for one scenario, or other numbers.
SOAK ?= all
soak-spool: $(VENV)/.installed-dev
	$(BIN)/python tests/process/spool_soak.py $(SOAK)

# Known vulnerabilities of the pinned packages and of what they need; asks the registry's
# advisories. Strict: what has no entry there was not checked, and that is no pass.
audit: $(BIN)/python
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	$(VENV)-audit/bin/pip-audit --strict -r requirements-dev.txt

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(VENV)-audit .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Python 3.11 or newer is needed; $(PYTHON) is older or missing." >&2; \
	    echo "Name another with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "$(PYTHON) cannot make virtual environments." >&2; \
	    echo "On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: requirements.txt requirements-dev.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@ $(VENV)/.installed
