# Every target sets up what it needs: a virtual environment in .venv, made once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
OLDEST := .venv-oldest
ACCELERATORS := .venv-accelerators

.PHONY: run test test-all test-everything-here test-oldest test-accelerators lint bench docs release clean

run: $(READY)
	$(BIN)/fedbandit run $(ARGS)

# Everything that guards the numbers.
test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not thorough" $(ARGS)

# And what takes long and rarely breaks: whole pages, notebooks, processes, programs for accelerators, oldest releases.
test-all: test-everything-here test-accelerators test-oldest

test-everything-here: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# The core of the suite with exactly the oldest releases that pyproject.toml allows.
CORE := tests/linalg tests/worlds tests/clocks tests/algorithms tests/engine tests/results tests/cli
test-oldest: $(OLDEST)/.ready
	$(OLDEST)/bin/python -m pytest -n 2 --dist worksteal -m "not thorough" $(or $(ARGS),$(CORE))

# Programs compiled for GPUs and TPUs that are not here; ARGS=--table writes the table of their kernels anew.
test-accelerators: $(ACCELERATORS)/.ready
	JAX_PLATFORMS=cpu $(ACCELERATORS)/bin/python -m $(if $(filter --table,$(ARGS)),tests.accelerators.programs,\
	  pytest -n 2 --dist loadfile tests/accelerators $(ARGS))

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: $(READY)
	$(BIN)/fedbandit bench $(ARGS)

# The site, into build/site; make docs ARGS=serve shows it while you write.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs $(or $(ARGS),build --strict) --config-file notebooks/mkdocs.yml

# The archives for PyPI, into dist, and the wheel tried out where there is no checkout.
release: $(VENV)/.release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(PYTHON) tests/check_wheel.py dist/*.whl

clean:
	rm -rf $(VENV) $(OLDEST) $(ACCELERATORS) build dist *.egg-info

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[test]"
	touch $(READY)

$(VENV)/.docs $(VENV)/.release: $(VENV)/.%: $(READY)
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	touch $@

$(OLDEST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet uv
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST) --resolution lowest-direct --editable .
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST) pytest pytest-xdist beartype hypothesis duckdb polars
	touch $@

# On top of .venv, as JAX would look for a device wherever these compilers are installed: only what is more is installed.
PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))
$(ACCELERATORS)/.ready: $(READY)
	$(PYTHON) -m venv $(ACCELERATORS)
	echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" > \
	  "$$($(ACCELERATORS)/bin/python -c '$(PACKAGES)')/beneath.pth"
	$(ACCELERATORS)/bin/python -m pip install --quiet --editable ".[test,accelerators]"
	touch $@
