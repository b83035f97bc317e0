# Everything happens in .venv at the project's root. Set-up is incremental: the stamp is rebuilt only when
# the build description or a native source has changed; Python sources are used in place.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
NATIVE := $(shell find native -type f 2>/dev/null)

.PHONY: demo test check bench docs fuzz sanitize sanitize-threads test-matrix coverage mutants clean setup fast
setup: $(STAMP)

$(STAMP): pyproject.toml CMakeLists.txt $(NATIVE)
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP)
	$(BIN)/crfield demo

# Bytecode is kept whatever the environment says: half the time of collecting, and a part of every process started.
# A worker that has nothing left takes over half of what another still has; each worker has one core, so one thread.
test check: export PYTHONDONTWRITEBYTECODE =
test: export OMP_NUM_THREADS = 1
test: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright --level error examples/typed.py
	$(BIN)/python -m pytest tests/architecture

# A part of the tests with the oldest and newest allowed libraries, on every Python of the machine.
test-matrix: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.matrix --numprocesses auto

# Lines that no test runs, in this process and its workers: the least covered files first, then every line missed.
coverage: export OMP_NUM_THREADS = 1
coverage: $(STAMP)
	$(BIN)/python -m pytest --numprocesses auto --cov=crfield --cov-report=
	$(BIN)/python -m coverage report --skip-covered --sort=cover --show-missing

# Small changes of the code that tests should notice: make mutants COUNT=25 SEED=0 ROOMS="metrics optimize"
mutants: $(STAMP)
	$(BIN)/python -m tests.mutants $(ROOMS) --count $(if $(filter 3000,$(COUNT)),25,$(COUNT)) --seed $(SEED)

bench: $(STAMP)
	$(BIN)/python -m benchmarks

# The documentation site: build/docs/html/index.html. A warning is an error; scripts of the gallery run if they changed.
docs: $(STAMP)
	$(BIN)/python docs/site/stage.py build/docs/source
	$(BIN)/python -m sphinx -q -a -W --keep-going -c docs -d build/docs/cache build/docs/source build/docs/html

# Damaged and hostile files of every format: make fuzz COUNT=100000 SEED=1
COUNT ?= 3000
SEED ?= 0
fuzz: $(STAMP)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED)

# The compiled modules once more under sanitizers, in build folders of their own: kernels, readers and the fuzzer.
SANITIZED = OMP_NUM_THREADS=1 CRFIELD_KERNELS=native PYTHONMALLOC=malloc
READERS := tests/storage/test_archive.py tests/storage/test_archive_damage.py tests/storage/test_encoded.py tests/storage/foreign \
  tests/data/texts/test_formats.py tests/data/graphs/test_json.py
KERNELS := tests/kernels tests/inference/test_streaming.py tests/inference/test_tangent.py tests/inference/graphs/test_forest.py \
  tests/inference/graphs/test_loopy.py tests/training/chain/test_fused.py tests/scoring/test_densities.py tests/estimators/similarity
sanitize: $(STAMP) build/sanitize-address/.built
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	CRFIELD_NATIVE=build/sanitize-address $(SANITIZED) $(BIN)/python -m pytest -p tests.fuzz.sanitized $(KERNELS) $(READERS)
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	CRFIELD_NATIVE=build/sanitize-address $(SANITIZED) $(BIN)/python -m tests.fuzz.sanitized --count $(COUNT) --seed $(SEED)

# Every module that has threads (native/threads.hpp): tests of its kernels with n_jobs above 1, on the compiled body.
THREADED := tests/contracts/test_threads.py tests/features/test_templates.py tests/inference/test_tangent.py \
  tests/inference/graphs/test_forest.py tests/inference/graphs/test_gibbs.py tests/scoring/test_densities.py tests/kernels/chain/test_higher_order.py \
  $(addprefix tests/kernels/test_,boost.py columns.py relational.py segments.py vectors.py virtual_evidence.py) tests/kernels/graphs
sanitize-threads: $(STAMP) build/sanitize-thread/.built
	LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" TSAN_OPTIONS=exitcode=66 CRFIELD_NATIVE=build/sanitize-thread $(SANITIZED) \
	$(BIN)/python -m pytest -p tests.fuzz.sanitized $(THREADED) \
	-k "(thread or jobs or histograms or same_seed or normal_columns or bodies_agree) and not numpy and not fork"

build/sanitize-%/.built: CMakeLists.txt $(NATIVE) $(STAMP)
	cmake -S . -B build/sanitize-$* -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DCRFIELD_SANITIZE=$(if $(filter address,$*),address$(comma)undefined,$*)
	cmake --build build/sanitize-$* --parallel
	@touch $@

comma := ,

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache
