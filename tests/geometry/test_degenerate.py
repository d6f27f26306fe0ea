"""Where a direction is undefined: MuJoCo's fallback, in float32 too, where rounding would give one at random."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from uncompiled import uncompiled

from diffsim.base.enums import GeomType
from diffsim.geometry.colliders import COLLIDERS
from diffsim.geometry.shapes import Shape
from diffsim.load import load
from diffsim.simulate.forward import forward
from diffsim.types.state import make_state

SIZES = {"sphere": (0.1,), "capsule": (0.1, 0.2), "cylinder": (0.1, 0.2), "box": (0.1, 0.2, 0.15)}
PAIRS = [*itertools.product(["sphere"], SIZES), ("capsule", "capsule")]
# how the second geom stands in the frame of the first: at one place, on its axis, end to end
SHIFTS = {"together": 0.0, "on_the_axis": 0.05, "end_to_end": 0.27}
OFFSET = np.array([0.3, 0.2, -0.1])
GEOM = '<body pos="{}" quat="{}"><freejoint/><geom type="{}" size="{}" pos="{}"/></body>'


def words(numbers: np.ndarray) -> str:
    return " ".join(repr(float(number)) for number in numbers)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_normals_of_degenerate_pairs_in_float32(pair: tuple[str, str], shift: str) -> None:
    """Poses that are equal up to rounding, by two ways through the tree."""
    generator, collider = np.random.default_rng(3), COLLIDERS[tuple(GeomType[name.upper()] for name in pair)]
    for _ in range(5):
        place, quat = generator.normal(size=3), generator.normal(size=4)
        quat /= np.linalg.norm(quat)
        turn = np.zeros(9)
        oracle.mujoco.mju_quat2Mat(turn, quat)
        turn = turn.reshape(3, 3)
        bodies = (place - turn @ OFFSET, OFFSET), (place + turn @ [0, 0, SHIFTS[shift]], np.zeros(3))
        geoms = [
            GEOM.format(words(pos), words(quat), name, words(np.array(SIZES[name])), words(offset))
            for (pos, offset), name in zip(bodies, pair, strict=True)
        ]
        mjmodel = oracle.mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{''.join(geoms)}</worldbody></mujoco>")
        mjdata = oracle.mujoco.MjData(mjmodel)
        oracle.mujoco.mj_forward(mjmodel, mjdata)
        shapes = [
            Shape(
                jnp.float32(pos) + jnp.float32(turn) @ jnp.float32(offset),
                jnp.float32(turn),
                jnp.float32(mjmodel.geom_size[k]),
            )
            for k, (pos, offset) in enumerate(bodies)
        ]
        rows = collider.function(*shapes, jnp.float32(0))
        touching = np.asarray(rows.valid & (rows.dist < 0))
        expected = mjdata.contact.frame[:, :3]
        assert len(expected) == touching.sum()
        normal = np.asarray(rows.normal)[touching]
        # from the middle of a box two faces are as near: rounding decides in MuJoCo
        sign = np.sign((normal * expected).sum(axis=1, keepdims=True)) if "box" in pair else 1
        np.testing.assert_allclose(sign * normal, expected, atol=1e-5)
        np.testing.assert_allclose(np.asarray(rows.dist)[touching], mjdata.contact.dist, atol=1e-6)


def test_faces_of_boxes_that_are_flush_are_as_far_apart_as_in_the_oracle() -> None:
    """Sizes and places in whole millimetres, as of a door in its frame: rounding decides whether they touch."""
    generator, cases, counts = np.random.default_rng(0), [], []
    for axis, sign in itertools.product(range(3), (-1, 1)):
        for _ in range(20):
            sizes, pos = generator.integers(5, 600, (2, 3)) / 1000, generator.integers(-500, 500, (2, 3)) / 1000
            pos[1] = pos[0] + generator.integers(-5, 5, 3) / 1000
            pos[1, axis] = round(pos[0, axis] + sign * (sizes[0, axis] + sizes[1, axis]), 3)
            geoms = [
                f'<geom type="box" pos="{words(x)}" size="{words(size)}"/>' for x, size in zip(pos, sizes, strict=True)
            ]
            text = f"<mujoco><worldbody>{geoms[0]}<body><freejoint/>{geoms[1]}</body></worldbody></mujoco>"
            mjdata = oracle.at_rest(oracle.mujoco.MjModel.from_xml_string(text))
            counts.append(np.sum(mjdata.contact.dist < 0) if mjdata.ncon else 0)
            cases.append([Shape(mjdata.geom_xpos[k].copy(), np.eye(3), sizes[k]) for k in range(2)])
    first, second = (jax.tree.map(lambda *leaves: np.stack(leaves), *shapes) for shapes in zip(*cases, strict=True))
    box_box = COLLIDERS[GeomType.BOX, GeomType.BOX].function
    rows = uncompiled(jax.vmap(box_box))(first, second, np.zeros(len(cases)))
    np.testing.assert_array_equal(np.sum(rows.valid & (rows.dist < 0), axis=1), counts)
    assert 0 < np.count_nonzero(counts) < len(counts)


DIRECTIONS = """<mujoco><worldbody><site name="a"/><light mode="targetbody" target="t"/>
<camera mode="targetbody" target="t"/>
<camera mode="targetbody" target="u"/><body name="u" pos="0 0 -1"/><body name="t"/>
<body><joint type="slide" axis="{0}"/><joint type="slide" axis=".6 0 .8"/>
<geom size=".1" mass="1"/><site name="b"/></body>
<body><joint type="ball"/><geom size=".1"/></body></worldbody>
<tendon><spatial name="t"><site site="a"/><site site="b"/></spatial></tendon><actuator><motor tendon="t"/></actuator>
<sensor><tendonvel tendon="t"/></sensor></mujoco>"""
FIELDS = ("ten_J", "ten_velocity", "cam_xmat", "light_xdir", "actuator_velocity", "qacc", "sensordata")


@pytest.mark.parametrize("start", [0.0, 3e-16])
@pytest.mark.parametrize("axis", ["1 0 0", "0 0 1"])
def test_vectors_without_length_point_along_x(axis: str, start: float) -> None:
    """A tendon between sites at one place, a camera and a light that look at where they are, one that looks down."""
    text = DIRECTIONS.format(axis)
    model, mjmodel = load(text), oracle.mujoco.MjModel.from_xml_string(text)
    mjdata = oracle.mujoco.MjData(mjmodel)
    np.testing.assert_allclose(model.tendon_invweight0, mjmodel.tendon_invweight0, atol=1e-12)
    mjdata.qvel[:2] = 1, 2
    mjdata.qpos[0] = start
    oracle.mujoco.mj_forward(mjmodel, mjdata)
    state = make_state(model).replace(qpos=jnp.asarray(mjdata.qpos), qvel=jnp.asarray(mjdata.qvel))
    data = uncompiled(forward)(model, state)
    for name in FIELDS:
        expected = oracle.field_of(name, mjmodel, mjdata)
        np.testing.assert_allclose(np.reshape(getattr(data, name), expected.shape), expected, atol=1e-9, err_msg=name)
