# ruff: noqa: E501
"""Tactile sensors beside the oracle's, on geoms of every type that has a depth, and their derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from compiler.compare import differences
from uncompiled import uncompiled

import diffsim
from tests.sensor.feed import evaluate, readings_of

XML = """<mujoco><option gravity="0 0 -3"/>
<extension><plugin plugin="mujoco.sdf.torus"><instance name="ring"><config key="radius1" value=".2"/><config key="radius2" value=".1"/></instance></plugin></extension>
<asset><mesh name="pad" builtin="plate" params="9 7" scale=".3 .2 .1"/><mesh name="tip" builtin="sphere" params="2" scale=".12 .12 .12"/>
<mesh name="wedge" builtin="wedge" params="8 8 45 45 0" scale=".2 .2 .2"/><mesh name="ring"><plugin instance="ring"/></mesh>
<mesh name="cube" vertex="-.1 -.1 -.1 .1 -.1 -.1 -.1 .1 -.1 .1 .1 -.1 -.1 -.1 .1 .1 -.1 .1 -.1 .1 .1 .1 .1 .1"/></asset>
<worldbody><geom type="plane" size="3 3 .1" pos="0 0 -.05" euler="2 0 0"/><geom type="box" size=".2 .2 .1" pos=".3 0 0"/>
<geom size=".2" pos="-.3 .1 -.06"/><geom type="capsule" size=".1 .2" pos="0 .3 0" euler="90 20 0"/><geom type="ellipsoid" size=".2 .15 .1" pos="0 -.3 0"/>
<geom type="cylinder" size=".1 .1" euler="10 0 0"/><geom type="sdf" mesh="ring" pos=".2 -.2 0"><plugin instance="ring"/></geom><geom type="mesh" mesh="cube" pos="-.2 0 0"/>
<body pos="0 0 .2" euler="5 3 20"><freejoint/><geom type="box" size=".3 .2 .1" mass="1"/><geom name="pad" type="mesh" mesh="pad" mass="0" contype="0" conaffinity="0" pos="0 0 -.01"/>
<body pos=".3 .2 0"><joint axis="1 0 0" damping=".1"/><geom size=".12" mass=".2"/>
<geom name="tip" type="mesh" mesh="tip" mass="0" contype="0" conaffinity="0" euler="10 20 30"/><geom name="wedge" type="mesh" mesh="wedge" mass="0" contype="0" conaffinity="0" pos="0 0 -.05"/></body></body>
</worldbody><sensor><tactile geom="pad" mesh="pad"/><tactile geom="tip" mesh="tip"/><clock/><tactile geom="wedge" mesh="wedge"/></sensor></mujoco>"""


def placed(height: float) -> tuple[Any, Any]:
    """The oracle's model, and its data with the body at a height among what it touches."""
    mjmodel = oracle.load_pair(XML)[1]
    mjdata = oracle.mujoco.MjData(mjmodel)
    mjdata.qpos[2], mjdata.qvel[:] = height, np.linspace(-1, 1, mjmodel.nv)
    oracle.mujoco.mj_forward(mjmodel, mjdata)
    return mjmodel, mjdata


def test_it_compiles_as_the_oracles() -> None:
    assert differences(*oracle.load_pair(XML)) == []


def test_vertices_feel_what_the_oracles_feel() -> None:
    felt = set()
    for height in (0.1, 0.14, 0.19):
        mjmodel, mjdata = placed(height)
        ours = evaluate(*readings_of(XML, mjdata, slots=200))
        np.testing.assert_allclose(ours, mjdata.sensordata, atol=1e-8)
        felt |= {sensor for sensor in (0, 1, 3) if mjdata.sensor(sensor).data.any()}
        felt |= {"type" + str(kind) for kind in mjmodel.geom_type[mjdata.contact.geom].ravel()}
    # all sensors, and geoms of most types
    assert {0, 1, 3} <= felt and len(felt) >= 8, felt


def test_depths_and_slips_have_derivatives() -> None:
    _, mjdata = placed(0.12)
    model, state, inputs, data, forces = readings_of(XML, mjdata, slots=200)
    rng = np.random.default_rng(0)
    names = "geom_xpos", "geom_xmat", "cvel", "subtree_com"
    point = tuple(jnp.asarray(getattr(data, name)) for name in names)
    along = tuple(jnp.asarray(rng.normal(size=leaf.shape)) for leaf in point)
    weights = jnp.asarray(rng.normal(size=mjdata.sensordata.shape))

    def read(*values: jax.Array) -> jax.Array:
        from diffsim.sensor import read_sensors

        return read_sensors(model, state, inputs, data.replace(**dict(zip(names, values, strict=True))), forces)

    value, (_, tangent) = uncompiled(read), uncompiled(lambda p, a: jax.jvp(read, p, a))(point, along)
    pulled = uncompiled(lambda p, w: jax.vjp(read, *p)[1](w))(point, weights)
    ends = [[value(*(p + s * h * a for p, a in zip(point, along, strict=True))) for s in (1, -1)] for h in (1e-5, 5e-6)]
    wide, narrow = (np.asarray(a - b) / (2 * h) for (a, b), h in zip(ends, (1e-5, 5e-6), strict=True))
    slopes = (4 * narrow - wide) / 3
    # a vertex that enters or leaves in between has none
    smooth = np.abs(narrow - wide) < 1e-4 * (1 + np.abs(slopes))
    assert smooth.mean() > 0.98 and np.count_nonzero(slopes[smooth]) > 30
    np.testing.assert_allclose(np.asarray(tangent)[smooth], slopes[smooth], rtol=1e-6, atol=1e-6)
    both = sum(np.vdot(p, a) for p, a in zip(pulled, along, strict=True))
    np.testing.assert_allclose(both, np.vdot(tangent, weights), rtol=1e-10)
    assert all(np.isfinite(np.asarray(leaf)).all() for leaf in pulled)


def test_a_height_field_has_no_depth() -> None:
    field = '<hfield name="h" nrow="2" ncol="2" elevation="0 0 0 1" size="1 1 1 1"/></asset>'
    text = XML.replace("</asset>", field).replace('<geom size=".2" pos="-.3', '<geom type="hfield" hfield="h" pos="-.3')
    with pytest.raises(diffsim.UnsupportedError, match="may touch a height field"):
        diffsim.load(text)
