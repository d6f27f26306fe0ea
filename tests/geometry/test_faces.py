"""Derivatives of contacts of two faces since MuJoCo 3.12; their values are compared with MuJoCo 4.0 in tests/newer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from geometry.scenes import BOX, CAPSULE, CYLINDER, moved, name_of
from uncompiled import uncompiled

from diffsim.base.enums import GeomType
from diffsim.geometry.colliders import LATER, MESH
from diffsim.geometry.hull.polytope import of_box
from diffsim.geometry.shapes import Shape
from diffsim.math.rotation import quat_exp, quat_to_mat

COUNT = 12
H = 1e-5
# half sizes; a mesh is a box here
SIZES = {BOX: (0.1, 0.07, 0.05), MESH: (0.1, 0.07, 0.05), CYLINDER: (0.08, 0.06, 0), CAPSULE: (0.05, 0.1, 0)}
HEIGHTS = {BOX: 0.05, MESH: 0.05, CYLINDER: 0.06, CAPSULE: 0.05}
COLLIDERS = LATER["face_depths"] | LATER["round_faces"]
TYPES = [(BOX, MESH), (CAPSULE, MESH), (CAPSULE, CYLINDER), (CYLINDER, BOX)]


@pytest.mark.parametrize("types", TYPES, ids=name_of)
def test_derivatives_of_corners(types: tuple) -> None:
    rng = np.random.default_rng(1)
    collider = COLLIDERS[types]

    def shape(kind: GeomType, twist: jax.Array, turn: jax.Array, pos: jax.Array) -> Shape:
        # a capsule lies
        lying = quat_to_mat(quat_exp(jnp.array([np.pi / 2 * (kind == CAPSULE), 0, 0])))
        body = moved(Shape(pos, quat_to_mat(quat_exp(turn)) @ lying, jnp.array(SIZES[kind])), twist)
        return body._replace(data=of_box(body.size)) if kind == MESH else body

    def rows(twist: jax.Array, turn: jax.Array, pos: jax.Array) -> jax.Array:
        one, other = (shape(kind, twist[9 * k : 9 * k + 9], turn[k], pos[k]) for k, kind in enumerate(types))
        found = collider.function(one, other, jnp.zeros(()), jnp.asarray(True))
        used = (found.valid & (found.dist < 0))[:, None]
        return jnp.where(used, jnp.concatenate([found.dist[:, None], found.pos, found.normal], axis=1), 0).ravel()

    def all_of(at: jax.Array, way: jax.Array, weights: jax.Array, turn: jax.Array, pos: jax.Array) -> tuple:
        value, slope = jax.linearize(jax.jit(lambda twist: rows(twist, turn, pos)), at)
        tangent, back = slope(way), jax.linear_transpose(slope, at)
        return value, tangent, jnp.vdot(back(weights[: len(value)])[0], way), jnp.vdot(weights[: len(value)], tangent)

    way, weights = rng.normal(size=(COUNT, 18)), rng.normal(size=(COUNT, 28))
    # up to three degrees; beyond five, sides do not count as flat on each other
    turn = np.concatenate([0.02 * rng.normal(size=(COUNT, 2, 2)), rng.uniform(0, 1, size=(COUNT, 2, 1))], axis=2)
    pos = rng.uniform(-0.04, 0.04, size=(COUNT, 2, 3))
    pos[:, :, 2] = [0, HEIGHTS[types[0]] + HEIGHTS[types[1]] - 0.008]
    mapped = uncompiled(jax.vmap(all_of))
    found = [mapped(k * H * way, way, weights, turn, pos) for k in (-2, -1, 0, 1, 2)]
    values = np.stack([value for value, *_ in found], axis=1)
    _, slope, pulled, pushed = found[2]
    difference = (8 * (values[:, 3] - values[:, 1]) - (values[:, 4] - values[:, 0])) / (12 * H)
    # a corner that another one replaces within a step shows in the one-sided differences
    sided = np.diff(values, axis=1) / H
    smooth = np.ptp(sided, axis=1).max(axis=1) < 0.05
    assert smooth.sum() > COUNT // 2
    corners = np.sum(values[smooth, 2, ::7] < 0, axis=1)
    assert corners.max() == collider.rows
    np.testing.assert_allclose(slope[smooth], difference[smooth], atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(pulled, pushed, atol=1e-9)
