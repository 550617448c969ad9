# make run: the pipeline over the example estate.  make test: every check that a clone alone allows.
.PHONY: run test quick lint docs format types interop pythons sparks nightly soak fuzz audit coverage mutants mysql bench release clean lock

VENV := .venv
PYTHON := $(VENV)/bin/python
READY := $(VENV)/.ready
export PYSPARK_PYTHON := $(abspath $(PYTHON))
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Spark binds to the first address it finds; the local one is always there.
export SPARK_LOCAL_IP := 127.0.0.1
# Where it is set, every process of a run compiles all it imports, and pytest rewrites all tests again.
unexport PYTHONDONTWRITEBYTECODE
# Three workers on two cores: a test waits for disks and databases half of its time. What takes long, and
# the originals, wait for processes that they have started, too.
WORKERS ?= 3
interop nightly: WORKERS := 4
PYTEST := $(PYTHON) -m pytest
SPREAD = -n $(WORKERS) --dist loadscope
# Where tests are that run on the compiled core of group commit and again on its twin.
BOTH_CORES := tests/storage tests/systems/tally tests/services
# Where tests are that run the original systems: to collect all tests takes each worker longer than most of these.
INTEROP := tests/interop tests/pipeline

run: $(READY)
	@scripts/ensure.sh java
	@$(PYTHON) examples/run.py

# docs/testing.md: what runs where, and why.
test: $(READY)
	@scripts/ensure.sh java maven postgres pgbouncer mariadb browser sail zsh fish
	$(PYTEST) $(SPREAD) -m "not soak and not interop and not long" $(ARGS)
	@test -n "$(ARGS)" || TALLYSTICK_PURE=1 $(PYTEST) $(SPREAD) \
	  -m "both_cores and not soak and not interop and not long" $(BOTH_CORES)

# What mirrors the changed files, and the contracts: make quick ARGS="-k crash" BASE=HEAD~3
quick: $(READY)
	$(PYTEST) $(SPREAD) -m "not soak and not interop and not long and not spark" --seconds 45 \
	  $$($(PYTHON) scripts/quick.py $(BASE)) $(ARGS)

interop: $(READY)
	@scripts/ensure.sh java maven
	@scripts/sparks.sh --fetch-only
	$(PYTEST) $(SPREAD) -m "interop and not soak and not long" $(ARGS) $(if $(findstring tests/,$(ARGS)),,$(INTEROP))

# Storage, native log, journal and command line on the other Pythons that are found.
pythons: $(READY)
	@scripts/pythons.sh $(ARGS)

# The pipeline on the other PySparks that are supported.
sparks: $(READY)
	@scripts/sparks.sh $(ARGS)

# Two-phase commit over MySQL in the place of MariaDB.
mysql: $(READY)
	@scripts/ensure.sh java maven postgres
	@scripts/mysql.sh $(ARGS)

# What takes long, and the rest of all samples; of these a landing runs a seventh (ARGS="--turn today").
nightly: $(READY)
	@scripts/ensure.sh java maven postgres pgbouncer mariadb browser sail zsh fish
	@scripts/sparks.sh --fetch-only
	$(PYTEST) $(SPREAD) -m "turns or (long and not soak)" $(ARGS)
	@# Of a part there may be none: pytest ends with 5 then.
	@test -n "$(findstring tests/,$(ARGS))" || TALLYSTICK_PURE=1 $(PYTEST) $(SPREAD) \
	  -m "both_cores and long and not soak" $(ARGS) $(BOTH_CORES) || test $$? = 5

# The same with more examples, and what takes hours.
soak: $(READY)
	@scripts/ensure.sh java maven postgres pgbouncer mariadb
	TALLYSTICK_INTERRUPTS=1000000 $(PYTEST) -m soak --timeout=0 --hypothesis-profile=soak $(ARGS)

# Mutants of the logs of one system: make fuzz SYSTEM=h2 ARGS="--seconds 3600"
fuzz: $(READY)
	PYTHONPATH=src $(PYTHON) -m tests.fuzz $(SYSTEM) $(ARGS)

# What is installed: pinned, under a known licence, without a known weakness.
audit: $(READY)
	@$(PYTHON) scripts/audit.py

# Lines and branches that tests take. The layouts of all systems have a floor; of others, as a table:
# make coverage ARGS=tests/storage REPORT="--include=src/tallystick/storage/* --fail-under=0"
coverage: $(READY)
	$(PYTHON) -m coverage erase
	$(PYTHON) -m coverage run -m pytest -q -m "not soak and not interop and not long" \
	  $(or $(ARGS),tests/systems/*/format)
	$(PYTHON) -m coverage combine -q
	$(PYTHON) -m coverage report $(REPORT)

# Layouts and decision tables with one place changed at a time, by mutmut: do their own tests notice?
# Hours for all; of one: make mutants ARGS="tallystick.reconcile.decision_table*"; a sample: ARGS="--sample 80"
mutants: $(READY)
	@$(PYTHON) scripts/mutants.py $(ARGS)

# dist: sdists, wheels, and what they consist of; each extra is installed alone into an empty environment
# and used there (ARGS="cli investigate" for these only). Uploads nothing.
release:
	@scripts/ensure.sh python compiler
	@python3 scripts/release.py $(ARGS)

bench: $(READY)
	$(VENV)/bin/tallystick bench all

lint: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

# The documentation site: out/docs/index.html. Warnings are errors, a link that leads nowhere is one.
# External links are asked for, and listed in out/docs/output.txt, by ARGS="-b linkcheck".
docs: $(READY)
	$(PYTHON) -m sphinx -qW --keep-going -d out/doctrees docs out/docs $(ARGS)

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

$(READY): requirements.lock pyproject.toml $(wildcard fast/*.[ch]) fast/setup.py
	@scripts/ensure.sh python
	@test -x $(PYTHON) || { echo "Making $(VENV), once: 180 packages, 2.3 GB, some minutes."; \
	  python3 -m venv $(VENV); }
	@# Python compiles what is imported; to compile all of it takes half as long as the rest.
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-compile -r requirements.lock
	@$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@scripts/ensure.sh compiler; $(PYTHON) -m pip install --quiet --disable-pip-version-check \
	  --force-reinstall --no-deps ./fast \
	  && echo "The compiled core is built." \
	  || echo "The compiled core is not built: everything runs in Python, with slower commits."
	@touch $@

lock: $(READY)
	$(PYTHON) -m pip install --quiet uv
	$(VENV)/bin/uv pip compile --quiet --no-emit-index-url --no-header --python-version 3.11 \
	  --universal --extra all --extra django --extra oracle --extra zope --group dev --group docs pyproject.toml -o requirements.lock

clean:
	rm -rf $(VENV)* .mypy_cache .ruff_cache .pytest_cache .hypothesis out
