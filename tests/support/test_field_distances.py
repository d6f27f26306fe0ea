"""geom_distance and distance sensors of distance fields: MuJoCo's where they overlap, the least gap where they do not.

MuJoCo has no distance of fields that are apart; there it is beside the least distance of many points of both surfaces.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from derivatives import richardson
from geometry.field_scenes import OCTREE, SHAPES, extension, field_geom
from geometry.hulls import BOX
from scipy.spatial import cKDTree
from uncompiled import uncompiled

import diffsim
from diffsim.base.enums import GeomType
from diffsim.geometry.sdf.data import field_number, fields
from diffsim.geometry.sdf.functions import PRIMITIVES
from diffsim.geometry.sdf.octree import Octree
from diffsim.math import safe
from diffsim.math.rotation import quat_to_mat
from diffsim.types.data import Kinematics

CRATE = f"<mesh name='crate' vertex='{' '.join(map(str, (BOX * [0.2, 0.3, 0.25]).ravel()))}'/>"
FIELDS = ("torus", "bowl", "nut", OCTREE)
PAIRS = [
    *(("torus", "sphere"), ("torus", "ellipsoid"), ("nut", "cylinder"), ("bowl", "torus"), ("crate", "torus")),
    *(("floor", "bowl"), ("crate", OCTREE)),
]
# of the first pair, by geoms and, the other way round, by bodies
SENSORS = """<sensor>
  <distance geom1='torus' geom2='sphere' cutoff='50'/><normal geom1='torus' geom2='sphere' cutoff='50'/>
  <fromto geom1='torus' geom2='sphere' cutoff='50'/><distance body1='b_sphere' body2='b_torus' cutoff='.5'/></sensor>"""


@functools.cache
def text() -> str:
    """Free bodies, one with each field and each shape, over a floor."""
    shapes = {name: SHAPES[name] for name in ("sphere", "ellipsoid", "cylinder")} | {
        "crate": "type='mesh' mesh='crate'"
    }
    geoms = {name: f"<geom name='{name}' {shape}/>" for name, shape in shapes.items()}
    geoms |= {name: field_geom(name, f"name='{name}'") for name in FIELDS}
    bodies = "".join(f"<body name='b_{name}'><freejoint/>{geom}</body>" for name, geom in geoms.items())
    assets = extension(*FIELDS).replace("<asset>", "<asset>" + CRATE)
    floor = "<geom name='floor' type='plane' size='1 1 1' pos='0 0 -1'/>"
    option = "<option sdf_iterations='10' sdf_initpoints='8'><flag contact='disable'/></option>"
    return f"<mujoco>{assets}{option}<worldbody>{floor}{bodies}</worldbody>{SENSORS}</mujoco>"


@functools.cache
def worlds() -> tuple[diffsim.Model, Any, list, Kinematics]:
    """Both models, MuJoCo's data in poses near and far, and these poses."""
    mjmodel, rng = oracle.load_oracle(text()), np.random.default_rng(0)
    states = []
    for spread in (0.1, 0.2, 0.3, 0.4, 1.5, 1.5, 3, 3):
        rows = [np.concatenate([spread * rng.normal(size=3), rng.normal(size=4)]) for _ in range(mjmodel.nbody - 1)]
        states.append(oracle.posed(mjmodel, np.concatenate(rows)))
    return diffsim.load(text()), mjmodel, states, jax.tree.map(np.asarray, oracle.poses_of(mjmodel, states))


@functools.cache
def distances() -> list:
    """Ours, for each pair of all worlds."""
    model, _, _, batch = worlds()
    ask = lambda poses: [diffsim.geom_distance(model, poses, *pair) for pair in PAIRS]  # noqa: E731
    return uncompiled(jax.vmap(ask))(batch)


def test_overlaps_are_as_deep_as_in_mujoco() -> None:
    """Or as far as MuJoCo's own moves when the bodies are moved by 1e-8: its gradients are differences over that."""
    _, mjmodel, states, _ = worlds()
    rng, agree = np.random.default_rng(1), []
    for pair, ours in zip(PAIRS, distances(), strict=True):
        ids = [mjmodel.geom(name).id for name in pair]
        for k, data in enumerate(states):
            ends = np.zeros((2, 6))
            expected = oracle.mujoco.mj_geomDistance(mjmodel, data, *ids, 100, ends[0])
            moved = oracle.posed(mjmodel, data.qpos + 1e-8 * rng.normal(size=mjmodel.nq))
            nearby = oracle.mujoco.mj_geomDistance(mjmodel, moved, *ids, 100, ends[1])
            if min(expected, nearby) == 100:
                assert ours.distance[k] > 0
                continue
            mine = np.array([ours.distance[k], *ours.point1[k], *ours.point2[k]])
            room = 1e-6 + 20 * np.abs(np.array([expected - nearby, *(ends[0] - ends[1])]))
            agree.append(bool((np.abs(mine - [expected, *ends[0]]) < room).all()))
    assert len(agree) > 20 and np.mean(agree) > 0.95


def in_body(poses: Kinematics, model: diffsim.Model, name: str, point: Any) -> Any:
    """A point in the frame of a geom."""
    geom = model.id("geom", name)
    return (point - poses.geom_xpos[geom]) @ poses.geom_xmat[geom]


def field_at(model: diffsim.Model, name: str) -> Any:
    """The signed distance of points (n, 3) in the frame of a geom that is a field or a primitive shape."""
    topology, geom = model.topology, model.id("geom", name)
    kind = GeomType(topology.geom_type[geom])
    if kind != GeomType.SDF:
        return functools.partial(PRIMITIVES[kind].distance, model.geom_size[geom])
    row = fields(model, (geom,), field_number(topology, geom))
    octree = isinstance(row.parameters, Octree)
    parameters = row.parameters._replace(root=row.root[0], address=row.address[0]) if octree else row.parameters[0]
    return functools.partial(row.field.distance, parameters)


