"""Contacts of convex hulls: distance and normal beside all facets, contact sets of flat sides, derivatives."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from derivatives import contact_rows, slopes_in_worlds
from geometry.hulls import (
    KINDS,
    cloud,
    column,
    core_of,
    flat_states,
    free_scene,
    random_states,
    separation_by_all_facets,
)
from scipy.spatial.transform import Rotation
from uncompiled import uncompiled
from wide import wide

import diffsim
from diffsim.base.enums import GeomType
from diffsim.collision import collide
from diffsim.collision.layout import contact_layout
from diffsim.compiler.convert import from_mujoco
from diffsim.geometry import colliders
from diffsim.geometry.hull.features import HullPair
from diffsim.geometry.hull.gjk import distance_bound
from diffsim.geometry.hull.graph import GRAPH, GraphHull, graphs
from diffsim.geometry.hull.pairs import closest
from diffsim.math.rotation import quat_exp, quat_to_mat
from diffsim.math.vector import mul_mat
from diffsim.types.data import Kinematics

# worlds at once, in all tests of contacts, which then share programs
COUNT = 60


@functools.cache
def scene(kinds: tuple[str, str]) -> tuple:
    mjmodel = oracle.load_with_assets(free_scene(*kinds), {})
    return from_mujoco(mjmodel), mjmodel, uncompiled(jax.vmap(collide, in_axes=(None, 0)))


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_existence_distance_and_normal(kinds: tuple[str, str]) -> None:
    """Beside all facets of the difference of both: MuJoCo's search stops at 1e-6, rarely too early."""
    model, mjmodel, contacts_of = scene(kinds)
    states = random_states(mjmodel, COUNT)
    contacts = contacts_of(model, oracle.poses_of(mjmodel, states))
    touching = 0
    for k, data in enumerate(states):
        (first, radius1), (second, radius2) = (core_of(mjmodel, data, geom) for geom in (0, 1))
        distance, normal = separation_by_all_facets(first, second)
        distance -= radius1 + radius2
        assert (np.min(contacts.dist[k]) < 0) == (data.ncon > 0) == (distance < 0)
        if data.ncon:
            touching += 1
            np.testing.assert_allclose(contacts.dist[k, 0], distance, atol=1e-9)
            np.testing.assert_allclose(contacts.frame[k, 0, 0], normal, atol=1e-7)
    assert COUNT // 6 < touching < COUNT - 5


def test_hulls_of_many_vertices_have_their_true_depth() -> None:
    """A polytope of 32 corners would be off by up to a third of the depth here."""
    first, second, rng = cloud(200, 5), cloud(200, 6), np.random.default_rng(0)
    poses = [(0.01 * rng.normal(size=3), Rotation.from_quat(rng.normal(size=4)).as_matrix()) for _ in range(3)]
    shift, turn = (np.stack(part) for part in zip(*poses, strict=True))
    pair = lambda t, r: HullPair(jnp.asarray(first), jnp.asarray(second), r, t)  # noqa: E731
    found = uncompiled(jax.vmap(lambda t, r: closest(pair(t, r))[:2]))(shift, turn)
    for k in range(3):
        distance, normal = separation_by_all_facets(first, second @ turn[k].T + shift[k])
        np.testing.assert_allclose(found[0][k], distance, atol=1e-9)
        np.testing.assert_allclose(found[1][k], normal, atol=1e-7)


def test_a_walk_ends_at_the_vertex_that_is_furthest() -> None:
    """Of hulls one after another, with round, flat and slim parts; from the first vertex, or from any."""
    shapes = [cloud(300, 5), column(40, 0.1, 0.2), cloud(12, 7) * [1, 1, 1e-3]]
    meshes = "".join(f"<mesh name='{k}' vertex='{' '.join(map(str, x.ravel()))}'/>" for k, x in enumerate(shapes))
    geoms = "".join(f"<geom type='mesh' mesh='{k}'/>" for k in range(3))
    model = diffsim.load(f"<mujoco><asset>{meshes}</asset><worldbody>{geoms}</worldbody></mujoco>")
    hulls, rng = graphs(model, (0, 1, 2), GRAPH), np.random.default_rng(0)
    directions = jnp.asarray(np.concatenate([rng.normal(size=(90, 3)), np.eye(3), -np.eye(3)]))
    ends = np.append(np.asarray(hulls.table.begin), len(hulls.table.vert))

    @jax.jit
    def heights(slot: jax.Array, starts: jax.Array) -> jax.Array:
        hull = GraphHull(hulls.table, slot)
        far = jax.vmap(hull.furthest)(directions, starts)
        return jnp.sum(hull.vertices(jnp.stack([far, jax.vmap(hull.furthest)(directions)])) * directions[None], axis=-1)

    for k, (begin, end) in enumerate(itertools.pairwise(ends)):
        most = np.max(np.asarray(directions) @ np.asarray(model.mesh_vert)[hulls_rows(model, k)].T, axis=1)
        starts = jnp.asarray(rng.integers(begin, end, len(directions)), jnp.int32)
        np.testing.assert_allclose(heights(jnp.asarray(k), starts), np.stack([most, most]), atol=1e-12)


