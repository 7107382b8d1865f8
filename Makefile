# Every target makes what it needs: a virtual environment in .venv, and nothing outside this folder (but a note of asv, see `gate`).
PYTHON ?= python3
VENV := .venv
BIN := $(abspath $(VENV))/bin
# What builds the package (pyproject.toml), installed here: the compiler runs as a step of its own, in sight, before pip packs its work.
# It needs the first two; the others come beside it, with what fedkern needs.
BUILDERS := $(wordlist 1,2,$(shell sed -n 's/^requires = \[\(.*\)\].*/\1/p' pyproject.toml | tr -d ,))
# Most of what pip unpacks is never imported: Python compiles the rest when it is, instead of pip all.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-compile
# $(SAY) NAME COMMAND .. says every few seconds how far the command is; `make demo` ends with the seconds of each name.
SAY := $(PYTHON) tools/progress.py $(VENV)/seconds
LINTS := lint-mypy lint-tests lint-imports lint-ruff lint-clang lint-asv
SOURCES := pyproject.toml setup.py tools/stubs.py $(shell find fedkern csrc -type f ! -name '*.so' ! -name '*.pyc' ! -name '.*' \
	! -path 'fedkern/_core/*' ! -path 'fedkern/cli/completion/*')

.PHONY: demo install test suite shard share lint $(LINTS) nightly golden gate speed-pages docs pages references sbom clean other-levels

# A federated posterior with its privacy certificate, from an mpirun job: a server and five clients on this machine. Its folder is
# runs/make-demo, which it makes anew; `fedkern demo` writes into runs/demo, and overwrites nothing.
demo: $(VENV)/demo
	@rm -rf runs/make-demo
	@# The ranks import at once, and each would compile all that none has imported before.
	@$(SAY) job $(BIN)/fedkern check fedkern/demo.toml
	@PATH="$(BIN):$$PATH" $(PYTHON) tools/progress.py --show $(VENV)/seconds job $(BIN)/fedkern demo --out runs/make-demo
	@awk '{ s[$$1] += $$2 } END { printf "Seconds: pip %d, compiler %d, job %d.\n", s["pip"], s["compiler"], s["job"] }' $(VENV)/seconds
	@rm $(VENV)/seconds

# Compiled modules are kept, whatever the environment says: every rank of a test's mpirun would compile those of the tests anew, and
# every worker of the next run all of them.
export PYTHONDONTWRITEBYTECODE :=

# What must pass before a change goes in. Tests run from their own folder, against the installed package, on two workers.
PYTEST := $(BIN)/python -P -m pytest -q -n 2

# mypy is longer than all other lints together, and takes one core: it goes beside the tests, which are imported there.
test: install
	@$(MAKE) --no-print-directory -k -j2 -Otarget $(filter-out lint-mypy lint-tests,$(LINTS))
	@$(MAKE) --no-print-directory -k -j2 lint-mypy suite

# One case of each test of jobs, methods and models, others for every commit: `make test CASES=` has them all.
CASES ?= --cases 1
suite: install
	cd tests && $(PYTEST) --dist loadfile $(CASES)

# One part of several, for as many machines: make shard SHARD=1/4
SHARD ?= 1/4
shard: install
	cd tests && $(PYTEST) --dist loadfile $(CASES) --shard $(SHARD)

# Three minutes of the nightly tests, others for every commit.
share: install
	cd tests && NUMBA_OPT=3 $(PYTEST) --dist load -m nightly --nightly-share 180

# With the levels that this machine can't run, too: they compile, and no more is known of them here.
nightly: lint
	@$(MAKE) --no-print-directory FEDKERN_LEVELS=all install
	cd tests && NUMBA_OPT=3 $(PYTEST) --dist loadfile -m 'nightly or not nightly'

# Whether this commit computes the same bits as another, on this machine: make golden BASE=COMMIT
BASE ?= HEAD
golden: $(VENV)/test
	$(BIN)/python tests/golden/compare.py $(BASE)

# Whether this commit made a kernel slower beside its peer than another: make gate BASE=COMMIT, by itself the one before. Both are
# compiled first, from the repository: what is not committed is not measured. asv notes this machine in ~/.asv-machine.json.
gate: install
	cd benchmarks && $(BIN)/asv machine --yes && \
	$(BIN)/asv continuous --factor 1.15 --bench '^gate' $(if $(filter HEAD,$(BASE)),HEAD~1,$(BASE)) HEAD

# What asv has measured on this machine, beside the documents.
speed-pages: install
	cd benchmarks && $(BIN)/asv publish --html-dir $(abspath build/docs/speed)

# The documents, as pages in build/docs, with the gallery's figures, which the installed package draws. A warning is an error; the
# build and the pages need no network.
docs: pages $(VENV)/docs
	$(BIN)/sphinx-build -W --keep-going -n -q -b html -d build/doctrees docs build/docs
	@echo "build/docs/index.html"

# Pages and references that are generated from the program.
pages: $(VENV)/test
	$(BIN)/python tools/pages.py

