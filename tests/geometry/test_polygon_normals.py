"""Normals of polygons: those of MuJoCo; of many corners the same from a table as from those triangles that exist."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
from geometry.hulls import column
from uncompiled import uncompiled

import diffsim
from diffsim.compiler.convert import from_mujoco
from diffsim.geometry.hull import polytope, tables
from diffsim.geometry.hull.tables import hull_sizes


def ragged() -> tuple[np.ndarray, np.ndarray]:
    """Corners (2, 60, 3), and polygons (2, 5, 40): of all lengths, one that begins along a line, and none."""
    rng = np.random.default_rng(0)
    vert, side = rng.normal(size=(2, 60, 3)), np.full((2, 5, 40), -1, np.int32)
    for mesh in range(2):
        for row, corners in enumerate((3, 4, 17, 40)):
            side[mesh, row, :corners] = rng.permutation(60)[:corners]
        first, second, third = side[mesh, 2, :3]
        vert[mesh, third] = 2 * vert[mesh, second] - vert[mesh, first]
    return vert, side


def test_values_and_derivatives() -> None:
    vert, side = ragged()
    weight = np.random.default_rng(1).normal(size=(2, 5, 3))
    whole = lambda vert: jax.vmap(polytope.polygon_normals)(vert, jnp.asarray(side))  # noqa: E731
    lists = [tables.lists_of([corners[corners >= 0].tolist() for corners in polygons]) for polygons in side]
    stacked = jax.tree.map(lambda *rows: np.stack(rows), *lists)
    sparse = lambda vert: polytope.normals_of_lists(vert, stacked)  # noqa: E731
    normals = [uncompiled(f)(vert) for f in (whole, sparse)]
    np.testing.assert_allclose(*normals, atol=1e-14)
    assert not np.any(normals[1][:, 4])
    slopes = [uncompiled(jax.grad(lambda vert, f=f: jnp.sum(weight * f(vert))))(vert) for f in (whole, sparse)]
    np.testing.assert_allclose(*slopes, rtol=1e-12, atol=1e-13)


def test_a_hull_with_wide_sides() -> None:
    corners = column(50, 0.1, 0.2)
    vertices = " ".join(map(str, corners.ravel()))
    model = diffsim.load(
        f'<mujoco><asset><mesh name="m" vertex="{vertices}"/></asset><worldbody><geom type="mesh" mesh="m"/>'
        "</worldbody></mujoco>"
    )
    sizes = hull_sizes(model.topology, 0)
    hull = uncompiled(lambda model: polytope.hulls(model, (0,), sizes))(model).table
    side = jax.vmap(jax.tree.map(lambda x: jnp.asarray(x[0]), hull.side).row)(jnp.arange(hull.normal.shape[1]))
    expected = uncompiled(polytope.polygon_normals)(hull.vert[0], side)
    np.testing.assert_allclose(hull.normal[0], expected, atol=1e-12)
    outward = np.einsum("pi,pi->p", hull.normal[0], hull.vert[0][np.maximum(side[:, 0], 0)])
    assert np.sum(np.asarray(side[:, 0]) >= 0) == 52
    assert np.all(outward[np.asarray(side[:, 0]) >= 0] > 0.05)


def test_normals_are_those_from_before_vertices_were_kept_in_float32() -> None:
    """A corner of the block is cut by 4e-5 m: what float32 keeps of that says little of its normal."""
    block = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)]) * [1, 1.3, 1.7]
    cut = np.array([0.2, 0.3, 0.5]) + np.concatenate([block[:-1], block[-1] - 4e-5 * np.eye(3)])
    vertices = " ".join(map(repr, map(float, cut.ravel())))
    text = (
        f'<mujoco><asset><mesh name="m" vertex="{vertices}"/></asset><worldbody><geom type="mesh" mesh="m"/>'
        "</worldbody></mujoco>"
    )
    mjmodel = oracle.mujoco.MjModel.from_xml_string(text)
    for model in (diffsim.load(text), from_mujoco(mjmodel)):
        hull = polytope.hulls(model, (0,), hull_sizes(model.topology, 0)).table
        number = int(model.topology.mesh_polynum[0])
        np.testing.assert_allclose(hull.normal[0, :number], model.mesh_polynormal, atol=1e-14)
        assert np.max(np.abs(model.mesh_polyrounding)) > 1e-5
        assert not np.any(hull.normal[0, number:])


def test_of_a_polygon_with_very_many_corners_some_are_kept() -> None:
    angle = 2 * np.pi * np.arange(500) / 500
    corner = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    side, joined = tables.polygons_of([list(range(500)), [0, 1, 2]], 500)
    side = jax.tree.map(jnp.asarray, side)
    kept = np.asarray(side.row(0))
    x, y = corner[kept].T
    area = 0.5 * np.sum(x * np.roll(y, -1) - y * np.roll(x, -1))
    assert len(kept) <= tables.MOST_CORNERS and abs(area / np.pi - 1) < 1e-3
    np.testing.assert_array_equal(kept[:3], [0, 1, 2])
    np.testing.assert_array_equal(side.row(1)[:4], [0, 1, 2, -1])
    assert np.all(joined.entry[joined.start[:-1]] == (np.arange(500) + 1) % 500)
