"""A step with rows for the contacts that act alone is the step with rows for all slots, and so are its derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from uncompiled import uncompiled

import diffsim
from diffsim.collision import slots_of
from diffsim.constraint import acting_contacts

MODEL = """<mujoco><option cone='{cone}' timestep='.004' tolerance='1e-14' iterations='50' ls_iterations='50'/>
<worldbody><geom type='plane' size='3 3 .1' condim='4'/>{bodies}</worldbody></mujoco>"""
# balls on legs of one trunk, which is a single tree
TREE = """<body pos="0 0 .5"><freejoint/><geom size=".05"/>{legs}</body>"""
LEG = """<body pos="{x:.2f} {y:.2f} 0"><joint axis="0 1 0" limited="true" range="-40 40"/>
<geom size=".06" pos="0 0 -.4" condim="{dim}"/></body>"""
# balls that are trees of their own
BALL = """<body pos="{x:.2f} {y:.2f} .09"><freejoint/><geom size=".1" condim="{dim}"/></body>"""
DIMS = (1, 6, 6, 3)


def loaded(single: bool, cone: str, max_contacts: int | None) -> diffsim.Model:
    places = [{"x": 0.5 * np.cos(k), "y": 0.5 * np.sin(k), "dim": dim} for k, dim in enumerate(DIMS)]
    bodies = "".join((LEG if single else BALL).format(**place) for place in places)
    xml = MODEL.format(cone=cone, bodies=TREE.format(legs=bodies) if single else bodies)
    return diffsim.load(xml, max_contacts=max_contacts)


def states(model: diffsim.Model, single: bool) -> np.ndarray:
    """(2, nq) positions: in the first world few balls touch the floor, in the second all do."""
    qpos = np.tile(np.asarray(model.qpos0), (2, 1))
    if single:
        qpos[:, 2] = 0.455
        qpos[0, 7:] = [0.02, 0.5, 0.5, 0.5]
        return qpos
    qpos[0, 2::7] += [0, 0.1, 0.2, 0.3]
    return qpos


@pytest.mark.parametrize(("single", "cone", "max_contacts"), [(True, "pyramidal", 3), (False, "elliptic", None)])
def test_step_and_derivatives_are_those_of_all_slots(
    single: bool, cone: str, max_contacts: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(single, cone, max_contacts)
    monkeypatch.setattr(acting_contacts, "LEAST", 1)
    monkeypatch.setattr(acting_contacts, "MANY", 1)
    assert acting_contacts.is_large(slots_of(model))
    assert any(run.deepest_first for run in slots_of(model).geoms) == bool(max_contacts)
    rng = np.random.default_rng(2)
    state, qpos = diffsim.make_state(model), states(model, single)
    qvel, direction = (0.1 * rng.normal(size=(2, model.nv)) for _ in range(2))

    def moved(qpos: jax.Array, qvel: jax.Array, direction: jax.Array) -> Any:
        """A step's results, their derivatives in forward and reverse mode, and whether the short buffer suffices."""

        def after(qvel: jax.Array) -> tuple[jax.Array, jax.Array]:
            later, data = diffsim.step_data(model, state.replace(qpos=qpos, qvel=qvel))
            results = [later.qvel, later.qpos, data.row_force, data.qfrc_constraint]
            fits = acting_contacts.acting_contacts(data.contact, slots_of(model)).fits
            return jnp.concatenate(results), fits

        values, change, fits = jax.linearize(after, qvel, has_aux=True)
        (back,) = jax.linear_transpose(change, qvel)(jnp.cos(jnp.arange(len(values), dtype=values.dtype)))
        return values, change(direction), back, fits

    results = []
    for many in (1, 1 << 20):
        monkeypatch.setattr(acting_contacts, "MANY", many)
        worlds = uncompiled(jax.vmap(moved))
        results.append([worlds(qpos[chosen], qvel[chosen], direction[chosen]) for chosen in ([0, 0], [0, 1])])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), *results)
    assert [fits.tolist() for *_, fits in results[0]] == [[True, True], [True, False]]
    assert np.abs(results[0][0][0]).max() > 0.1
