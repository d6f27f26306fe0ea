"""All sides of two hulls at once: beside the search from corner to corner, of good hulls and of bad ones."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from geometry.hulls import BOX, MESHES, cloud, column
from scipy.spatial.transform import Rotation
from uncompiled import uncompiled

from diffsim.compiler.convert import from_mujoco
from diffsim.geometry.hull.features import HullPair
from diffsim.geometry.hull.pairs import closest, searched
from diffsim.geometry.hull.polytope import Hull, ball_around, hulls
from diffsim.geometry.hull.sat import closest_side, closest_side_by_size
from diffsim.geometry.hull.tables import hull_sizes

GOLDEN = (1 + 5**0.5) / 2
THIRD = np.array([[0, s / GOLDEN, t * GOLDEN] for s in (-1, 1) for t in (-1, 1)])
DODECAHEDRON = np.concatenate([BOX, *(np.roll(THIRD, k, axis=1) for k in range(3))])
TURN = Rotation.from_rotvec([0.3, 0.5, 0.7]).as_matrix()
# doubled corners, corners in the middle of edges
SLIVERS = np.concatenate([BOX, BOX[:1] * (1 - 1e-7) + 1e-7 * BOX[1:2], 0.5 * (BOX[:1] + BOX[1:2])]) * [0.2, 0.1, 0.3]
SHAPES = {
    "stone": MESHES["stone"],
    "nut": MESHES["nut"] @ TURN.T,
    "dodecahedron": 0.1 * DODECAHEDRON @ TURN.T,
    "slivers": SLIVERS @ TURN.T,
    "sheet": cloud(12, 4) * [1, 1, 1e-4],
    "needle": cloud(10, 5) * [1, 1e-3, 1e-3],
    "coin": column(9, 0.2, 1e-4),
    "wedge": MESHES["wedge"],
}
COUNT = 400


@pytest.fixture(scope="module")
def stacked() -> tuple[Hull, np.ndarray]:
    """All hulls in arrays of one size, and the sizes of the bodies."""
    meshes = "".join(
        f"<mesh name='{name}' inertia='convex' vertex='{' '.join(map(repr, map(float, (100 * v).ravel())))}' "
        "scale='.01 .01 .01'/>"
        for name, v in SHAPES.items()
    )
    geoms = "".join(f"<body><freejoint/><geom type='mesh' mesh='{name}' mass='1'/></body>" for name in SHAPES)
    model = from_mujoco(
        oracle.load_with_assets(f"<mujoco><asset>{meshes}</asset><worldbody>{geoms}</worldbody></mujoco>", {})
    )
    ids = tuple(range(len(SHAPES)))
    sizes = tuple(max(column) for column in zip(*(hull_sizes(model.topology, mesh) for mesh in ids), strict=True))
    found = hulls(model, ids, sizes).table
    return found, np.asarray(ball_around(found.box))


def poses(bound: np.ndarray) -> tuple:
    """Which hulls, turns and shifts: deep in each other, touching, apart, and aligned."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(len(SHAPES), size=(2, COUNT))
    turns = Rotation.random(COUNT, random_state=0).as_matrix()
    turns[::5] = Rotation.from_euler("xyz", np.pi / 2 * rng.integers(4, size=(len(turns[::5]), 3))).as_matrix()
    spread = np.array([0.05, 0.3, 0.8, 2])[np.arange(COUNT) % 4] * bound[first]
    return first, second, turns, rng.normal(size=(COUNT, 3)) * spread[:, None]


def found(table: Hull, dtype: type, first: np.ndarray, second: np.ndarray, *poses: np.ndarray) -> np.ndarray:
    """Distances, and gaps along normals (COUNT, 3, 2): by sides, by sides of the larger hull first, by the search."""
    table = jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, table)

    @uncompiled
    @jax.vmap
    def of_pairs(i: jax.Array, j: jax.Array, turn: jax.Array, offset: jax.Array) -> jax.Array:
        one, other = (jax.tree.map(lambda x, k=k: x[k], table) for k in (i, j))
        pair = HullPair(one.vert, other.vert, turn, offset)
        sizes = len(one.vert), len(one.facet), len(one.edge)
        ways = (
            lambda fixed: closest_side(fixed, one, other),
            lambda fixed: closest_side_by_size(sizes, fixed, one, other),
            searched,
        )
        contacts = [closest(pair, way) for way in ways]
        moved = pair.of_second(jnp.arange(len(other.vert)))
        gaps = [jnp.min(moved @ contact.normal) - jnp.max(one.vert @ contact.normal) for contact in contacts]
        return jnp.stack([jnp.stack([c.dist for c in contacts]), jnp.stack(gaps)], axis=1)

    return np.asarray(of_pairs(first, second, *(x.astype(dtype) for x in poses)))


def test_the_distance_is_the_gap_along_the_normal_and_no_gap_is_greater(stacked: tuple[Hull, np.ndarray]) -> None:
    """That the search from corner to corner has found, whichever body is the larger; float32 is right to rounding."""
    table, bound = stacked
    cases = poses(bound)
    size = bound[cases[0]] + bound[cases[1]]
    (dist, gap), (again, gap_again), (_, shown) = (found(table, jnp.float64, *cases) / size[:, None, None]).T.swapaxes(
        0, 1
    )
    assert (dist < 0).sum() > COUNT / 4 < (dist > 0).sum()
    np.testing.assert_allclose(dist, gap, atol=1e-7)
    np.testing.assert_allclose(again, gap_again, atol=1e-7)
    np.testing.assert_allclose(again, dist, atol=1e-7)
    assert np.all(dist > shown - 1e-7)
    rounded = found(table, jnp.float32, *cases)[:, :2, 0].T / size
    np.testing.assert_allclose(rounded, np.stack([dist, dist]), atol=3e-6)
