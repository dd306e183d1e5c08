# The same verbs for people, hooks and CI. Each target makes the environment it needs; only Python 3.11+, git and make are assumed.
PYTHON ?= python3
BIN := .venv/bin
UV := $(shell command -v uv 2>/dev/null)
# One more than there are cores, since a test waits now and then; no more than eight, since each reads all tests first.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(min(os.cpu_count() or 1, 7) + 1)")
# Live tests wait for servers as much as they compute, so more of them than cores run at once.
LIVE_WORKERS ?= 3
# The plugins that the tests use, by name: with those that are installed, ours among them, pytest would rewrite every module of src/ in every worker.
PYTEST := $(BIN)/python -m pytest --disable-plugin-autoload -p anyio -p hypothesispytest -p timeout -p xdist

NATIVE := .venv/native
COMPILER := .venv/compiler
.PHONY: release demo test test-native cover changelog hooks test-live test-lowest test-newest torture sbom licences format lint typecheck docs screenshots bench bench-peers serve site clean
SOURCES := src tests benchmarks docs supply_chain

# Only what proctor itself needs, unless the whole environment is there already.
demo: $(if $(wildcard .venv/.ready),.venv/.ready,.venv/.lean)
	@$(BIN)/proctor demo

test: .venv/.ready
	$(PYTEST) -n $(WORKERS) --dist worksteal -q -rs

# Branch coverage of the unit tests, lowest packages first. Tests that start other processes hardly count here.
cover: .venv/.ready
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q -p no:cacheprovider $(ONLY)
	$(BIN)/coverage json --quiet -o .coverage.json
	$(BIN)/python -m tests.coverage_table .coverage.json

# Gathers the notes under changes/ in CHANGELOG.md: `make changelog VERSION=0.2.0`.
changelog: .venv/.ready
	$(BIN)/python -m docs.changelog $(VERSION)

# Builds wheel and sdist reproducibly, checks and tries them in new environments, and writes dist/. `make release VERSION=0.2.0` also folds the notes and tags.
release: .venv/.ready
	$(BIN)/python -m supply_chain.release $(VERSION) $(if $(QUICK),--quick)

# Formats, lints and writes the generated pages before every commit.
hooks: .venv/.ready
	$(BIN)/pre-commit install

# Tests that assert milliseconds run first, one after the other.
test-live: test-live-quiet test-live-others

.PHONY: test-live-quiet test-live-others
test-live-quiet: .venv/.ready
	$(PYTEST) -m "live and quiet" -q -rs tests/live || test $$? -eq 5

test-live-others: .venv/.ready
	$(PYTEST) -m "live and not quiet" -n $(LIVE_WORKERS) --dist loadfile --no-loadscope-reorder -q -rs || test $$? -eq 5

# The crash tests, twenty rounds instead of one or two; the database away for half a minute; thirty rounds of stalled bodies, half heads and slow readers, and of
# one tenant's patterns, voices and heavy requests to simulated systems next to another tenant; a hundred runs ended by signals; a hundred thousand changed suites, recordings and requests, two hundred requests
# for each operation, and all tests of REST and the service on both databases; thirty thousand harmless fields; ten times the examples of every property; every search of FHIR that an independent server answers beside ours;
# the browser tests with scripts that come 700 ms after their page.
torture: .venv/.ready
	PROCTOR_ON_REQUEST=1 PROCTOR_CROWD_ROUNDS=30 PROCTOR_FLOOD_ROUNDS=30 $(BIN)/python -m pytest -m live -q tests/live/floods tests/rest/server/test_slow_clients.py
	PROCTOR_ON_REQUEST=1 PROCTOR_CRASH_ROUNDS=20 PROCTOR_OUTAGE_S=30 PROCTOR_SIGNAL_ROUNDS=100 $(BIN)/python -m pytest -m live -q tests/live/crashes
	PROCTOR_SCHEMA_EXAMPLES=200 $(BIN)/python -m pytest -m live -q tests/rest/server/test_openapi.py
	PROCTOR_ON_REQUEST=1 $(BIN)/python -m pytest -q -m "on_request" tests
	PROCTOR_ON_REQUEST=1 PROCTOR_EVERY_DATABASE=1 $(BIN)/python -m pytest -m live -q tests/rest tests/service --ignore tests/rest/server/test_openapi.py
	PROCTOR_FUZZ_EXAMPLES=110000 PROCTOR_PAIRS=200 $(BIN)/python -m pytest -q tests/fuzz tests/evidence/test_never_green.py
	PROCTOR_HARMLESS_PLACES=30000 $(BIN)/python -m pytest -q tests/evidence/test_harmless_fields.py
	PROCTOR_EXAMPLES=10 $(BIN)/python -m pytest -q -m "hypothesis and not live"
	PROCTOR_FHIR_SEARCHES=all $(BIN)/python -m pytest -m live -q tests/live/clients/test_fhir_second_opinion.py
	$(MAKE) test-native
	PROCTOR_PAGE_LATENCY_MS=700 $(BIN)/python -m pytest -m live -q tests/live/browser
	PROCTOR_ON_REQUEST=1 PROCTOR_BATCH_DEATHS=10 $(BIN)/python -m pytest -m live -q tests/batches/test_kills.py tests/batches/cluster/test_dask_deaths.py
	PROCTOR_BATCH_TRACES=1000000 PROCTOR_BATCH_PARTITIONS=50000 PROCTOR_BATCH_FILES=10000 $(BIN)/python -m pytest -q -s tests/batches/test_torture.py tests/batches/test_footers.py

