"""The step that is split where contacts begin and end: its derivatives are what a user sees of the motion."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffsim
from diffsim.errors import UnsupportedError

BALLS = """<mujoco><option timestep=".004" gravity="0 0 0" integrator="RK4"/><default>
<geom type="sphere" size=".1" mass="1" condim="{condim}" solref="-1e4 0" solimp=".99 .99 .001"/></default><worldbody>
<body><joint type="slide" axis="1 0 0"/><geom/></body>
<body pos=".26 0 0"><joint type="slide" axis="1 0 0"/><geom/></body></worldbody></mujoco>"""
# drops on the floor at the default solimp, where the force jumps at touch
DROP = """<mujoco><option timestep=".004" integrator="RK4"/><worldbody><geom type="plane" size="1 1 .1"/>
<body pos="0 0 .13"><joint type="slide" axis="0 0 1"/><joint type="hinge" axis="0 1 0" range="-.1 .1"/>
<geom size=".1" mass="1" condim="1"/></body></worldbody></mujoco>"""


def with_events(xml: str, events: int) -> diffsim.Model:
    model = diffsim.load(xml)
    return model.replace(opt=model.opt.replace(events=events))


def end(model: diffsim.Model, steps: int, x: jax.Array) -> jax.Array:
    half = x.size // 2
    state = diffsim.make_state(model)
    state = state.replace(qpos=state.qpos + x[:half], qvel=x[half:])
    final, _ = diffsim.rollout(model, state, jnp.zeros((steps, 0)))
    return jnp.concatenate([final.qpos, final.qvel])


@pytest.mark.parametrize("condim", [1, 3])
def test_elastic_balls_exchange_their_motion(condim: int) -> None:
    model, plain = (with_events(BALLS.format(condim=condim), events) for events in (1, 0))
    starts = jnp.asarray([[-(phase + 0.3) / 8 * 0.004, 0.0, 1.0, 0.0] for phase in range(8)])
    jacobians = [jax.jit(jax.vmap(jax.jacfwd(functools.partial(end, m, 60))))(starts) for m in (model, plain)]
    exchanged = np.asarray([[0, 1], [1, 0]])
    errors = [
        max(float(np.abs(each[:, part, part] - exchanged).max()) for part in (slice(0, 2), slice(2, 4)))
        for each in np.asarray(jacobians)
    ]
    assert errors[0] < 0.02 and errors[1] > 1


def test_the_derivative_is_that_of_the_step() -> None:
    """Forward and reverse, beside differences, through a touch with a jump of the force."""
    model = with_events(DROP, 1)
    run = jax.jit(functools.partial(end, model, 12))
    for phase in range(3):
        x = jnp.asarray([phase / 3 * 0.004, 0.05, -1.0, 1.5])
        forward, reverse = (jax.jit(mode(functools.partial(end, model, 12)))(x) for mode in (jax.jacfwd, jax.jacrev))
        np.testing.assert_allclose(forward, reverse, atol=1e-9 * np.abs(forward).max())
        eps = 1e-6
        columns = [(run(x + eps * e) - run(x - eps * e)) / (2 * eps) for e in jnp.eye(4)]
        np.testing.assert_allclose(forward, np.stack(columns, axis=1), atol=1e-3 * np.abs(forward).max())


def test_nothing_changes_where_nothing_begins() -> None:
    both = [with_events(DROP, events) for events in (0, 1, 2)]
    state = diffsim.make_state(both[0]).replace(qvel=jnp.asarray([-1.0, 0.3]))
    plain, *others = (jax.jit(diffsim.step)(model, state) for model in both)
    for other in others:
        for name in ("time", "qpos", "qvel", "qacc_warmstart"):
            np.testing.assert_allclose(getattr(other, name), getattr(plain, name), atol=1e-12, err_msg=name)


def test_a_touch_has_its_own_time() -> None:
    """One step through the touch is as good as many small ones."""
    fine = with_events(DROP.replace(".004", ".0000625"), 0)
    x = jnp.asarray([-0.028, 0.0, -1.0, 0.0])
    exact = np.asarray(jax.jit(functools.partial(end, fine, 64))(x))
    errors = [float(np.abs(end(with_events(DROP, events), 1, x) - exact).max()) for events in (1, 0)]
    assert errors[0] < 0.02 * errors[1]


def test_what_cannot_be_split_is_refused() -> None:
    model = with_events(DROP, 1)
    state = diffsim.make_state(model)
    for options, words in (
        ({"integrator": "euler"}, "needs the integrator RK4"),
        ({"solver": "pgs"}, "Newton or CG"),
        ({"contact_reach": 0.1}, "contact_reach must be 0"),
    ):
        with pytest.raises(UnsupportedError, match=words):
            diffsim.step(model.replace(opt=model.opt.replace(**options)), state)
    with pytest.raises(ValueError, match="events"):
        model.opt.replace(events=-1)
