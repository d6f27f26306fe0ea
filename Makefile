# two commands matter: `make demo` and `make test`; each creates .venv when it is missing
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test check format bench sweep clean

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[viz,test,dev]'
	touch $@

demo: $(VENV)/.installed  ## simulate a batch with contacts, take a gradient through it, draw a picture
	$(BIN)/python examples/demo.py --out out

test: $(VENV)/.installed  ## the whole suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 15

check: $(VENV)/.installed  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed  ## throughput and compile time beside MJX and C MuJoCo
	$(BIN)/python -m diffsim bench mujoco/mjx/test_data/humanoid/humanoid.xml --batch 512 4096 --against mjx c

sweep: $(VENV)/.installed  ## long seeded sweeps, one line of counts each
	$(BIN)/python tests/sweep.py

clean:
	rm -rf $(VENV) .jax_cache out *.egg-info
