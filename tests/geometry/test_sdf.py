"""Contacts of signed distance fields beside MuJoCo's, their derivatives, degenerate places, and refusals."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from geometry.field_scenes import SETTINGS, SHAPES, extension, field_geom
from geometry.scenes import moved
from uncompiled import uncompiled

import diffsim
from diffsim.base.enums import GeomType
from diffsim.collision import collide
from diffsim.geometry.colliders import COLLIDERS
from diffsim.geometry.sdf.data import FieldData, halton, record_of
from diffsim.geometry.sdf.functions import FUNCTIONS
from diffsim.geometry.shapes import Shape

SEARCHES = 10
AMONG = f"""<mujoco>{extension("nut", "bolt")}<option sdf_iterations='10' sdf_initpoints='{SEARCHES}'/><worldbody>
  <geom name='plane' type='plane' size='1 1 1' pos='0 0 -.3' euler='10 20 0'/>
  {"".join(f"<geom name='{name}' {shape} euler='20 30 40'/>" for name, shape in SHAPES.items())}
  {field_geom("bolt", "name='bolt' euler='70 0 0'")}
  <body><freejoint/>{field_geom("nut", "name='nut'")}</body></worldbody></mujoco>"""


@functools.cache
def among() -> tuple[diffsim.Model, Any]:
    """A nut that moves among other shapes, which stand around the origin."""
    return diffsim.load(AMONG, max_contacts=200), oracle.load_oracle(AMONG)


def by_geom(mjmodel: Any, geom1: np.ndarray, *columns: np.ndarray) -> dict[str, list[np.ndarray]]:
    """The columns of the contacts of each first geom, by its name."""
    names = [mjmodel.geom(geom).name for geom in range(mjmodel.ngeom)]
    return {name: [column[geom1 == geom] for column in columns] for geom, name in enumerate(names)}


def settled(name: str, columns: list[np.ndarray]) -> list[np.ndarray]:
    """What rounding does not decide, in MuJoCo either.

    Neighbours on a hull, of which a plane touches two, have no order. The first search of a box begins at its corner,
    the second in its middle plane; where all of them end in contacts, the others can be told.
    """
    if name == "box":
        return [column[2:] if len(column) == SEARCHES else column[:0] for column in columns]
    return [column[:1] for column in columns] if name == "plane" else columns


def contacts_of(mjmodel: Any, data: Any) -> dict[str, list[np.ndarray]]:
    """The oracle's."""
    contact = data.contact
    return by_geom(mjmodel, contact.geom1, contact.dist, contact.pos, contact.frame[:, :3])


def test_contacts_are_those_of_the_oracle() -> None:
    """The oracle's gradients are differences over 1e-8: their errors do to it what a move by 1e-8 does.

    Near the axis of a thread, where gradients turn fast, they do more.
    """
    model, mjmodel = among()
    rng = np.random.default_rng(0)
    compared: dict[str, list[np.ndarray]] = {name: [] for name in (*SHAPES, "bolt", "plane")}
    places = [np.concatenate([0.3 * rng.normal(size=3), rng.normal(size=4)]) for _ in range(7)]
    states = [oracle.posed(mjmodel, qpos) for qpos in places]
    batch = uncompiled(jax.vmap(functools.partial(collide, model)))(oracle.poses_of(mjmodel, states))
    for k, (qpos, data) in enumerate(zip(places, states, strict=True)):
        found = jax.tree.map(lambda x, k=k: x[k], batch)
        used = np.flatnonzero((found.dist < 0) & (found.geom[:, 0] >= 0))
        used = used[np.argsort(found.sort_key[used])]
        ours = by_geom(mjmodel, found.geom[used, 0], *(x[used] for x in (found.dist, found.pos, found.frame[:, 0])))
        theirs, moved_by = contacts_of(mjmodel, data), 1e-8 * rng.normal(size=7)
        nearby = contacts_of(mjmodel, oracle.posed(mjmodel, qpos + moved_by))
        for name in compared:
            mine, its, near = (settled(name, each[name]) for each in (ours, theirs, nearby))
            if len(its[0]) != len(near[0]) or (name == "box" and len(mine[0]) != len(its[0])):
                continue
            assert len(mine[0]) == len(its[0]), name
            for a, b, c in zip(mine, its, near, strict=True):
                close = np.abs(a - b) <= 1e-6 + 20 * np.abs(b - c)
                compared[name].append(close.all(axis=tuple(range(1, close.ndim))))
    agree = {name: np.concatenate(each) for name, each in compared.items()}
    assert min(map(len, agree.values())) > 12 and len(agree["bolt"]) > 60
    assert all(np.mean(each) > 0.95 for each in agree.values()), agree
    assert np.mean(np.concatenate(list(agree.values()))) > 0.99


