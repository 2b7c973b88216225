# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export MUJOCO_GL ?= egl
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: help install demo test test-all lint types check proto bench clean

help: ## Show what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(BIN)/.installed: pyproject.toml constraints.txt requirements-alone.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps -r requirements-alone.txt
	@touch $@

install: $(BIN)/.installed ## Make .venv with everything that the tests need

demo: install ## Closed-loop episodes of three tasks over gRPC; results under runs/demo/
	$(BIN)/mstar-plan demo out=runs/demo

test: install ## The default tests (every feature; slow, GPU and soak checks have markers)
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-all: install ## All tests that this machine can run
	$(BIN)/python -m pytest

lint: install ## ruff
	$(BIN)/ruff check .

types: install ## mypy --strict on the package
	$(BIN)/mypy

check: lint types test ## Everything that CI calls

proto: ## Generate the gRPC stubs with an old grpcio-tools, so that they import with many protobuf versions
	$(PYTHON) -m venv .venv-proto
	.venv-proto/bin/pip install --quiet 'grpcio-tools==1.62.3' 'setuptools<80'
	.venv-proto/bin/python scripts/generate_proto.py

bench: install ## The planning benchmark; prints a table and writes JSON
	$(BIN)/python scripts/bench_plan.py

clean: ## Remove the environment and everything that was generated
	rm -rf $(VENV) .venv-proto runs build dist .pytest_cache .mypy_cache .ruff_cache
