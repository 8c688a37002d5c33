# make demo | make test : each alone is enough on a machine with Python >= 3.11 and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The stamp is named after what was asked for: an edited pyproject.toml or C source installs again, a second call does not.
INSTALLED := $(VENV)/.installed

.PHONY: demo test slow check docs bench notebooks golden clean house

demo: $(INSTALLED)
	$(BIN)/python examples/digits.py

# Compiled first: the tests start hundreds of interpreters, and where byte code is not written each would compile it all.
# One process for each core, at most 8: each loads torch. What needs a program that is absent is skipped and named at the end.
test: check
	$(BIN)/python -m compileall -q somatize
	$(BIN)/python -m pytest -n logical --maxprocesses 8 --dist worksteal

# The longer versions of the crash tests, and what takes minutes with Ray.
slow: $(INSTALLED)
	$(BIN)/python -m pytest -m slow -n logical --maxprocesses 8 --dist worksteal

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(MAKE) --no-print-directory docs

# The documentation, into build/site; a warning is an error.
docs: $(INSTALLED)
	$(BIN)/python -m sphinx -q -E -W --keep-going -d build/doctrees docs build/site

bench: $(INSTALLED)
	for script in benchmarks/*.py; do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# Counts of the source tree and hops between files.
house: $(INSTALLED)
	$(BIN)/python benchmarks/house.py

# The files that the tests hold today's results to; look at what changed before it is committed.
golden: $(INSTALLED)
	$(BIN)/python -m tests.golden.write

notebooks: $(INSTALLED)
	$(BIN)/python notebooks/execute.py

$(INSTALLED): pyproject.toml hatch_build.py $(wildcard somatize/store/native/*.[ch])
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --editable . --group dev
	touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis somatize/store/_speedups.abi3.so