# The lowest and the highest versions that `pyproject.toml` allows, in separate environments; `ONLY="tests/store -k sqlite"` runs some of the tests.
LOWEST ?= .venv/lowest
NEWEST ?= .venv/newest
ONLY ?=

test-lowest: .venv/.ready
	mkdir -p $(LOWEST)
	$(BIN)/python -m supply_chain.bounds constraints > $(LOWEST).txt
ifdef UV
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(LOWEST)
	$(UV) pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --constraint $(LOWEST).txt --editable '.[all,providers]' --group dev
else
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(LOWEST).txt --editable '.[all,providers]' --group dev
endif
	$(LOWEST)/bin/python -m supply_chain.bounds verify lowest
	$(LOWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -q -rs $(ONLY)

test-newest: .venv/.ready
ifdef UV
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(NEWEST)
	$(UV) pip install --quiet --python $(NEWEST)/bin/python --resolution highest --upgrade --editable '.[all,providers]' --group dev
else
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --upgrade-strategy eager --editable '.[all,providers]' --group dev
endif
	$(NEWEST)/bin/python -m supply_chain.bounds verify newest
	$(NEWEST)/bin/python -m pytest -n $(WORKERS) --dist worksteal -q -rs $(ONLY)

# What is in an installation: a bill of materials under dist/, and the page of licences, which fails on one that was not reviewed.
sbom: .venv/.ready
	$(BIN)/python -m supply_chain.bill

licences: .venv/.ready
	$(BIN)/python -m supply_chain.licences

serve: .venv/.ready
	$(BIN)/proctor serve

format: .venv/.ready
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/ruff check --fix $(SOURCES)

lint: .venv/.ready
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/python -m docs.plain_words
	@echo "long files and functions, for information:" && $(BIN)/python -m docs.architecture_table

typecheck: .venv/.ready
	$(BIN)/pyright

docs: .venv/.ready
	$(BIN)/python -m docs.generate

# The pictures of the web pages for the docs, of a service that is seeded for them; needs the package playwright and a Chromium.
screenshots: .venv/.ready
	$(BIN)/python -m docs.screenshots
	PROCTOR_SCREENSHOTS=1 $(BIN)/python -m pytest -m live -q tests/live/browser/test_screenshots.py

# With the reader of traces compiled, as a native wheel has it, if this machine has a C compiler.
COMPILED := $(if $(shell command -v cc),$(NATIVE))
bench: .venv/.ready $(COMPILED:%=%/.ready)
	PYTHONPATH=$(COMPILED) $(BIN)/python -m benchmarks

# A copy of the package with the reader of traces compiled to C: `design/native.md`. Takes some minutes. Made anew after any change: it has all modules.
$(NATIVE)/.ready: .venv/.ready native_build.py $(shell find src/proctor -type f -not -name '*.pyc')
ifdef UV
	$(UV) venv --quiet --allow-existing --python $(BIN)/python $(COMPILER)
	$(UV) pip install --quiet --python $(COMPILER)/bin/python $$($(BIN)/python -c "import native_build; print(*native_build.REQUIREMENTS)")
else
	$(PYTHON) -m venv $(COMPILER)
	$(COMPILER)/bin/python -m pip install --quiet --disable-pip-version-check $$($(BIN)/python -c "import native_build; print(*native_build.REQUIREMENTS)")
endif
	$(COMPILER)/bin/python native_build.py $(NATIVE)
	@touch $@

# The tests of what is compiled, on the compiled package.
test-native: $(NATIVE)/.ready
	PYTHONPATH=$(NATIVE) $(PYTEST) -n $(WORKERS) --dist worksteal -q -rs tests/evidence tests/decide tests/sources tests/report

# Writes docs/benchmarks.md. In environments of their own: the peers bring hundreds of packages that nothing else here may come to depend on.
PEERS := .venv/peers
PHOENIX := .venv/phoenix
bench-peers: .venv/.ready
ifdef UV
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(PEERS)
	$(UV) pip install --quiet --python $(PEERS)/bin/python --editable '.[all]' --group dev -r benchmarks/peers.txt
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(PHOENIX)
	$(UV) pip install --quiet --python $(PHOENIX)/bin/python arize-phoenix
else
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev -r benchmarks/peers.txt
	$(PYTHON) -m venv $(PHOENIX)
	$(PHOENIX)/bin/python -m pip install --quiet --disable-pip-version-check arize-phoenix
endif
	PHOENIX_PYTHON=$(abspath $(PHOENIX))/bin/python $(PEERS)/bin/python -m benchmarks --page docs/benchmarks.md

# The pages under docs/ as a searchable site, in site/; fails on a link that leads nowhere. In an environment of its own: nothing else needs it.
SITE := .venv/site
site: .venv/.ready
	$(PYTHON) -m venv $(SITE)
	$(SITE)/bin/python -m pip install --quiet --disable-pip-version-check 'zensical==0.0.73'
	$(SITE)/bin/zensical build -f mkdocs.yml --clean --strict

clean:
	rm -rf site .venv .pytest_cache .ruff_cache .hypothesis

ifdef UV
.venv/.lean: pyproject.toml uv.lock
	@echo "Installing proctor into .venv ..."
	@$(UV) sync --quiet --frozen --inexact --python $(PYTHON) --no-dev
	@touch $@

.venv/.ready: pyproject.toml uv.lock
	$(UV) sync --quiet --frozen --python $(PYTHON) --extra all
	$(BIN)/python -m compileall -q src
	@touch $@
else
.venv/.lean: pyproject.toml uv.lock
	@echo "Installing proctor into .venv ..."
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.ready: pyproject.toml uv.lock
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[all]' --group dev
	$(BIN)/python -m compileall -q src
	@touch $@
endif

# Installs the real n8n and Flowise (minutes, gigabytes) and drives them, then the real frameworks; `make platforms PLATFORM=n8n` for one of the two.
.PHONY: platforms
platforms: .venv/.ready
	$(BIN)/python -m tests.platforms.install $(PLATFORM)
	$(BIN)/python -m pytest -m platform -q $(if $(PLATFORM),$(PLATFORM:%=tests/platforms/test_%.py),tests/platforms)
	$(if $(PLATFORM),,$(MAKE) framework-pages)

# Installs the real Arize Phoenix and MLflow, and the SDKs of Langfuse and LangSmith (minutes, 1.3 GB, under .platforms/), and holds the tables of spans that
# they write to what is sent over OTLP; then batches on the emulators of Azure's and Google's object stores. `make platforms` does so, too.
.PHONY: span-tables
span-tables: .venv/.ready
	$(BIN)/python -m pytest -m platform -q tests/platforms/test_span_tables.py tests/platforms/test_object_stores.py

# Installs real agent frameworks (minutes, gigabytes, under .frameworks/) and records their traces anew; `make frameworks ONLY="langgraph-oi strands-mcp"` for some.
.PHONY: frameworks
frameworks: .venv/.ready
	$(BIN)/python -m tests.frameworks.record $(ONLY)

# Installs the frameworks of docs/how-to/frameworks/ (minutes, gigabytes, under .frameworks/), runs every page as it is written, and `proctor init --for`
# each of them in an empty folder; `ONLY=crewai` for one.
.PHONY: framework-pages
framework-pages: .venv/.ready
	PROCTOR_ON_REQUEST=1 PROCTOR_FRAMEWORK_PAGES=all $(BIN)/python -m pytest -m live -q tests/live/clients/test_framework_pages.py tests/live/clients/test_framework_returns.py $(if $(ONLY),-k "$(ONLY)")

# Builds the wheel, installs it with what each page of the docs names and nothing else (under .frameworks/lean), and executes the page there;
# `ONLY="README how-to/test-n8n"` for some. `make test` does the same on links into .venv.
.PHONY: pages-lean
pages-lean: .venv/.ready
	$(BIN)/python -m tests.lean_pages $(ONLY)
