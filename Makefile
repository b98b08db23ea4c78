# Every target sets up what it needs: `make report` and `make test` are all that a fresh machine takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# A file at a time on each worker, the longest files first (tests/conftest.py): all end at about the same time.
PYTEST := pytest -q -n 2 --dist loadfile --no-loadscope-reorder --durations=20 --durations-min=0.5
COVER := COVERAGE_FILE=$(CURDIR)/build/coverage
# In one process: xdist's workers do not start when coverage is in them.
COVERED := -n 0 -m "not notebook and not browser"
TRACE ?=
SEED ?=
SAMPLE_S ?= 120

# Tests start hundreds of processes: let them start from what is compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup report test quick tests long-tests rest unit soak sample coverage lab docs pictures notebooks lint bench faults mutants clean
.DELETE_ON_ERROR:

setup: $(READY)

# The stamp is written last, so a set-up that was stopped goes on at the next call.
$(READY): requirements.txt requirements-node.txt pyproject.toml tools/setup.sh tools/install.py tools/fetch_assets.py \
          $(wildcard mudkit/figures/assets/package*.json tests/browser/assets/package*.json)
	@PYTHON="$(PYTHON)" sh tools/setup.sh $(VENV)
	@touch $@

report: $(READY)
	@$(BIN)/mudkit report cache_policy $(if $(TRACE),--param trace="$(TRACE)",--preset sample)

# Lint beside the tests.
test: $(READY)
	@$(MAKE) --no-print-directory -j2 lint tests

quick: $(READY)
	@$(MAKE) --no-print-directory -j2 lint unit

# On two cores a third worker computes while tests of the others wait for Java, a kernel or a browser.
tests: $(READY)
	@$(BIN)/python -m $(PYTEST) -n 3 tests

# Measure which tests take long, of which `tests` runs a part (half an hour).
long-tests: $(READY)
	@$(BIN)/python -m $(PYTEST) -p measure_long_tests --long=all tests

# The long tests that `tests` leaves out for this tree.
rest: $(READY)
	@$(BIN)/python -m $(PYTEST) -n 3 --long=rest tests

unit: $(READY)
	@$(BIN)/python -m $(PYTEST) tests/unit --quick

# What `make test` leaves out, and many more examples of what it draws.
soak: $(READY)
	@seed="$(SEED)"; seed=$${seed:-$$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')}; \
	echo "The seed is $$seed. To repeat this run: make soak SEED=$$seed"; \
	$(BIN)/python -m $(PYTEST) tests --soak --hypothesis-seed=$$seed
	@$(MAKE) --no-print-directory faults mutants

# A few tests of the soak, the same ones for the same tree (of the seed 0 where git knows none). None starts
# after SAMPLE_S.
sample: $(READY)
	@tree=$$(git rev-parse -q --verify 'HEAD^{tree}' || echo 0); seed=$$((0x$$(printf %.8s "$$tree"))); \
	echo "A sample of the soak. Its seed, from the tree $$tree: $$seed"; \
	$(BIN)/python -m $(PYTEST) tests --soak --hypothesis-seed=$$seed --sample=$(SAMPLE_S)

# Lines of mudkit that only the soak covers, then those that neither run covers. Neither run counts what the kernels
# of notebooks do. A test that fails does not stop the measurement.
coverage: $(READY)
	@rm -rf build/coverage && mkdir -p build/coverage
	-@$(COVER)/test $(BIN)/coverage run -m $(PYTEST) tests $(COVERED)
	@$(COVER)/test $(BIN)/coverage combine -q
	-@$(COVER)/soak $(BIN)/coverage run -m $(PYTEST) tests $(COVERED) --soak --hypothesis-seed=1
	@$(COVER)/soak $(BIN)/coverage combine -q
	@$(BIN)/python tools/covered.py build/coverage/test build/coverage/soak
	@$(COVER)/both $(BIN)/coverage combine -q --keep build/coverage/test build/coverage/soak
	@$(COVER)/both $(BIN)/coverage report --include='mudkit/*' --show-missing --skip-covered --sort=-miss

lab: $(READY)
	@$(BIN)/mudkit lab

# Executes the chapters that have changed, then builds the site in build/site/html.
docs: $(READY)
	@$(BIN)/python tools/site.py

pictures: $(READY)
	@$(BIN)/python tools/pictures.py

notebooks: $(READY)
	@$(BIN)/python tools/notebooks.py

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports

bench: $(READY)
	@$(BIN)/python tests/bench/run.py

faults: $(READY)
	@$(BIN)/python tests/faults/campaign.py --runs 20000

# A sample of small changes of each package, or of PACKAGES="trace systems.mud": a test must notice each.
mutants: $(READY)
	@$(BIN)/python tests/mutants $(PACKAGES) $(if $(SEED),--seed $(SEED))

clean:
	rm -rf $(VENV) build dist reports/build data/derived node_modules .mypy_cache .ruff_cache .import_linter_cache .hypothesis mudkit/figures/assets/vendor tests/browser/assets/vendor
	find . -name __pycache__ -prune -exec rm -rf {} +
