"""Switch fields: what was zero when the model was compiled acts all the same once it is set, also inside a program."""

import copy
import pickle
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled
from wide import wide

import diffsim
from diffsim.types.model import switch_fields
from diffsim.types.topology import per_topology

ARM = """<mujoco><option density="0"/>
  <worldbody><body gravcomp="0"><joint name="a" axis="0 1 0"/><geom size=".1" pos=".2 0 0"/><site name="p"/>
    <body pos=".4 0 0"><joint name="b" axis="0 1 0"/><geom type="capsule" size=".05 .1" fluidshape="none"/>
      <site name="q"/></body></body></worldbody>
  <tendon><spatial name="t" springlength="0"><site site="p"/><site site="q"/></spatial></tendon>
  <actuator><position name="m" joint="b" kp="3"/></actuator></mujoco>"""


@pytest.fixture(scope="module")
def model() -> diffsim.Model:
    return diffsim.load(ARM)


def after_step(model: diffsim.Model) -> jax.Array:
    """(nv,) velocity after one step of an arm that moves."""
    state = diffsim.make_state(model)
    state = state.replace(qpos=jnp.array([0.3, 0.2]), qvel=jnp.array([1.0, -2.0]))
    return diffsim.step(model, state, diffsim.make_inputs(model)).qvel


velocity = uncompiled(after_step)


def with_field(model: diffsim.Model, name: str, value: jax.Array) -> diffsim.Model:
    if hasattr(model.opt, name):
        return model.replace(opt=model.opt.replace(**{name: value}))
    return model.replace(**{name: value})


@pytest.mark.parametrize(
    "name", ["dof_damping", "dof_frictionloss", "body_gravcomp", "density", *wide(["jnt_stiffness"])]
)
def test_a_traced_value_acts(model: diffsim.Model, name: str) -> None:
    zero = getattr(model.opt if hasattr(model.opt, name) else model, name)
    value = jnp.full_like(zero, 300.0 if name == "density" else 0.3)
    kept = with_field(diffsim.load(ARM, keep=(name,)), name, value)
    expected = velocity(kept)
    assert np.abs(expected - velocity(model)).max() > 1e-5
    np.testing.assert_allclose(velocity(with_field(model, name, value)), expected, atol=1e-12)

    def traced(value: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = after_step(with_field(model, name, value))
        return found @ jnp.array([1.0, 3.0]), found

    slopes, batch = uncompiled(jax.vmap(jax.grad(traced, has_aux=True)))(jnp.stack([zero, value]))
    np.testing.assert_allclose(batch, jnp.stack([velocity(model), expected]), atol=1e-12)
    assert np.any(slopes[1] != 0)


def test_every_switch_field_becomes_present(model: diffsim.Model) -> None:
    for name in switch_fields():
        value = getattr(model.opt if hasattr(model.opt, name) else model, name)
        seen: list[np.ndarray] = []

        def note(value: jax.Array, name: str = name, seen: list[np.ndarray] = seen) -> None:
            seen.append(with_field(model, name, value).topology.present[name])

        jax.eval_shape(note, value)
        assert np.all(seen[0])


def test_models_are_copied_and_pickled(model: diffsim.Model) -> None:
    velocity(model)
    remembers = per_topology(lambda topology: object())
    remembers(model.topology)
    for other in (copy.copy(model), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert other.topology == model.topology
        np.testing.assert_array_equal(velocity(other), velocity(model))


def test_models_go_to_other_processes(model: diffsim.Model) -> None:
    read = "import pickle, sys; print(pickle.load(sys.stdin.buffer).topology.digest)"
    done = subprocess.run([sys.executable, "-c", read], input=pickle.dumps(model), capture_output=True, check=True)
    assert done.stdout.decode().strip() == model.topology.digest
