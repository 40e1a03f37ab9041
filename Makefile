# Everything here needs git, make and Python 3.11 to 3.13; the rest is installed on first use, below .venv and .venvs.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup dev conformance job check format test test-search test-clients template build packages stack release bench bench-cold \
	bench-recall load lock clean

PORT ?= 8000
AUTH ?= open
export SAM_CLI_TELEMETRY := 0
ARGS ?=
PY := .venv/bin/python
INSTALL := -m pip install --quiet --disable-pip-version-check --no-input

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/\1|\2/' | awk -F'|' '{printf "  make %-14s %s\n", $$1, $$2}'

# ---------------------------------------------------------------------------------------------------- environments

# A stamp holds the date of the last good installation; a lock that is newer installs again.
.venv/.ready: requirements-dev.lock pyproject.toml infra/find-python
	@python=$$(PYTHON="$(PYTHON)" infra/find-python); \
	if ! $(PY) -c 'import pip' 2>/dev/null; then \
		echo "Making .venv with $$python"; \
		test -x $(PY) && $(PY) -m ensurepip >/dev/null || "$$python" -m venv --clear .venv; \
	fi
	@echo "Installing the locked packages into .venv (first time: about a minute)"
	@$(PY) $(INSTALL) --no-deps --require-hashes -r requirements-dev.lock
	@$(PY) $(INSTALL) --no-deps -e .
	@touch $@

.venvs/emulator/.ready: infra/local/requirements-emulator.lock | .venv/.ready
	@echo "Installing the AWS emulator into .venvs/emulator (first time: about half a minute)"
	@$(PY) -c 'from infra.local.emulator import ensure_installed; ensure_installed()'
	@touch $@

.venvs/sam/.ready: infra/requirements-sam.lock infra/find-python
	@echo "Installing the SAM command line into .venvs/sam (first time: about a minute)"
	@python=$$(PYTHON="$(PYTHON)" infra/find-python); "$$python" -m venv --clear .venvs/sam
	@.venvs/sam/bin/python $(INSTALL) --no-deps --require-hashes -r infra/requirements-sam.lock
	@touch $@

setup: .venv/.ready .venvs/emulator/.ready ## Install what dev and test need (they do it by themselves)

# --------------------------------------------------------------------------------------------------------- running

dev: setup ## Run the whole stack locally: http://127.0.0.1:$PORT, data in .data/ (AUTH=jwt: with sign-in)
	@exec $(PY) -m infra.local --port $(PORT) --auth $(AUTH) $(ARGS)

conformance: setup ## The same with the conformance agents and nothing kept
	@exec $(PY) -m infra.local --conformance --port $(PORT) $(ARGS)

