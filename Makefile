# The same targets locally and in CI. `make demo` and `make test` do all set-up on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export NPROC ?= 1
# Test files run side by side, each process on one thread.
TEST_WORKERS ?= 2

.PHONY: demo test slow bench lint type format docs install install-dev clean

demo: install
	rm -rf runs/demo
	$(BIN)/outlast train chase --out runs/demo --seeds 2 --workers 2 --steps 3000000
	$(BIN)/outlast evaluate runs/demo --suite panel
	$(BIN)/outlast report runs/demo
	$(BIN)/outlast verify runs/demo

test: install-dev
	$(BIN)/python -m pytest -m "not slow" -n $(TEST_WORKERS) --dist loadfile

slow: install-dev
	$(BIN)/python -m pytest -m slow

bench: install-bench
	$(VENV)-bench/bin/python -m bench --out docs/results

lint: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: install-dev
	$(BIN)/pyright

docs: demo
	$(BIN)/outlast study calibration
	cp runs/demo/report/curves.png docs/results/demo-curves.png

install: $(VENV)/.installed
install-dev: $(VENV)/.installed-dev
install-bench: $(VENV)-bench/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

$(VENV)-bench/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)-bench
	$(VENV)-bench/bin/pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,bench]"
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench runs build dist
