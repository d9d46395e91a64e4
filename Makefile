# `make demo` and `make test` are all a newcomer needs; both set up .venv first.
SHELL := bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml constraints.txt CMakeLists.txt native/isas.cmake $(shell find native src -name '*.cc' -o -name '*.h' -o -name '__init__.py')
NATIVE := $(shell find native -name '*.cc' -o -name '*.h')
# In .venv, so that what is compiled once serves every later build: tools of another place would compile all anew.
BUILD_TOOLS := 'pip>=25' cmake nanobind ninja scikit-build-core setuptools-scm

.PHONY: help setup demo test browser lint format header stubs readme screenshots bench wheel fuzz test-isas clean
.PHONY: vllm synth sanitize sanitize-thread sanitize-address mutation docs notebooks diagrams

help:
	@echo "make demo      set up, build, and run the main job on the embedded default"
	@echo "make test      set up, build, and run every test"
	@echo "make test-isas the quick tests of models, on every lower instruction set; part of make test"
	@echo "make lint      ruff, mypy --strict and clang-format"
	@echo "make format    let ruff and clang-format rewrite the sources"
	@echo "make bench     measure, and keep the results under benchmarks/results"
	@echo "make synth     synthesise the papers' units: LIBRARY=NAME LIBERTY='FILE ...' of its cells; results are kept"
	@echo "make sanitize  the native tests and threads that share caches, under the address, undefined-behaviour and"
	@echo "               thread sanitizers; STRESS_SECONDS=600 for a long run"
	@echo "make fuzz      a million hostile files, for every reader; minutes per reader"
	@echo "make mutation  change every constant of the simulators and count those that a test notices; an hour on two cores"
	@echo "make vllm      set up vLLM for CPUs in build/vllm, and run the tests of the plugin for it"
	@echo "make wheel     build a wheel into dist, and try it outside the source tree"
	@echo "make header    generate the C++ header from tiles/layout.py"
	@echo "make stubs     generate _native.pyi from the compiled module"
	@echo "make readme    generate the README's tables from records, and docs/api.md"
	@echo "make docs      build the docs site into build/site, every link checked; needs no compiler"
	@echo "make notebooks run the notebooks of docs/notebooks, and keep what they print"
	@echo "make diagrams  draw the block diagrams of docs/rtl.md from today's design; needs Graphviz"
	@echo "make screenshots  take the README's pictures of the report"

setup: $(VENV)/installed

PROGRESS := awk '/^ *Downloading/ {print; fflush()} \
  match($$0, /\[[0-9]+\/[0-9]+\]/) {printf "\rcompiling %s ", substr($$0, RSTART, RLENGTH); fflush()} END {print ""}'
# Of 18,000 modules few are ever imported; these are compiled then.
$(VENV)/installed: $(SOURCES)
	@echo "Setting up $(VENV): packages of 1.7 GB, then the C++ code; 5 to 15 minutes on two cores."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile --constraint constraints.txt $(BUILD_TOOLS)
	@mkdir -p build
	$(BIN)/pip install --verbose --no-compile --constraint constraints.txt --no-build-isolation --editable '.[dev]' 2>&1 \
	    | tee build/setup.log | $(PROGRESS) || { tail -n 60 build/setup.log; exit 1; }
	touch $@

demo: setup
	$(BIN)/tilepress demo --html build/demo.html

# A process per core, four at most, since each takes a gigabyte. Each computes with two threads: more than there are
# cores, but what several threads do differently is tested.
WORKERS ?= $(shell cores=$$(nproc); echo $$((cores < 4 ? cores : 4)))
IN_PARALLEL := OMP_NUM_THREADS=2 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
test: setup browser
	$(IN_PARALLEL)
	$(MAKE) test-isas

# What models and modules do with kernels, on each instruction set below the best, which the run above had.
ISA_TESTS = $(shell grep -rlF 'mark.isas' tests --include='*.py')
test-isas: setup
	@isas=$$($(BIN)/python -c 'from tilepress import _native; print(*_native.supported_isas()[:-1])') || exit 1; \
	[ -z "$$isas" ] || $(MAKE) --jobs $(WORKERS) --output-sync $$(printf 'test-isa-%s ' $$isas)

# One process: most of these seconds are what imports take.
test-isa-%:
	TILEPRESS_ISA=$* OMP_NUM_THREADS=2 $(BIN)/python -m pytest -q -m isas $(ISA_TESTS)