job: .venv/.ready ## Run a job of the search index: KIND=replay, reconcile, reindex or drop-index (API=address)
	@exec $(PY) -m infra.jobs $(KIND) --api $(or $(API),http://127.0.0.1:$(PORT)) $(ARGS)

# -------------------------------------------------------------------------------------------------------- checking

check: .venv/.ready ## Formatting, lint, strict types
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy

format: .venv/.ready ## Format and mend what the linter can mend
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

test: setup ## Unit, contract and integration tests (ARGS= for pytest)
	$(PY) -m pytest -n auto --dist worksteal -m 'not opensearch and not node and not package and not stack' $(ARGS)
	@echo "Not part of this run: make test-search (a real OpenSearch node; Java, Maven), make test-clients (published web clients; Node.js), make template (SAM), make packages (Python 3.13), make stack (SAM, openssl)"

test-search: setup ## Tests on a real OpenSearch node (needs Java 17 and Maven)
	@for tool in java mvn; do command -v $$tool >/dev/null || { echo "expected $$tool on PATH for test-search, found none; install Java 17 and Maven"; exit 1; }; done
	$(PY) -m pytest -m opensearch $(ARGS)

test-clients: setup ## Published web clients against the local stack (needs Node.js 20)
	@for tool in node npm; do command -v $$tool >/dev/null || { echo "expected $$tool on PATH for test-clients, found none; install Node.js 20"; exit 1; }; done
	$(PY) -m pytest -m node $(ARGS)

# Bytecode for the functions needs the functions' own Python, 3.13; without it the build says so and goes on.
template: .venvs/sam/.ready ## Validate, lint and build template.yaml
	.venvs/sam/bin/sam validate --lint --region us-east-1 --template template.yaml
	PYTHON="$$(PYTHON="$(PYTHON)" infra/find-python)" \
	PYTHON313="$$(PYTHON="$(PYTHON313)" infra/find-python 3.13 || echo false)" \
		.venvs/sam/bin/sam build --template template.yaml $(ARGS)
	.venvs/sam/bin/python infra/check_build.py

build: template ## The same as template

stack: setup .venvs/sam/.ready ## Deploy the template into the emulator, its roles enforced, and test it over HTTP (needs openssl)
	@$(PY) -m infra.stack $(ARGS)

# Functions run on Python 3.13, so without one each of these tests is skipped and says so.
packages: setup ## Run each function from its built package on a bare Python 3.13
	$(PY) -m pytest -m package tests/packages $(ARGS)

release: .venv/.ready ## Zips of the library's layers, named after the version, with checksums, into build/release
	$(PY) -m infra.release

bench: setup ## Requests, units and bytes of a turn, into build/bench.json
	@mkdir -p build
	$(PY) -m tests.bench $(ARGS)

bench-cold: setup ## Cold start of each built function beside boto3 (Python 3.13), into build/bench-cold.json
	@mkdir -p build
	$(PY) -m tests.bench.cold $(ARGS)

# LOAD_SECONDS and LOAD_CHATS change its size.
load: setup ## 50 chats at once for a minute, nothing lost or doubled, into build/load.json
	@mkdir -p build
	$(PY) -m tests.bench.load

bench-recall: setup ## Evidence found in planted chats by words, vectors and both, into build/bench-recall.json
	@mkdir -p build
	$(PY) -m tests.bench.recall $(ARGS)

# ------------------------------------------------------------------------------------------------------ housekeeping

.venvs/uv/bin/uv:
	@python=$$(PYTHON="$(PYTHON)" infra/find-python); "$$python" -m venv .venvs/uv
	@.venvs/uv/bin/python $(INSTALL) uv==0.13.9

COMPILE := .venvs/uv/bin/uv pip compile --quiet --universal --generate-hashes --no-emit-find-links \
	--no-emit-index-url --custom-compile-command 'make lock'

# What Lambda's Python brings by itself, and what opensearch-py names but imports only for its gRPC transport
IN_RUNTIME := boto3 botocore s3transfer jmespath python-dateutil six urllib3 grpcio protobuf opensearch-protobufs

lock: .venvs/uv/bin/uv ## Resolve all requirement locks again
	$(COMPILE) --python-version 3.11 pyproject.toml --extra local --group dev -o requirements-dev.lock
	$(COMPILE) --python-version 3.13 --constraint requirements-dev.lock $(IN_RUNTIME:%=--no-emit-package %) \
		layers/agent_memory/requirements.in -o layers/agent_memory/requirements.txt
	$(COMPILE) --python-version 3.13 --constraint requirements-dev.lock \
		functions/authorizer/requirements.in -o functions/authorizer/requirements.txt
	$(COMPILE) --python-version 3.11 infra/local/requirements-emulator.in -o infra/local/requirements-emulator.lock
	$(COMPILE) --python-version 3.11 infra/requirements-sam.in -o infra/requirements-sam.lock
	$(COMPILE) --python-version 3.11 tests/clients/requirements-schemathesis.in -o tests/clients/requirements-schemathesis.lock

clean: ## Remove build output and caches; environments and .data stay
	rm -rf build .aws-sam .pytest_cache .mypy_cache .ruff_cache *.egg-info layers/agent_memory/*.egg-info
	find functions layers infra tests -name __pycache__ -type d -prune -exec rm -rf {} +
