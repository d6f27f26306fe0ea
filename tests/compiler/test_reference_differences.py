"""Derivatives of set_const against differences of the oracle's own mj_setConst, as identifying a robot needs them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from compiler.features import FEATURES
from oracle import mujoco
from uncompiled import uncompiled

from diffsim.compiler import from_mujoco
from diffsim.simulate.constants import set_const
from diffsim.types import Model

MODELS = {
    "servos": FEATURES["servos"],
    "smooth": "smooth",
    "equalities": "constraint_rows",
    "humanoid": "mujoco/mjx/test_data/humanoid/humanoid.xml",
}
# mass, inertia, centre of mass, armature, lengths, gear
PARAMETERS = ("body_mass", "body_inertia", "body_ipos", "dof_armature", "body_pos", "actuator_gear")
# all that MuJoCo has too
DERIVED = tuple(
    field.name
    for field in dataclasses.fields(Model)
    if field.metadata.get("derived") and field.name not in ("mesh_leafvert", "mesh_boxes")
)
STEP = 1e-5

Fields = dict[str, Any]


def prepared(path: str) -> Any:
    """The oracle's model, complete, without its shortcuts for frames that coincide."""
    mjmodel = oracle.load_oracle(path).__copy__()
    for name in ("body_sameframe", "geom_sameframe", "site_sameframe"):
        getattr(mjmodel, name)[:] = 0
    mujoco.mj_setConst(mjmodel, mujoco.MjData(mjmodel))
    return mjmodel


def variation(mjmodel: Any, name: str) -> np.ndarray:
    """A random direction in a parameter, of its size; the world stays, and so do centres of simple bodies."""
    value = getattr(mjmodel, name)
    size = np.abs(value) if name in ("body_mass", "body_inertia") else 0.1
    found = size * np.random.default_rng(len(name)).normal(size=value.shape)
    if name.startswith("body"):
        found[0] = 0
    if name == "body_ipos":
        found[mjmodel.body_simple > 0] = 0
    return found


def oracle_constants(mjmodel: Any, name: str, value: np.ndarray) -> Fields:
    """What mj_setConst computes with a parameter changed."""
    changed = mjmodel.__copy__()
    getattr(changed, name)[:] = value
    mujoco.mj_setConst(changed, mujoco.MjData(changed))
    return {field: np.array(getattr(changed, field)) for field in DERIVED}


def oracle_slope(mjmodel: Any, name: str, along: np.ndarray) -> Fields:
    """Richardson differences of mj_setConst along a direction."""
    value = getattr(mjmodel, name).copy()

    def central(h: float) -> Fields:
        ahead, behind = (oracle_constants(mjmodel, name, value + s * h * along) for s in (1, -1))
        return {field: (ahead[field] - behind[field]) / (2 * h) for field in DERIVED}

    near, far = central(STEP), central(2 * STEP)
    return {field: (4 * near[field] - far[field]) / 3 for field in DERIVED}


@uncompiled
def ours(model: Model, along: Fields) -> tuple[Fields, Fields]:
    """set_const's derived fields and their derivative along a direction."""

    def derived(values: Fields) -> Fields:
        complete = set_const(model.replace(**values))
        return {field: getattr(complete, field) for field in DERIVED}

    return jax.jvp(derived, ({name: getattr(model, name) for name in along},), (along,))


@pytest.mark.parametrize("name", MODELS)
def test_slopes_are_those_of_the_oracle(name: str) -> None:
    mjmodel = prepared(MODELS[name])
    model = from_mujoco(mjmodel)
    still = {parameter: jnp.zeros_like(getattr(model, parameter)) for parameter in PARAMETERS}
    for parameter in PARAMETERS:
        along = variation(mjmodel, parameter)
        value, slope = ours(model, {**still, parameter: jnp.asarray(along)})
        expected = oracle_slope(mjmodel, parameter, along)
        assert not np.any(along) or any(np.any(np.abs(each) > 1e-6) for each in expected.values())
        for field in DERIVED:
            scale = 1 + np.max(np.abs(value[field]), initial=0) + np.max(np.abs(slope[field]), initial=0)
            oracle.assert_close(f"{field} by {parameter}", slope[field] / scale, expected[field] / scale, 1e-6)
