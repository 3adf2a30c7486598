# make book  creates the environment if it is missing, runs every notebook and builds the book
# make pdf   prints the built book as one PDF
# make smoke reproduces a figure and a table of the paper in half a minute, and compares each number
# make review runs the smoke test and the claims, and prints expected beside obtained
# make test  runs the tests; make test-library those of ppmodel alone, which need no book; make test-fast two minutes of them
# make bench measures speed
# make archive packs code, data and the built book, with digests
PYTHON ?= python3
BIN := .venv/bin
HTML := book/_build/html/index.html
SOURCES := $(wildcard ppmodel/*.py ppmodel/*/*.py ppmodel/*/*/*.py book/ppbook/*.* book/ppbook/*/*.* book/ppbook/*/*/*.* notebooks/*.ipynb book/*.* book/_static/* data/*.* data/*/* data/*/*/*)

# Values given on the command line reach the shell through the environment, exactly as written: neither make nor the
# shell interprets them. A variable of the surrounding shell with the same name is ignored.
given = $(if $(filter command,$(firstword $(origin $(1)))),$(value $(1)))
export PPMODEL_SYSTEM = $(call given,SYSTEM)
export PPMODEL_MODEL = $(call given,MODEL)
export PPMODEL_MEMORY = $(call given,MEMORY)
export PPMODEL_GPUS = $(call given,GPUS)
export PPMODEL_BATCH = $(call given,BATCH)
unexport SYSTEM MODEL MEMORY GPUS BATCH
# Kernels, commands and tests start hundreds of interpreters, which find modules compiled whatever the shell asks for.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help env book pdf smoke review execute test test-execute test-fast test-library test-lowest bench archive lint lock clean

help:
	@echo "make env    create the environment in .venv, with ppmodel in it"
	@echo "make book   run the notebooks and build the book into $(dir $(HTML))"
	@echo "make book SYSTEM=mine.yaml MODEL=my-model.yaml GPUS=64 BATCH=512 MEMORY='64 GiB'   the same for your own, in a separate folder"
	@echo "make pdf    print the book as one PDF, next to its pages and linked from them (needs Chromium)"
	@echo "make smoke  reproduce Fig. 3 and Table I in half a minute, and say for each number whether it is met"
	@echo "make review run the smoke test, judge the claims, execute two tables: expected beside obtained, in two minutes"
	@echo "make execute run three tables for real, without and with a slow link, with PyTorch, beside what is simulated"
	@echo "make test   run the tests (and build the book if it is missing or out of date)"
	@echo "make test-execute   run those of ppmodel execute, with PyTorch, in an environment that it makes"
	@echo "make test-fast      run those of the core, and a sample of the oracle, in two minutes"
	@echo "make test-library   run those of ppmodel alone, in a few minutes and without the book"
	@echo "make test-lowest    run those with the lowest versions that pyproject.toml allows, from an installed wheel"
	@echo "make bench  time every stage of the work, and its peers, into data/reference/benchmarks.json"
	@echo "make archive pack the commit, the built book and a digest of every file into dist/"
	@echo "make lint   check style and types"
	@echo "make lock   pin the environment again (needs uv)"
	@echo "make clean  remove the environment and everything built"

.venv/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than Python 3.11; pass PYTHON=python3.11 or newer" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

env: .venv/.ready

book: .venv/.ready
	@$(BIN)/ppmodel reproduce $${PPMODEL_SYSTEM:+--system "$$PPMODEL_SYSTEM"} \
	  $${PPMODEL_MODEL:+--model "$$PPMODEL_MODEL"} $${PPMODEL_MEMORY:+--memory-limit "$$PPMODEL_MEMORY"} \
	  $${PPMODEL_GPUS:+--gpus "$$PPMODEL_GPUS"} $${PPMODEL_BATCH:+--global-batch "$$PPMODEL_BATCH"}

$(HTML): .venv/.ready $(SOURCES)
	$(BIN)/ppmodel reproduce

pdf: $(HTML)
	$(BIN)/ppmodel pdf

smoke: .venv/.ready
	@$(BIN)/ppmodel smoke

review: .venv/.ready
	@$(BIN)/python -m ppbook.build.review

# Three workers for two cores: many tests wait for processes that they started. Tests of a file share what they compute.
TOGETHER := --dist loadfile --no-loadscope-reorder
test: $(HTML)
	$(BIN)/python -m pytest -n 3 $(TOGETHER)

# Operations, tables, schedules, formulas, simulation and costs; and numbers as they were recorded (tests/oracle).
CORE := $(addprefix tests/,oracle tables schedules formulas loops metrics simulation/test_engine.py simulation/test_nodes.py test_imports.py \
  $(addprefix clusters/test_,$(addsuffix .py,costs layout_costs pairs work)))

# An environment of its own, which sees the other's packages: PyTorch is larger than all else.
.venv-execute/.ready: .venv/.ready
	$(PYTHON) -m venv .venv-execute
	.venv-execute/bin/python -m pip install --quiet --disable-pip-version-check $(shell sed -n 's/.*"\(torch==.*\)",/\1/p' pyproject.toml)
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
	  > $$(.venv-execute/bin/python -c 'import site; print(site.getsitepackages()[0])')/beside.pth
	@touch $@

EXECUTE = .venv-execute/bin/python -m ppmodel execute gpipe 1f1b chimera --pp 4 --microbatches 8 --forward 20ms --backward 40ms
execute: .venv-execute/.ready
	$(EXECUTE)
	$(EXECUTE) --link 1-2:delay=30ms

# Tables run for real, and gradients compared with those of one process.
test-execute: .venv-execute/.ready
	.venv-execute/bin/python -m pytest -n 2 tests/execution

test-fast: .venv/.ready
	$(BIN)/python -m pytest -n 4 --dist worksteal $(CORE)

test-library: .venv/.ready
	$(BIN)/python -m pytest -n 3 $(TOGETHER) --ignore tests/book ppmodel tests

test-lowest:
	.ci/lowest

bench: .venv/.ready
	$(BIN)/python -m benchmarks

# What an archive of research artefacts keeps: the same commit and book give the same bytes.
NAME := ppmodel-$(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
archive: $(HTML)
	rm -rf dist/$(NAME) && mkdir -p dist/$(NAME)
	git archive HEAD | tar -x -C dist/$(NAME)
	cp -r book/_build/html dist/$(NAME)/built-book
	cd dist/$(NAME) && find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0 sha256sum > SHA256SUMS
	tar --sort=name --mtime=@$$(git log -1 --format=%ct) --owner=0 --group=0 --numeric-owner -C dist -c $(NAME) | gzip -n > dist/$(NAME).tar.gz
	rm -rf dist/$(NAME)

# As a user's checker reads the package: strictly, and told nothing by our configuration.
AS_A_USER := --config-file= --strict --follow-imports=silent --ignore-missing-imports --cache-dir .mypy_cache/user

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy $(AS_A_USER) tests/typed

lock:
	uv pip compile --universal --python-version 3.11 $(addprefix --extra ,bench book calibrate cluster dev pdf sweep) --generate-hashes --no-header --no-annotate \
	  pyproject.toml -o requirements.lock

clean:
	rm -rf .venv .venv-execute book/_build dist results .pytest_cache .hypothesis .mypy_cache .ruff_cache