def field(name: str, pos: Any, dtype: Any = float, mat: Any = None) -> Shape:
    """An sdf geom, whose contacts are searched for from 6 points in 5 steps."""
    function = FUNCTIONS[f"mujoco.sdf.{name}"]
    parameters = np.zeros(5)
    parameters[: len(function.names)] = function.defaults
    for key, value in SETTINGS[name].items():
        parameters[function.names.index(key)] = value
    half = np.array(function.half_sides(jnp.asarray(parameters)))
    box = np.concatenate([np.zeros(3), half])
    arrays = (parameters, box, halton(6), np.zeros(5), np.zeros((0, 3)))
    data = record_of(function, FieldData)(*(jnp.asarray(array, dtype) for array in arrays))
    mat = np.eye(3) if mat is None else mat
    return Shape(jnp.asarray(pos, dtype), jnp.asarray(mat, dtype), jnp.ones(3, dtype), data)


def shape(kind: GeomType, pos: Any, dtype: Any = float) -> Shape:
    """A primitive shape, or a torus."""
    if kind == GeomType.SDF:
        return field("torus", pos, dtype)
    return Shape(jnp.asarray(pos, dtype), jnp.eye(3, dtype=dtype), jnp.asarray([0.3, 0.2, 0.25], dtype))


def rotation(rng: np.random.Generator) -> np.ndarray:
    turned = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return turned * np.linalg.det(turned)


ENDS = (GeomType.BOX, GeomType.SDF)


@pytest.mark.parametrize("kind", ENDS, ids=lambda kind: kind.name.lower())
def test_derivatives_agree_with_central_differences(kind: GeomType) -> None:
    """By both poses and the parameters of the field; without the searches of a box that rounding decides."""
    rng, count, h = np.random.default_rng(3), 12, 1e-6
    first = [shape(kind, np.zeros(3))._replace(mat=jnp.asarray(rotation(rng))) for _ in range(count)]
    second = [field("bowl", 0.3 * rng.normal(size=3), mat=rotation(rng)) for _ in range(count)]
    first, second = (jax.tree.map(lambda *x: jnp.stack(x), *shapes) for shapes in (first, second))
    step = jnp.asarray(rng.normal(size=(count, 23))) * jnp.asarray([[1.0] * 18 + [0.2, 0.2, 0.05, 0, 0]])
    cotangent = jnp.asarray(rng.normal(size=(count, 6, 7)))

    def rows(twist: jax.Array, shape1: Shape, shape2: Shape) -> jax.Array:
        data = shape2.data._replace(parameters=shape2.data.parameters + twist[18:])
        found = COLLIDERS[kind, GeomType.SDF].function(
            moved(shape1, twist[:9])._replace(data=shape1.data),
            moved(shape2, twist[9:18])._replace(data=data),
            jnp.zeros(()),
        )
        out = jnp.concatenate([found.dist[:, None], found.pos, found.normal], axis=1)
        settled = np.arange(len(out)) >= (2 if kind == GeomType.BOX else 0)
        return jnp.where((found.valid & settled)[:, None], out, 0)

    def both(step: jax.Array, cotangent: jax.Array, twist: jax.Array, shape1: Shape, shape2: Shape) -> tuple:
        value, slope = jax.linearize(lambda t: rows(t, shape1, shape2), twist)
        return value, slope(step), jax.linear_transpose(slope, twist)(cotangent)[0]

    run = uncompiled(jax.vmap(jax.jit(both)))
    at = [run(step, cotangent, k * h * step, first, second) for k in (0, 1, -1)]
    (value, tangent, gradient), (after, *_), (before, *_) = (tuple(map(np.asarray, each)) for each in at)
    forth, back = (after - value) / h, (value - before) / h
    # where the search turns another way within the step, one-sided differences disagree
    smooth = (value != 0).any(axis=2) & (np.abs(forth - back) < 1e-3 * (1 + np.abs(tangent))).all(axis=2)
    assert smooth.sum() > 15
    scale = 1 + np.abs(tangent[smooth])
    assert np.median(np.abs(tangent[smooth])) > 0.05
    np.testing.assert_allclose(tangent[smooth] / scale, ((after - before) / (2 * h))[smooth] / scale, atol=2e-6)
    pulled = np.einsum("ij,ij->i", gradient, np.asarray(step))
    pushed = np.einsum("ijk,ijk->i", tangent, np.asarray(cotangent))
    np.testing.assert_allclose(pulled, pushed, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_and_derivatives_are_finite_everywhere(dtype: Any) -> None:
    """At the axes and centers of all fields and shapes, and on their edges."""
    places = np.array([[0, 0, 0], [0, 0, 0.5], [0, 0, -0.25], [0.3, 0, 0], [0.3, 0.2, 0.25], [0.5, 0, 0]])
    for name, function in FUNCTIONS.items():
        parameters = field(name.split(".")[-1], np.zeros(3), dtype).data.parameters

        def all_of(point: jax.Array, p: jax.Array = parameters, f: Any = function.distance) -> tuple:
            return f(p, point), jax.jacfwd(jax.jacrev(f, (0, 1)), (0, 1))(p, point)

        values = uncompiled(jax.vmap(jax.jit(all_of)))(places.astype(dtype))
        assert all(np.isfinite(each).all() and each.dtype == dtype for each in jax.tree.leaves(values)), name
