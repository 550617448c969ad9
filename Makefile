# make run: the pipeline over the example estate.  make test: every check that a clone alone allows.
.PHONY: run test lint format types interop pythons sparks soak fuzz audit bench clean lock

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
export PYSPARK_PYTHON := $(abspath $(PYTHON))
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Spark binds to the first address it finds; the local one is always there.
export SPARK_LOCAL_IP := 127.0.0.1
# Two workers: the suites are bound by processors. Spark's tests share one Java process instead.
WORKERS ?= 2

# What runs on the compiled core of group commit, where it could be built, and once more without it.
BOTH_CORES := tests/storage tests/systems/tally tests/services/journal

run: $(READY)
	@scripts/ensure.sh java
	@$(PYTHON) examples/run.py

test: $(READY)
	@scripts/ensure.sh java maven postgres mariadb browser sail
	$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile -m "not soak and not interop and not spark" $(ARGS)
	$(PYTHON) -m pytest -m "spark and not soak and not interop" $(ARGS)
	@test -n "$(ARGS)" || TALLYSTICK_PURE=1 $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile \
	  -m "not soak and not interop and not spark" $(BOTH_CORES)

interop: $(READY)
	@scripts/ensure.sh java maven
	@scripts/sparks.sh --fetch-only
	$(PYTHON) -m pytest -n $(WORKERS) --dist loadfile -m "interop and not soak and not spark" $(ARGS)
	@test -n "$(ARGS)" || $(PYTHON) -m pytest -m "interop and spark and not soak"

# Storage, native log, journal and command line on the other Pythons that are found.
pythons: $(READY)
	@scripts/pythons.sh $(ARGS)

# The pipeline on the other PySparks that are supported.
sparks: $(READY)
	@scripts/sparks.sh $(ARGS)

soak: $(READY)
	@scripts/ensure.sh java maven postgres mariadb
	$(PYTHON) -m pytest -m soak --timeout=0 --hypothesis-profile=soak $(ARGS)

# Mutants of the logs of one system: make fuzz SYSTEM=h2 ARGS="--seconds 3600"
fuzz: $(READY)
	PYTHONPATH=src $(PYTHON) -m tests.fuzz $(SYSTEM) $(ARGS)

# What is installed: pinned, under a known licence, without a known weakness.
audit: $(READY)
	@$(PYTHON) scripts/audit.py

bench: $(READY)
	$(VENV)/bin/tallystick bench all

lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

$(READY): requirements.lock pyproject.toml fast/tallystick_fast.c fast/setup.py
	@scripts/ensure.sh python
	@test -x $(PYTHON) || python3 -m venv $(VENV)
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check -r requirements.lock
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@scripts/ensure.sh compiler; $(PYTHON) -m pip install --quiet --disable-pip-version-check \
	  --force-reinstall --no-deps ./fast \
	  && echo "The compiled core is built." \
	  || echo "The compiled core is not built: everything runs in Python, with slower commits."
	@touch $@

lock: $(READY)
	$(PYTHON) -m pip install --quiet uv
	$(VENV)/bin/uv pip compile --quiet --no-emit-index-url --no-header --python-version 3.11 \
	  --universal --extra all --group dev pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV)* .mypy_cache .ruff_cache .pytest_cache .hypothesis out
