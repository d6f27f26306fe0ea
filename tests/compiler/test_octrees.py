"""Octrees of meshes: cells, coefficients, masses and bounds as MuJoCo compiles them, and what is refused."""

import pathlib

import jax
import numpy as np
import oracle
import pytest
from compiler.compare import differences

from diffsim import MjcfError, UnsupportedError, from_mujoco, load
from diffsim.compiler.assets.octree import cells_of, neighbours
from diffsim.compiler.assets.octree_field import box_order, nearest, octree_of
from diffsim.geometry.sdf.data import OCTREE
from diffsim.types import Model

BOX = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])


def numbers(values: np.ndarray) -> str:
    return " ".join(map(str, np.ravel(values)))


def angle_iron() -> str:
    """A mesh that is not convex: an L of two legs, turned, and of a thickness that no cell divides."""
    rim = np.array([[0, 0], [1, 0], [1, 0.23], [0.23, 0.23], [0.23, 0.7], [0, 0.7]])
    # around the corner that points inwards
    below = np.array([[3, k % 6, (k + 1) % 6] for k in (4, 5, 6, 7)])
    side = [(k, (k + 1) % 6, k + 6) for k in range(6)] + [((k + 1) % 6, (k + 1) % 6 + 6, k + 6) for k in range(6)]
    face = np.concatenate([below + 6, below[:, ::-1], side])
    vertex = np.concatenate([np.c_[rim, np.full(6, z)] for z in (0, 0.4)])
    return f"vertex='{numbers(vertex)}' face='{numbers(face)}' refquat='1 .2 .3 .4'"


SAME = "vertex='0 0 0 1 0 0 0 1 0 0 0 1' scale='.3 .2 .4'"
# beside each other, so that addresses are compared too
MESHES = {
    "crate": f"vertex='{numbers(BOX * [0.2, 0.3, 0.25])}'",
    "plain": "builtin='sphere' params='1'",
    "ring": "builtin='supertorus' params='9 .3 1 .6' scale='.3 .4 .35'",
    "iron": angle_iron(),
    "sheared": f"vertex='{numbers(BOX * [0.1, 0.1, 0.1])}' refquat='1 .2 .3 .4' scale='.9 2 1.4' refpos='.1 .2 .3'",
    "shell": "builtin='supersphere' params='7 .6 1.5' inertia='shell' scale='.2 .2 -.3'",
    "corner": SAME,
}
ASSETS = "<asset>" + "".join(f"<mesh name='{name}' {text}/>" for name, text in MESHES.items()) + "</asset>"
SAMPLED = tuple(name for name in MESHES if name != "plain")
ALL = f"""<mujoco>{ASSETS}<worldbody><geom type="mesh" mesh="plain" contype="0" conaffinity="0"/>
  {"".join(f"<body><freejoint/><geom type='sdf' mesh='{name}'/></body>" for name in SAMPLED)}</worldbody></mujoco>"""
OCTREES = ("noct", "mesh_octadr", "mesh_octnum", "oct_depth", "oct_child", "oct_aabb", "oct_coeff")


@pytest.fixture(scope="module")
def model() -> Model:
    return load(ALL, max_pairs=1, max_contacts=1)


def test_octrees_are_those_of_the_oracle(model: Model) -> None:
    """To the last bit: rounding decides on which side of sharp edges a point is."""
    mjmodel = oracle.load_oracle(ALL)
    assert differences(model, mjmodel) == []
    assert mjmodel.noct > 300_000 and np.sum(mjmodel.mesh_octadr < 0) == 1
    for name in OCTREES[:5]:
        np.testing.assert_array_equal(getattr(model, name), getattr(mjmodel, name))
    for name in OCTREES[5:]:
        ours, theirs = np.asarray(getattr(model, name)), getattr(mjmodel, name)
        assert np.abs(ours - theirs).max() < 1e-12, name


@pytest.mark.parametrize(
    "path", ["mujoco/mjx/test_data/shadow_hand/assets/f_proximal.obj", "dm_control/suite/dog_assets/BONEC_5.stl"]
)
def test_octrees_of_real_meshes_are_those_of_the_oracle(path: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "one.xml"
    file.write_text(f"""<mujoco><asset><mesh name="m" file="{oracle.package_path(path)}"/></asset>
      <worldbody><body><freejoint/><geom type="sdf" mesh="m"/></body></worldbody></mujoco>""")
    model, mjmodel = load(file, allow_outside=True), oracle.load_oracle(file.read_text())
    assert differences(model, mjmodel) == [] and mjmodel.noct > 40_000
    np.testing.assert_array_equal(model.oct_child, mjmodel.oct_child)
    assert np.abs(np.asarray(model.oct_coeff) - mjmodel.oct_coeff).max() < 1e-12 * model.geom_rbound[0]


def test_a_compiled_model_of_the_oracle_has_its_octrees(model: Model) -> None:
    theirs = from_mujoco(oracle.load_oracle(ALL), max_pairs=1, max_contacts=1)
    for name in ("geom_sdf", "sdf_names", *OCTREES[:5]):
        np.testing.assert_array_equal(getattr(theirs, name), getattr(model, name))
    assert theirs.sdf_names == (OCTREE,) and theirs.geom_sdf.tolist() == [-1] + 6 * [0]
    np.testing.assert_allclose(theirs.oct_coeff, model.oct_coeff, atol=1e-12)


def test_a_saved_model_has_its_octrees(model: Model, tmp_path: pathlib.Path) -> None:
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert again.topology == model.topology
    assert all(np.array_equal(*each) for each in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True))
    assert model.mesh("ring").coeff.shape == (model.mesh("ring").octnum, 8)
    assert model.mesh("plain").coeff.shape == (0, 8)