def hulls_rows(model: diffsim.Model, mesh: int) -> np.ndarray:
    """The rows of mesh_vert of a mesh."""
    first = int(model.topology.mesh_vertadr[mesh])
    return np.arange(first, first + int(model.topology.mesh_vertnum[mesh]))


@pytest.mark.parametrize("kinds", [KINDS[0], *KINDS[2:]], ids="-".join)
def test_hulls_that_are_graphs_touch_as_all_do(kinds: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The contacts of one search and of the other, far, near, deep and flat on each other."""
    model, mjmodel, contacts_of = scene(kinds)
    states = random_states(mjmodel, COUNT)
    if kinds in KINDS[2:-1]:
        states = [*states[: COUNT // 2], *flat_states(mjmodel, kinds, COUNT)[: COUNT // 2]]
    batch = oracle.poses_of(mjmodel, states)
    expected = contacts_of(model, batch)
    monkeypatch.setattr(colliders, "walks", lambda kinds, *_: kinds[1] == GeomType.MESH)
    model = from_mujoco(mjmodel)
    bucket = contact_layout(model.topology).groups[0].buckets[1]
    assert bucket is not None and bucket.sizes == GRAPH
    contacts = contacts_of(model, batch)
    touch = np.asarray(expected.dist) < 0
    np.testing.assert_array_equal(np.asarray(contacts.dist) < 0, touch)
    assert np.any(touch, axis=1).sum() > COUNT // 6
    for name, close in (("dist", 1e-9), ("frame", 1e-7)):
        ours, theirs = (np.asarray(getattr(x, name))[touch] for x in (contacts, expected))
        np.testing.assert_allclose(ours, theirs, atol=close)
    # corners of an overlap in any order
    for k in np.flatnonzero(np.any(touch, axis=1)):
        ours, theirs = (np.asarray(x.pos[k])[touch[k]] for x in (contacts, expected))
        apart = np.linalg.norm(ours[:, None] - theirs[None], axis=-1)
        assert max(apart.min(axis=0).max(), apart.min(axis=1).max()) < 1e-7


def test_a_few_directions_bound_the_distance() -> None:
    """From below, and of most hulls that are apart by more than nothing."""
    first, second, rng = cloud(60, 5), cloud(60, 6), np.random.default_rng(0)
    shifts, turns = 0.35 * rng.normal(size=(40, 3)), Rotation.random(40, rng).as_matrix()
    bound = uncompiled(
        jax.vmap(lambda t, r: distance_bound(HullPair(jnp.asarray(first), jnp.asarray(second), r, t), jnp.asarray(0.0)))
    )(shifts, turns)
    true = [separation_by_all_facets(first, second @ turn.T + s)[0] for turn, s in zip(turns, shifts, strict=True)]
    assert np.all(np.asarray(bound) <= np.array(true) + 1e-9)
    apart = np.array(true) > 0
    assert 10 < apart.sum() < 40 and np.mean(np.asarray(bound)[apart] > 0) > 0.9


# hulls, and how near normals are as vertices are kept in float32: sides that are not quite flat fall into slim
# triangles, whose normals are worth little; of very many corners the nearest is searched for
BESIDE_BALLS = {
    "slivers": (column(12, 0.1, 0.2) + 1e-6 * np.random.default_rng(3).normal(size=(24, 3)), 1e-6),
    "many": (cloud(600, 9), 1e-5),
}


@pytest.mark.parametrize("name", BESIDE_BALLS)
def test_a_ball_beside_a_hull(name: str) -> None:
    (hull, near), rng = BESIDE_BALLS[name], np.random.default_rng(4)
    vertices = " ".join(map(str, hull.ravel()))
    model = diffsim.load(
        f'''<mujoco><asset><mesh name="m" vertex="{vertices}" inertia="convex"/></asset><worldbody>
        <geom type="mesh" mesh="m"/><body><freejoint/><geom size="0.05" margin="9"/></body></worldbody></mujoco>'''
    )
    points = 0.1 * rng.normal(size=(60, 3))
    moved = lambda point: diffsim.make_state(model).replace(qpos=jnp.append(point, np.array([1.0, 0, 0, 0])))  # noqa: E731
    contact = uncompiled(jax.vmap(lambda point: diffsim.forward(model, moved(point)).contact))(points)
    inside = 0
    for k, point in enumerate(points):
        distance, normal = separation_by_all_facets(point[None], hull)
        inside += distance < 0
        np.testing.assert_allclose(contact.dist[k, 0], distance - 0.05, atol=1e-8)
        np.testing.assert_allclose(contact.frame[k, 0, 0], normal, atol=near)
    assert 10 < inside < 50


@pytest.mark.parametrize("kinds", KINDS[2:-1], ids="-".join)
def test_flat_sides_share_their_overlap(kinds: tuple[str, str]) -> None:
    """Where MuJoCo clips to four points and fewer ours are the same; of more it keeps four, ours span no less."""
    model, mjmodel, contacts_of = scene(kinds)
    states = flat_states(mjmodel, kinds, COUNT)
    contacts = contacts_of(model, oracle.poses_of(mjmodel, states))
    several = 0
    for k, data in enumerate(states):
        used = np.asarray(contacts.dist[k]) < 0
        assert used.sum() == data.ncon
        np.testing.assert_allclose(contacts.dist[k][used], data.contact.dist, atol=1e-9)
        np.testing.assert_allclose(contacts.frame[k][used][:, 0], data.contact.frame[:, :3], atol=1e-7)
        ours, theirs = np.asarray(contacts.pos[k])[used], data.contact.pos
        assert spread(ours) > spread(theirs) - 1e-9
        several += data.ncon > 2
    assert several > 10


def spread(points: np.ndarray) -> float:
    """The area that at most four points (n, 3) of a plane span: half the product of two diagonals."""
    sides = (points[:, None] - points[None]).reshape(-1, 3)
    return 0.5 * float(np.linalg.norm(np.cross(sides[:, None], sides[None]), axis=-1).max())


@pytest.mark.parametrize("kinds", [("rod", "stone"), ("stone", "pebble")], ids="-".join)
def test_derivatives_with_respect_to_poses_and_vertices(kinds: tuple[str, str]) -> None:
    """Of hulls of triangles: where a side has four corners, moving one of them breaks it."""
    model, mjmodel, _ = scene(kinds)
    states = [data for data in random_states(mjmodel, 60) if data.ncon][:20]
    batch = oracle.poses_of(mjmodel, states)
    rng = np.random.default_rng(0)
    leaves = (model.mesh_vert, model.geom_size, np.zeros((2, 6)))
    change = tuple(jnp.asarray(rng.normal(size=np.shape(leaf))) for leaf in leaves)

    def outputs(parameters: tuple, poses: Kinematics) -> jax.Array:
        vertex, size, twist = parameters
        xmat = mul_mat(quat_to_mat(quat_exp(twist[:, 3:])), poses.geom_xmat)
        moved = poses.replace(geom_xpos=poses.geom_xpos + twist[:, :3], geom_xmat=xmat)
        edited = model.replace(mesh_vert=model.mesh_vert + vertex, geom_size=model.geom_size + size)
        return contact_rows(collide(edited, moved))

    slopes = slopes_in_worlds(outputs, change, batch)
    # another feature within the steps bends them
    smooth = slopes.bends.max(axis=(1, 2)) < 1e-6
    assert smooth.sum() > len(states) / 2
    np.testing.assert_allclose(slopes.tangent[smooth], slopes.numeric[smooth], atol=1e-6, rtol=1e-6)


def test_hulls_on_top_of_each_other_and_in_one_place_are_finite() -> None:
    """In float32, where numbers vanish and overflow first."""
    dtype = jnp.float32
    model, mjmodel, _ = scene(("block", "block"))
    states = []
    for height in (0, 0.1, 0.2, 0.4, 0.40001):
        qpos = np.zeros(14)
        qpos[[3, 10]], qpos[9] = 1, height
        states.append(oracle.posed(mjmodel, qpos))
    cast = lambda x: jnp.asarray(x, dtype) if jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating) else x  # noqa: E731
    model, batch = jax.tree.map(cast, (model, oracle.poses_of(mjmodel, states)))

    def total(pos: jax.Array, mat: jax.Array, poses: Kinematics) -> jax.Array:
        contacts = collide(model, poses.replace(geom_xpos=pos, geom_xmat=mat))
        return jnp.sum(contacts.dist) + jnp.sum(contacts.pos) + jnp.sum(contacts.frame)

    both = uncompiled(jax.vmap(jax.jit(jax.value_and_grad(total, argnums=(0, 1)))))
    for leaf in jax.tree.leaves(both(batch.geom_xpos, batch.geom_xmat, batch)):
        assert leaf.dtype == dtype and np.all(np.isfinite(leaf))


def equations(kinds: list[str]) -> int:
    """Equations of the traced program."""
    mjmodel = oracle.load_with_assets(free_scene(*kinds), {})
    poses = oracle.record_of(Kinematics, mjmodel, oracle.posed(mjmodel, mjmodel.qpos0))
    return str(jax.make_jaxpr(jax.jit(collide))(from_mujoco(mjmodel, max_contacts=20), poses)).count(" = ")


def test_the_program_does_not_grow_with_the_number_of_meshes() -> None:
    """Meshes with up to 8 vertices: one kind of pair, however many meshes; three kinds with those of up to 32."""
    few, another = ["block", "brick", *wide(["stone", "pebble"])], ["wedge", *wide(["gravel"])]
    fewer, more = equations(few), equations([*few, *another])
    # some rows are slices there and gathers here
    assert abs(more - fewer) < 0.01 * fewer


# round bodies over the middle of a side, where the search ends on a diagonal; a corner over it; and edges that cross
CORNER, RIDGE = np.array([0.1, 0.15, 0.2]), np.array([0.1, 0.15, 0])
TO_RIDGE, FROM_RIDGE = (Rotation.align_vectors([[s, 0, 0], [0, 0, 1]], [RIDGE, [0, 0, 1]])[0] for s in (1, -1))
CROSSED = Rotation.from_euler("x", 70, degrees=True) * FROM_RIDGE
OVER = {
    "egg": (Rotation.identity(), Rotation.identity(), 0.1 + 0.1, (-0.01, 0.05)),
    "ball": (Rotation.identity(), Rotation.identity(), 0.1 + 0.1, (-0.01, 0.05)),
    "corner": (
        Rotation.identity(),
        Rotation.align_vectors([[-1, 0, 0]], [CORNER])[0],
        0.1 + np.linalg.norm(CORNER),
        (0.05,),
    ),
    "edges": (TO_RIDGE, CROSSED, 2 * np.linalg.norm(RIDGE), (0.05,)),
}


@pytest.mark.parametrize("name", OVER)
def test_over_a_line_between_corners_of_a_side_the_normal_is_the_side_s(name: str) -> None:
    turn1, turn2, touch, gaps = OVER[name]
    mjmodel = oracle.load_oracle(free_scene("block", name if name in ("ball", "egg") else "block"))
    model, quats = from_mujoco(mjmodel), [turn.as_quat()[[3, 0, 1, 2]] for turn in (turn1, turn2)]
    for gap in gaps:
        data = oracle.posed(mjmodel, np.concatenate([np.zeros(3), quats[0], [touch + gap, 0, 0], quats[1]]))
        poses = jax.tree.map(jnp.asarray, oracle.record_of(Kinematics, mjmodel, data))

        def found(shift: jax.Array, poses: Kinematics = poses) -> jax.Array:
            moved = poses.replace(geom_xpos=poses.geom_xpos.at[1].add(shift))
            each = diffsim.geom_distance(model, moved, 0, 1)
            return jnp.concatenate([each.normal, each.distance[None]])

        np.testing.assert_allclose(uncompiled(found)(np.zeros(3)), [1, 0, 0, gap], atol=1e-7)
        slope = uncompiled(jax.jacfwd(found))(np.zeros(3))
        np.testing.assert_allclose(slope, [[0, 0, 0], [0, 0, 0], [0, 0, 0], [1, 0, 0]], atol=1e-6)