# The report's tests drive a real browser. Where it cannot be installed they are skipped, and say so.
browser:
	@for name in chromium chromium-browser google-chrome; do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    { apt-get update -q && \
	      DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium fonts-dejavu-core; } \
	    || echo "chromium could not be installed: tests of the report in a browser are skipped"; \
	else echo "no chromium here: tests of the report in a browser are skipped; to run them: apt-get install chromium"; fi

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(NATIVE)

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE)

header:
	$(PYTHON) src/tilepress/tiles/layout.py > native/include/tilepress/layout.h

stubs: setup
	$(BIN)/python native/bindings/stub.py

readme: setup
	$(BIN)/python benchmarks/readme_table.py
	$(BIN)/python benchmarks/api_reference.py

screenshots: setup
	$(BIN)/python -m tests.report.screenshots

diagrams: setup
	$(BIN)/python -m tests.rtl.diagrams

# The site needs neither torch nor the C++ code, so not `setup`: a machine that builds nothing else is done in a minute.
DOCS_EXTRA := import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])
$(VENV)/docs-installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt $$($(PYTHON) -c '$(DOCS_EXTRA)')
	touch $@

docs: $(VENV)/docs-installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site is the site; to read it with search: python3 -m http.server --directory build/site"

# Those that measure want a machine that does nothing else.
notebooks: setup $(VENV)/docs-installed
	$(BIN)/python docs/site/execute.py

bench: setup
	$(BIN)/python benchmarks/run.py

# Half an hour; designs that benchmarks/results/synthesis has are left out.
synth: setup
	$(BIN)/python benchmarks/synth.py $(LIBRARY) $(LIBERTY)

STRESS_SECONDS ?= 20
STRESS_THREADS ?= 8
sanitize: sanitize-thread sanitize-address

# A program of its own: of an interpreter without instrumentation the thread sanitizer knows no locks.
sanitize-thread: setup
	$(BIN)/cmake -S . -B build/sanitized-threads -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
	    -DTILEPRESS_SANITIZE=thread -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
	    -Dnanobind_DIR="$$($(BIN)/python -m nanobind --cmake_dir)"
	$(BIN)/cmake --build build/sanitized-threads --target tilepress_stress
	TSAN_OPTIONS=halt_on_error=1 build/sanitized-threads/tilepress_stress $(STRESS_SECONDS) $(STRESS_THREADS)

# A second environment that borrows .venv's packages but not its tilepress; the sanitizers' runtime must come first.
SANITIZED := build/sanitized
sanitize-address: setup
	$(PYTHON) -m venv --clear $(SANITIZED)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	    > "$$($(SANITIZED)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/borrowed.pth"
	$(SANITIZED)/bin/pip install --quiet --no-deps --config-settings=build-dir=build/sanitized-objects \
	    --config-settings=cmake.define.TILEPRESS_SANITIZE=address .
	build/sanitized-objects/tilepress_stress $(STRESS_SECONDS) $(STRESS_THREADS)
	ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 TILEPRESS_SANITIZED=1 \
	    TILEPRESS_STRESS_SECONDS=$(STRESS_SECONDS) \
	    LD_PRELOAD="$$(c++ -print-file-name=libasan.so) $$(c++ -print-file-name=libstdc++.so)" \
	    $(SANITIZED)/bin/python -m pytest tests/tiles tests/kernels tests/nn tests/attacks/test_native_*.py tests/attacks/test_fuzz.py

# Another seed every day, printed with what was found; SEED=7 repeats that of another day.
SEED ?= $(shell date +%Y%m%d)
fuzz: setup
	$(BIN)/python -m tests.attacks.fuzz --cases 1000000 --seed $(SEED)

mutation: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.mutation

# vLLM wants another transformers than .venv has. What it would read images and sound with is not needed for text, and
# may be of another build of torch than vLLM's, which then does not start.
VLLM := build/vllm
vllm:
	$(PYTHON) -m venv $(VLLM)
	$(VLLM)/bin/pip install --quiet '.[vllm,test]'
	$(VLLM)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM)/bin/python -m pytest tests/vllm_plugin

wheel: setup
	$(BIN)/pip wheel --quiet --no-build-isolation --no-deps --wheel-dir dist .
	$(BIN)/python -m pytest tests/integration/test_wheel.py

clean:
	rm -rf $(VENV) build dist