def test_neighbours_differ_by_one_level() -> None:
    """And the leaves fill the root: each finest cell is in one."""
    needle = np.array([[[0, 0, 0], [1, 0.001, 0], [0, 1, 1.0]]])
    cells = cells_of(needle)
    leaves = cells.leaves
    beside = neighbours(cells, leaves)
    differ = np.where(beside >= 0, cells.level[beside] - cells.level[leaves][:, None], 0)
    assert differ.min() == -1 and differ.max() == 1
    assert np.sum(cells.size[leaves] ** 3) == 64**3


def test_points_are_nearest_where_a_search_finds_them() -> None:
    """By all parts of triangles."""
    rng = np.random.default_rng(0)
    triangle, point = rng.normal(size=(200, 3, 3)), 2 * rng.normal(size=(200, 3))
    share = rng.dirichlet([0.3, 0.3, 0.3], 20_000)
    tried = np.linalg.norm(np.einsum("sk,nkj->nsj", share, triangle) - point[:, None], axis=2).min(axis=1)
    near = nearest(point, triangle)
    mixed = np.stack([1 - near.second - near.third, near.second, near.third], axis=1)
    assert mixed.min() > -1e-12 and len(np.unique(mixed > 1e-12, axis=0)) == 7
    reached = np.linalg.norm(np.einsum("nk,nkj->nj", mixed, triangle) - point, axis=1)
    np.testing.assert_allclose(reached, np.sqrt(near.squared), rtol=1e-12)
    assert (reached <= tried + 1e-12).all() and (tried - reached).max() < 0.1


def test_degenerate_triangles_do_no_harm() -> None:
    """A flat triangle has no circumcenter, and no side on which points are."""
    vertex = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0, 0]])
    face = np.array([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3], [0, 4, 1]])
    octree = octree_of(vertex, face)
    assert np.isfinite(octree.coeff).all() and sorted(box_order(vertex[face])) == list(range(5))


def test_triangles_whose_corners_are_one_are_passed_over_as_in_the_oracle() -> None:
    """Beside such a side MuJoCo's division by zero is no number, which is never the nearest."""
    vertex = numbers(np.array([[0, 0, 0], [0.3, 0, 0], [0, 0.2, 0], [0, 0, 0.4]]))
    face = "0 2 1 0 1 3 0 3 2 1 2 3 0 0 1 2 2 2 1 3 3 2 3 2"
    text = f"""<mujoco><asset><mesh name='m' vertex='{vertex}' face='{face}'/></asset>
      <worldbody><body><freejoint/><geom type='sdf' mesh='m'/></body></worldbody></mujoco>"""
    model, mjmodel = load(text), oracle.load_oracle(text)
    assert differences(model, mjmodel) == []
    for name in OCTREES:
        np.testing.assert_array_equal(np.asarray(getattr(model, name)), getattr(mjmodel, name))


def test_a_mesh_that_is_too_fine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all triangles are long, cells and triangles make more and more pairs."""
    monkeypatch.setattr("diffsim.compiler.assets.octree.MOST_PAIRS", 10_000)
    with pytest.raises(MjcfError, match=r"too many triangles for a distance field; .*coarser") as caught:
        load(f"<mujoco>{ASSETS}<worldbody><geom type='sdf' mesh='ring'/></worldbody></mujoco>")
    assert '<mesh name="ring">' in str(caught.value)


WRONG = {
    "no_mesh": ("<geom type='sdf'/>", "needs attribute 'mesh'"),
    "surface": ("<geom type='sdf' mesh='torus'/>", "surface of a plugin's field and has no octree"),
    "sdflib": (
        "<geom type='sdf' mesh='corner'><plugin plugin='mujoco.sdf.sdflib'/></geom>",
        "'mujoco.sdf.sdflib' is not a distance field that diffsim supports",
    ),
    "flat": ("<geom type='sdf' mesh='flat'/>", "the vertices are in one plane"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_has_no_octree_is_refused(name: str) -> None:
    geom, message = WRONG[name]
    flat = "<mesh name='flat' vertex='0 0 0 1 0 0 0 1 0 1 1 0' face='0 1 2 0 2 1'/>" if name == "flat" else ""
    text = f"""<mujoco><extension><plugin plugin='mujoco.sdf.torus'/></extension>
      <asset><mesh name='corner' {SAME}/>{flat}<mesh name='torus'><plugin plugin='mujoco.sdf.torus'/></mesh></asset>
      <worldbody>\n{geom}</worldbody></mujoco>"""
    with pytest.raises(MjcfError, match=message) as caught:
        load(text)
    assert all(problem.line > 0 and problem.element for problem in caught.value.problems)
    assert not isinstance(caught.value, UnsupportedError)
