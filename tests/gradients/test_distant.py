"""Contacts felt from a distance: the forward pass to the bit, derivatives before touch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.errors import UnsupportedError

PAIR = """<mujoco><option gravity="0 0 0" cone="{cone}"/><worldbody>
<body><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom size=".1" mass="1"/></body>
<body pos=".23 0 0"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><geom size=".1" mass="1"/>
</body></worldbody></mujoco>"""


@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_only_derivatives_feel_contacts_from_afar(cone: str) -> None:
    plain = diffsim.load(PAIR.format(cone=cone))
    felt = plain.replace(opt=plain.opt.replace(contact_reach=0.05))

    def end(model: diffsim.Model, x: jax.Array, steps: int = 3) -> jax.Array:
        state = diffsim.make_state(model)
        state = state.replace(qpos=state.qpos.at[:2].set(x), qvel=state.qvel.at[0].set(0.5))
        return diffsim.rollout(model, state, jnp.zeros((steps, 0))).final.qvel

    both = [jax.jit(jax.value_and_grad(lambda x, m=m: end(m, x)[2])) for m in (plain, felt)]
    # apart by 3 cm, 1 cm (which touch in between), and out of reach
    for x in ([0.0, 0.0], [0.02, 0.01], [-0.03, 0.0]):
        (value, slope), (same, far) = (program(jnp.asarray(x)) for program in both)
        assert float(value) == float(same)
        if x[0] == 0:
            # nearer is faster
            assert not np.any(slope) and far[0] > 0 and np.isfinite(far).all()
        if x[0] < 0:
            np.testing.assert_array_equal(far, slope)


def test_a_touching_contact_is_differentiated_as_ever() -> None:
    plain = diffsim.load(PAIR.format(cone="elliptic"))
    felt = plain.replace(opt=plain.opt.replace(contact_reach=0.05))

    def qacc(model: diffsim.Model, x: jax.Array) -> jax.Array:
        state = diffsim.make_state(model)
        return diffsim.forward(model, state.replace(qpos=state.qpos.at[:2].set(x), qvel=state.qvel.at[1].set(0.3))).qacc

    slopes = [jax.jit(jax.jacrev(lambda x, m=m: qacc(m, x)))(jnp.asarray([0.04, 0.01])) for m in (plain, felt)]
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-10, atol=1e-9)


def test_the_reach_is_checked() -> None:
    model = diffsim.load(PAIR.format(cone="pyramidal"))
    for bad in (-0.1, "far", np.inf, True):
        with pytest.raises(ValueError, match="contact_reach"):
            model.opt.replace(contact_reach=bad)
    unrolled = model.replace(opt=model.opt.replace(contact_reach=0.1, solver_gradient="unroll"))
    with pytest.raises(UnsupportedError, match="solver_gradient 'implicit'"):
        diffsim.step(unrolled, diffsim.make_state(model))
