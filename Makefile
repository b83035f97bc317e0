# Everything happens in .venv at the project's root. Set-up is incremental: the stamp is rebuilt only when
# the build description or a native source has changed; Python sources are used in place.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(shell find native -type f 2>/dev/null)

.PHONY: demo test check bench clean setup fast
setup: $(STAMP)

$(STAMP): pyproject.toml CMakeLists.txt $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/crfield demo

test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist loadfile

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/architecture

bench: $(STAMP)
	$(BIN)/python -m benchmarks

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache
