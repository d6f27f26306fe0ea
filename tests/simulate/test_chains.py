"""Models beyond float32: a warning at load, a bit of the status, and solvers that end with their best."""

import warnings

import jax
import numpy as np
import pytest
from simulate import chains
from uncompiled import uncompiled

import diffsim
from diffsim.base.enums import Status

# 1 g links that carry 10 kg, with an armature of 1e-6: M has a condition of over 1e7
HEAVY = chains.chain_xml(8, ("Newton", "pyramidal"), (1e-3, 10.0), 1e-6)


def test_a_warning_names_bodies_and_the_armature_that_helps() -> None:
    named = HEAVY.replace("<body ", "<body name='first' ", 1)
    with jax.enable_x64(False):
        with pytest.warns(diffsim.PrecisionWarning, match=r"float32: .* first, body 2.* armature of 0.0\d+ or"):
            model = diffsim.load(named)
        # with as much armature as it says, and in float64, all is well
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            armature = float(np.max(np.asarray(model.dof_M0))) / 1e4
            diffsim.load(HEAVY.replace("armature='1e-06'", f"armature='{armature}'"))
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        diffsim.load(HEAVY)


@pytest.mark.parametrize(
    ("cone", "impratio", "warns"), [("elliptic", 1e4, 1), ("elliptic", 1e3, 0), ("pyramidal", 1e4, 0)]
)
def test_a_warning_says_what_a_large_impratio_needs(cone: str, impratio: float, warns: int) -> None:
    option = f"<option cone='{cone}' impratio='{impratio:g}'/>"
    text = f"<mujoco>{option}<worldbody><body><freejoint/><geom size='.1'/></body></worldbody></mujoco>"
    with jax.enable_x64(False), warnings.catch_warnings(record=True, action="always") as caught:
        diffsim.load(text)
    found = [str(warning.message) for warning in caught if warning.category is diffsim.PrecisionWarning]
    assert len(found) == warns and all("impratio of at most 2000 or a pyramidal cone" in message for message in found)
    with jax.enable_x64(True), warnings.catch_warnings(action="error"):
        diffsim.load(text)


@pytest.mark.parametrize("solver", chains.SOLVERS)
def test_a_step_beyond_float32_is_flagged_and_finite(solver: tuple[str, str]) -> None:
    text = chains.chain_xml(8, solver, (1e-3, 10.0), 1e-6)
    with jax.enable_x64(False), warnings.catch_warnings(action="ignore", category=diffsim.PrecisionWarning):
        model = diffsim.load(text)
        state = diffsim.make_state(model)
        _, data = uncompiled(diffsim.step_data)(model, state.replace(qpos=state.qpos + 0.3))
    assert int(data.status) & Status.ILL_CONDITIONED and not diffsim.is_bad(data)
    assert any("beyond float32" in line for line in diffsim.check(data))
    assert np.isfinite(data.qacc).all() and int(data.solver_niter) > 0
    with jax.enable_x64(True):
        model = diffsim.load(text)
        state = diffsim.make_state(model)
        exact = uncompiled(diffsim.forward)(model, state.replace(qpos=state.qpos + 0.3))
    assert not int(exact.status) & Status.ILL_CONDITIONED
    assert np.max(np.abs(data.qacc - exact.qacc)) < 0.05 * np.max(np.abs(exact.qacc))


def test_random_chains_are_flagged_where_they_are_off() -> None:
    with warnings.catch_warnings(action="ignore", category=diffsim.PrecisionWarning):
        found = chains.compare(12, seed=3, kinds=[(8, ("Newton", "elliptic"))])
    assert found.flagged_right + found.off > 0
    assert found.unflagged == 0 and found.silent == 0