# What runs at a site, with versions and licences, as CycloneDX: the package's dependencies and its extras in an environment of their own.
EXTRAS ?= mpi dp page formula secure
sbom:
	rm -rf build/sbom && mkdir -p build && $(PYTHON) -m venv build/sbom
	build/sbom/bin/python -c 'import sys, tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *(d for e in sys.argv[1:] for d in p["optional-dependencies"][e]), sep="\n")' $(EXTRAS) > build/sbom.txt
	build/sbom/bin/python -m pip install --quiet --disable-pip-version-check -r build/sbom.txt
	$(PYTHON) -m venv build/cyclonedx && build/cyclonedx/bin/python -m pip install --quiet --disable-pip-version-check cyclonedx-bom
	build/cyclonedx/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json build/sbom/bin/python
	@echo "build/sbom.json"

# Long runs of another program, whose summaries the tests compare with. They are stored: only a change of tools/references needs this.
references: export PYTHONPATH := benchmarks
references: $(VENV)/test
	$(PIP) --quiet 'numpyro>=0.16' 'jax>=0.4.30' jaxlib
	$(BIN)/python tools/references/sparse.py
	$(BIN)/python tools/references/vertical.py
	$(BIN)/python tools/references/hierarchical.py
	$(BIN)/python tools/references/sigma.py
	$(BIN)/python tools/references/likelihood.py

# Two at a time, the longest first.
lint: install
	@$(MAKE) --no-print-directory -k -j2 -Otarget $(LINTS)

# It reads the sources, which get the stubs of the module that was compiled.
lint-mypy:
	$(BIN)/python -P tools/stubs.py --sources fedkern
	$(BIN)/mypy --show-traceback

lint-imports:
	$(BIN)/lint-imports

lint-ruff:
	$(BIN)/ruff check .

lint-clang:
	find csrc tests -name '*.?pp' -o -name '*.cu' | xargs $(BIN)/clang-format --dry-run -Werror

# Whether all tests can be imported; on the core that mypy leaves free they are compiled for both workers.
lint-tests:
	cd tests && $(BIN)/python -P -m pytest -qq --collect-only > $(BIN)/../collected.txt || { tail -40 $(BIN)/../collected.txt; false; }

lint-asv:
	cd benchmarks && $(BIN)/asv check -E existing:$(BIN)/python

install: $(VENV)/test

# pip waits for the network and for one core, so what fedkern needs comes beside the compiler's work. Commands of one shell line, so
# that a rule can choose.
needs = $(BIN)/python tools/needs.py $(EXTRAS) > $(VENV)/needs.txt
compiled = $(needs) && $(SAY) pip $(PIP) $(BUILDERS) && \
	$(SAY) pip $(PIP) -r $(VENV)/needs.txt + compiler $(BIN)/python setup.py --quiet build_ext && \
	$(SAY) pip $(PIP) --no-deps --no-build-isolation . && echo "$$FEDKERN_LEVELS" > $(VENV)/levels
# pip takes a file of the version that is installed for the same, and does nothing, unless it is told to.
from_wheel = echo "Installing $$wheel: it was built from these sources." && $(needs) && $(SAY) pip $(PIP) -r $(VENV)/needs.txt && \
	$(SAY) pip $(PIP) --no-deps --no-index --force-reinstall "$$wheel" && echo all > $(VENV)/levels

# The levels of instructions that are asked for; $(call lacking,LEVELS) names a step without a file where others are installed.
WANTED := $(or $(FEDKERN_LEVELS),native)
ENOUGH := all $(if $(filter native,$(WANTED)),usable)
lacking = $(if $(filter $(ENOUGH) $(1),$(shell cat $(VENV)/levels 2>/dev/null)),,other-levels)

# From a wheel in dist/, if it was built from these very files; else the level of instructions that this machine has is compiled.
$(VENV)/demo: EXTRAS := mpi,dp,page,demo
$(VENV)/demo: export FEDKERN_LEVELS := $(WANTED)
$(VENV)/demo: $(SOURCES) $(call lacking,$(WANTED)) | $(VENV)/bin/python
	@echo "Looking into dist/ for a wheel of these sources .."
	@wheel="$$($(BIN)/python tools/wheel.py dist)" && if [ -n "$$wheel" ]; then $(from_wheel); else $(compiled); fi
	@touch $@

# Tests ask every level that this machine can run: those that `make demo` has compiled are not compiled again.
ASKED := $(if $(filter all,$(FEDKERN_LEVELS)),all,usable)
$(VENV)/test: EXTRAS := test
$(VENV)/test: export FEDKERN_LEVELS := $(ASKED)
$(VENV)/test: $(SOURCES) $(call lacking,$(ASKED)) | $(VENV)/bin/python
	@$(compiled)
	@rm -f $(VENV)/seconds
	@touch $@ $(VENV)/demo

# Made anew when what builds the pages changes, not with the code.
$(VENV)/docs: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"], sep="\n")' > $@.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r $@.txt
	@touch $@

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedkern needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	@$(SAY) pip $(PYTHON) -m venv $(VENV)

clean:
	rm -rf $(VENV) build *.egg-info runs
