# `make install`, `make demo` and `make test` create .venv when it is missing and are safe to repeat.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: install demo test test-fuzz test-kill lint docs clean

install: .venv/installed

demo: .venv/installed
	$(BIN)/electra pretrain builtin --preset tiny --hours 0.06 --out demo

test: .venv/installed-test lint
	$(BIN)/pytest

test-fuzz: .venv/installed-test
	PYTHONPATH=tests $(BIN)/python -m fuzz --seed 1 --cases 3000

test-kill: .venv/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python tests/kill/driver.py --kills 100

lint: .venv/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

.venv/installed-test: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

clean:
	rm -rf .venv demo site
