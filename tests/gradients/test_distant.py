"""Contacts felt from a distance: the forward pass to the bit, derivatives before touch."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.base.errors import UnsupportedError
from tests.uncompiled import uncompiled

PAIR = """<mujoco><option gravity="0 0 0" cone="{cone}"/><worldbody>
<body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom size=".1" mass="1"/></body>
<body pos=".23 0 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom size=".1" mass="1"/>
</body></worldbody></mujoco>"""


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_only_derivatives_feel_contacts_from_afar(cone: str) -> None:
    plain = diffsim.load(PAIR.format(cone=cone))
    felt = plain.replace(opt=plain.opt.replace(contact_reach=0.05))

    def after(model: diffsim.Model, x: jax.Array) -> jax.Array:
        state = diffsim.make_state(model)
        state = state.replace(qpos=state.qpos.at[:2].set(x), qvel=state.qvel.at[:2].set(jnp.array([0.5, 0.3])))
        return diffsim.step(model, state).qvel[2]

    both = [uncompiled(jax.value_and_grad(functools.partial(after, model))) for model in (plain, felt)]
    # apart by 3 cm, out of reach, and touching
    for x, where in (([0.0, 0.0], "near"), ([-0.03, 0.0], "away"), ([0.04, 0.01], "touching")):
        (value, slope), (same, far) = (program(np.array(x)) for program in both)
        assert value == same and bool(value) == (where == "touching")
        if where == "near":
            # nearer is faster
            assert not np.any(slope) and far[0] > 0 and np.isfinite(far).all()
        else:
            np.testing.assert_allclose(far, slope, rtol=1e-10, atol=1e-9 if where == "touching" else 0)


def test_the_reach_is_checked() -> None:
    model = diffsim.load(PAIR.format(cone="pyramidal"))
    for bad in (-0.1, "far", np.inf, True):
        with pytest.raises(ValueError, match="contact_reach"):
            model.opt.replace(contact_reach=bad)
    unrolled = model.replace(opt=model.opt.replace(contact_reach=0.1, solver_gradient="unroll"))
    with pytest.raises(UnsupportedError, match="solver_gradient 'implicit'"):
        diffsim.step(unrolled, diffsim.make_state(model))
