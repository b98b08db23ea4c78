# Every target sets up what it needs: `make report` and `make test` are all that a fresh machine takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
TRACE ?=

.PHONY: setup report test lab book api notebooks lint bench faults mutants clean
.DELETE_ON_ERROR:

setup: $(READY)

# The stamp is written last, so a set-up that was stopped goes on at the next call.
$(READY): requirements.txt requirements-node.txt pyproject.toml tools/setup.sh tools/fetch_assets.py \
          mudkit/figures/assets/package.json mudkit/figures/assets/package-lock.json
	@PYTHON="$(PYTHON)" sh tools/setup.sh $(VENV)
	@touch $@

report: $(READY)
	@$(BIN)/mudkit report trace_profile $(if $(TRACE),--param trace="$(TRACE)",--preset sample)

test: lint
	@sh tools/test.sh $(BIN)

lab: $(READY)
	@$(BIN)/mudkit lab

book: $(READY)
	@$(BIN)/mudkit book

api: $(READY)
	@$(BIN)/python tools/api.py

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

mutants: $(READY)
	@$(BIN)/python tests/faults/delivery_mutants.py
	@$(BIN)/python tests/faults/mutations.py

clean:
	rm -rf $(VENV) build dist reports/build data/derived node_modules .mypy_cache .ruff_cache .import_linter_cache .hypothesis mudkit/figures/assets/vendor
	find . -name __pycache__ -prune -exec rm -rf {} +
