# Everything a newcomer needs: `make demo` and `make test` on a fresh clone.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
DEV_STAMP := $(VENV)/.dev-stamp
PEERS  := .venv-peers
PEERS_STAMP := $(PEERS)/.stamp
# Of `make kernels` and `make campaigns`: how often they run, and of which folders or files the tests.
SEEDS   := 1
KERNELS := tests

.DEFAULT_GOAL := help
.PHONY: help venv dev demo check test kernels campaigns frozen lint style format golden peers lock audit chaos \
    soak clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

venv: $(STAMP)  ## create .venv from the lock; does nothing while the lock is unchanged

dev: $(DEV_STAMP)  ## what tests and checks need too

# Not on pyproject.toml: whoever changes dependencies there runs `make lock`, and the
# changed lock brings the environment up to date. bench/ has an entry point: `nestmap bench`.
$(STAMP): requirements.lock bench/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e bench
# PoCL links kernels with ld; where the machine has none, a linker comes from PyPI too.
	command -v ld >/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-linker.lock
	touch $@

$(DEV_STAMP): $(STAMP) requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.lock
	touch $@

demo: venv  ## tune one small layer on this machine and show the front; DEVICE=opencl:… elsewhere than on the processor
	$(BIN)/python -m nestmap.demo $(if $(DEVICE),--device '$(DEVICE)')

# Types are checked beside the tests; what they say comes last. Three processes, for many tests of
# farms wait.
beside_types = mkdir -p build; $(BIN)/pyright >build/types.txt 2>&1 & types=$$!; \
    $(1); tests=$$?; wait $$types; types=$$?; cat build/types.txt; exit $$((tests | types))
PYTEST = $(BIN)/python -m pytest -n 3 --dist worksteal

check: style  ## before each commit, in under two minutes: lint, types, layers, quick unit tests
	@$(call beside_types,$(PYTEST) -q --quick tests/unit)

test: style  ## what CI checks: lint, types, layers, all short tests and of the long ones those of this commit
	@$(call beside_types,$(PYTEST))

# Each run draws other random layers, programs and mappings, many more than `make test` does, and the
# first that fails ends it.
long_runs = for run in $$(seq $(SEEDS)); do \
        seed=$$(od -An -N4 -tu4 /dev/urandom | tr -d ' '); \
        echo "run $$run of $(SEEDS): --hypothesis-seed=$$seed, target $${NESTMAP_POCL_TARGET:-native}"; \
        NESTMAP_TESTS=long $(PYTEST) $(1) --hypothesis-seed=$$seed $(KERNELS) || exit; \
    done

kernels: dev  ## the tests that use an OpenCL device, in full; SEEDS=10 times, for NESTMAP_POCL_TARGET=haswell
	@$(call long_runs,-m kernels)

campaigns: dev  ## all tests in full: many more random cases than `make test`; SEEDS=10 times
	@$(call long_runs,)

frozen: dev  ## what must not change, all of it: constraints, counts, all records, searches (three minutes)
	$(BIN)/python -m tests.frozen

lint: style  ## style, formatting, types and import contracts
	$(BIN)/pyright

style: dev  ## what of `make lint` takes a second: all but types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

format: dev  ## put the code in its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

golden: dev  ## write the golden texts anew; read the diff before committing it
	$(BIN)/python -m pytest -n 2 --update-golden

peers: $(PEERS_STAMP)  ## create .venv-peers: what `nestmap bench spaces` and `bench cpu` measure beside nestmap

$(PEERS_STAMP): bench/peers/requirements.lock bench/peers/kernels.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bench/peers/requirements.lock
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --retries 1 -r bench/peers/kernels.txt
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e bench
	touch $@

lock: venv  ## resolve pyproject.toml anew into requirements.lock (all platforms, hashes)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --extra source --generate-hashes \
	    --python-version 3.11 --custom-compile-command 'make lock' -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --extra source --extra cluster --generate-hashes \
	    --constraint requirements.lock \
	    --python-version 3.11 --custom-compile-command 'make lock' -o requirements-farm.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --universal --all-extras --generate-hashes \
	    --constraint requirements.lock \
	    --python-version 3.11 --custom-compile-command 'make lock' -o requirements-dev.lock
	$(BIN)/uv pip compile requirements-linker.in --quiet --universal --generate-hashes \
	    --python-version 3.11 --custom-compile-command 'make lock' -o requirements-linker.lock
	$(BIN)/uv pip compile bench/peers/requirements.in --quiet --universal --generate-hashes \
	    --constraint requirements.lock --no-annotate \
	    --python-version 3.11 --custom-compile-command 'make lock' -o bench/peers/requirements.lock

audit: dev  ## known vulnerabilities of what is locked (needs PyPI), and its SBOM in build/
	mkdir -p build
	$(BIN)/cyclonedx-py requirements requirements-farm.lock -o build/sbom.json
	$(BIN)/pip-audit --requirement requirements-farm.lock --require-hashes --disable-pip --strict

scripts:  ## check the types of the dashboard's scripts (needs node and npm's registry)
	npx --yes -p typescript@5 tsc -p tests/dashboard/tsconfig.json

chaos: dev  ## ten minutes of a farm whose processes are killed, frozen and stopped at random
	$(BIN)/python -m tests.chaos.campaign --seconds 600

soak: dev  ## an hour of two honest users beside an attacker of each kind
	$(BIN)/python -m tests.hostile.soak --seconds 3600

clean:  ## remove the environment and every cache
	rm -rf $(VENV) $(PEERS) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find mapper worker db api nestmap bench tests -name __pycache__ -type d -prune -exec rm -rf {} +