def samples(mjmodel: Any, name: str, rng: np.random.Generator) -> np.ndarray:
    """Points on the surface of a geom, in its frame: of fields on its mesh."""
    mesh, size = mjmodel.geom(name).dataid[0], mjmodel.geom(name).size
    if mesh >= 0:
        vertex = mjmodel.mesh_vert[mjmodel.mesh_vertadr[mesh] :][: mjmodel.mesh_vertnum[mesh]]
        face = mjmodel.mesh_face[mjmodel.mesh_faceadr[mesh] :][: mjmodel.mesh_facenum[mesh]]
        many = rng.dirichlet(np.ones(3), size=(len(face), max(1, 20000 // len(face))))
        return rng.permutation(np.concatenate([vertex, (many @ vertex[face]).reshape(-1, 3)]))[:20000]
    around = rng.normal(size=(20000, 3))
    around /= np.linalg.norm(around, axis=1, keepdims=True)
    if name != "cylinder":
        return around * (size if name == "ellipsoid" else size[0])
    height = np.clip(rng.uniform(-2, 2, size=20000), -1, 1)
    reach = np.where(np.abs(height) == 1, np.sqrt(rng.uniform(size=20000)), 1) / np.linalg.norm(around[:, :2], axis=1)
    return np.c_[around[:, :2] * reach[:, None] * size[0], height * size[1]]


APART = [pair for pair in PAIRS if "floor" not in pair]


@pytest.mark.parametrize("pair", APART, ids="-".join)
def test_gaps_are_the_least_between_the_surfaces(pair: tuple[str, str]) -> None:
    """Both points are on their surfaces; of many others, up to a centimetre apart, none are nearer."""
    model, mjmodel, _, batch = worlds()
    ours, apart, rng = distances()[PAIRS.index(pair)], 0, np.random.default_rng(2)
    for k in np.flatnonzero(ours.distance > 0):
        poses, clouds = jax.tree.map(lambda x, k=k: x[k], batch), []
        for name, point in zip(pair, (ours.point1[k], ours.point2[k]), strict=True):
            geom = model.id("geom", name)
            if name != "crate":
                off = float(uncompiled(field_at(model, name))(in_body(poses, model, name, point)))
                assert abs(off) < 1e-7, name
            clouds.append(samples(mjmodel, name, rng) @ poses.geom_xmat[geom].T + poses.geom_xpos[geom])
        least = cKDTree(clouds[0]).query(clouds[1])[0].min()
        # the mesh of an octree is its surface but for what its cells leave out
        assert -2e-2 < ours.distance[k] - least < (4e-3 if OCTREE in pair else 1e-6)
        apart += 1
    assert apart >= 3


SMOOTH = [("torus", "ellipsoid"), ("crate", "torus")]


def test_derivatives_far_apart() -> None:
    """By poses, sizes and parameters, beside differences."""
    model, _, _, batch = worlds()
    poses, rng = jax.tree.map(lambda x: x[-1], batch), np.random.default_rng(3)
    change = [0.1 * rng.normal(size=shape) for shape in (poses.geom_xpos.shape, poses.geom_xpos.shape)]
    sizes, parameters = (0.1 * rng.normal(size=leaf.shape) for leaf in (model.geom_size, model.geom_sdfparam))

    def distances(step: jax.Array) -> jax.Array:
        turned = jax.vmap(lambda mat, turn: rotation(step * turn) @ mat)(poses.geom_xmat, jnp.asarray(change[1]))
        moved = poses.replace(geom_xpos=poses.geom_xpos + step * change[0], geom_xmat=turned)
        other = model.replace(
            geom_size=model.geom_size + step * sizes, geom_sdfparam=model.geom_sdfparam + 0.1 * step * parameters
        )
        found = [diffsim.geom_distance(other, moved, *pair) for pair in SMOOTH]
        return jnp.stack([jnp.concatenate([each.distance[None], each.point1, each.normal]) for each in found])

    numeric = richardson(uncompiled(distances), 1.0, 1e-3)
    slope = uncompiled(lambda step: jax.jvp(distances, (step,), (jnp.ones_like(step),))[1])(0.0)
    assert np.abs(numeric).max() > 0.1
    np.testing.assert_allclose(slope, numeric, atol=1e-6)


def rotation(turn: jax.Array) -> jax.Array:
    """The matrix of a small turn about a vector."""
    return quat_to_mat(safe.normalize(jnp.concatenate([jnp.ones(1), 0.5 * turn])))


def test_sensors_read_what_geom_distance_says() -> None:
    """Overlapping, and apart within and beyond the cutoff."""
    model, _, states, _ = worlds()
    read, found = uncompiled(lambda state: diffsim.forward(model, state).sensordata), distances()[0]
    assert found.distance[0] < 0 < found.distance[3] < 50
    for k in (0, 3, 5):
        row, sign = read(oracle.state_of(states[k])), np.sign(found.distance[k])
        assert row[0] == pytest.approx(found.distance[k], abs=1e-9)
        assert row[1:4] == pytest.approx(found.normal[k] * sign, abs=1e-6)
        assert row[4:10] == pytest.approx([*found.point1[k], *found.point2[k]], abs=1e-6)
        assert row[10] == pytest.approx(min(0.5, found.distance[k]), abs=1e-9)
