# Each target alone works on a fresh clone: the first one that needs it creates .venv.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
export OMP_WAIT_POLICY := PASSIVE

.PHONY: test test-slow check docs demo torture format clean

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "make: no $(PYTHON) on PATH; install Python 3.11 or say make PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

# The quick tests; what was skipped and why is listed at the end.
test: check
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" -rs tests

# Kills, several processes, learning, browsers, the wheel.
test-slow: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m slow -rs tests

check: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The site in build/site; a broken link, a wrong option in a command or an undocumented public name fails.
docs: $(STAMP)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[docs]"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

demo: $(STAMP)
	$(BIN)/python -m stillmotion demo --out runs/demo

# Kill commands, run them twice at once, fill the disk, damage their files and send odd requests; about five minutes on
# two idle cores. TORTURE="--seed 1 --videos-from FOLDER" passes options.
torture: $(STAMP)
	$(BIN)/python -m tools.fault_injection $(TORTURE)

clean:
	rm -rf $(VENV) runs build *.egg-info
