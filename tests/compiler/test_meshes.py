"""Meshes: every source, inertia, scale and fit compiles as in the oracle, with the same hulls and polygons."""

import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from compiler import asset_files
from compiler.compare import differences
from compiler.hulls import hull_of
from scipy.spatial import ConvexHull
from uncompiled import uncompiled

import diffsim
from diffsim.base.errors import MjcfError
from diffsim.compiler import from_mujoco
from diffsim.compiler.assets.hull import Hull, polygons
from diffsim.load import load
from diffsim.mjcf.files.obj_file import read_obj
from diffsim.mjcf.resources import AssetError

FILES = asset_files.mesh_files()

# every way to place and weigh a mesh; a name of its own for each, since the oracle keeps files by name
WAYS = (
    "",
    'scale="1 -2 .5"',
    'refpos=".1 .2 .3" refquat=".5 .1 .2 .3"',
    'inertia="convex" maxhullvert="6"',
    'inertia="exact"',
    'inertia="shell" smoothnormal="true"',
    'inertia="shell" scale="-1 1 1"',
)

# shapes stretched, so that no axes are equal
BUILTINS = {
    "sphere": "2",
    "hemisphere": "3",
    "cone": "6 .4",
    "supersphere": "8 .5 1.5",
    "supertorus": "8 .3 .7 1.2",
    "wedge": "6 5 30 20 .5",
    "plate": "5 4",
}

POINTS = 'vertex="0 0 0 1 .1 0 0 2 0 .1 0 3"'
FACES = 'face="0 2 1 0 1 3 0 3 2 1 2 3"'
INLINE = (
    POINTS,
    f"{POINTS} {FACES}",
    f'{POINTS} {FACES} inertia="exact" scale="-1 1 2"',
    f'{POINTS} {FACES} texcoord="0 0 1 0 0 1 1 1" normal="0 0 1 0 1 0 1 0 0 1 1 1"',
    f'{POINTS} {FACES} normal="0 0 1 0 1 0 1 0 0 1 1 1" refquat="1 2 3 4"',
)


@pytest.fixture
def any_contact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile also geoms that diffsim cannot collide."""
    monkeypatch.setattr("diffsim.compiler.passes.check_model", lambda draft, model: None)


def check(xml: str, assets: dict[str, bytes] | None = None) -> None:
    """Our model is the oracle's."""
    assert differences(load(xml, assets=assets), oracle.load_with_assets(xml, assets or {})) == []


def model_of(meshes: list[str], geom: str = "", around: str = "") -> str:
    """One body with a geom for each mesh, given by its attributes."""
    assets = "".join(f'<mesh name="m{k}" {each}/>' for k, each in enumerate(meshes))
    bodies = "".join(
        f'<body><geom type="mesh" mesh="m{k}" pos="1 2 {k}" euler="10 20 30" {geom}/></body>'
        for k, _ in enumerate(meshes)
    )
    return f"<mujoco>{around}<asset>{assets}</asset><worldbody>{bodies}</worldbody></mujoco>"


@pytest.mark.parametrize("file", FILES)
def test_a_mesh_file_compiles_as_in_the_oracle(file: str, any_contact: None) -> None:
    # a surface that is not closed has no exact volume
    ways = [way for way in WAYS if file != "points.obj" or "exact" not in way]
    names = [f"{k}_{file}" for k, _ in enumerate(ways)]
    meshes = [f'file="{name}" {way}' for name, way in zip(names, ways, strict=True)]
    check(model_of(meshes), dict.fromkeys(names, FILES[file]))


@pytest.mark.parametrize("inertia", ["legacy", "convex", "exact", "shell"])
def test_a_builtin_mesh_compiles_as_in_the_oracle(inertia: str, any_contact: None) -> None:
    # a mirrored hull has a negative volume, which both refuse; a plate has no hull
    scales = [".5 .7 1.1"] if inertia == "convex" else [".5 .7 1.1", "2 -1 .7"]
    hollow = ("cone", "wedge") if inertia == "exact" else ()
    meshes = [
        f'builtin="{kind}" params="{params}" inertia="{inertia}" scale="{scale}"'
        for scale in scales
        for kind, params in BUILTINS.items()
        if kind != "plate" and not (kind in hollow and scale != scales[0])
    ]
    check(model_of(meshes))
    plates = [f'builtin="plate" params="{BUILTINS["plate"]}" inertia="{inertia}" scale="{scale}"' for scale in scales]
    if inertia != "convex":
        check(model_of(plates, 'contype="0" conaffinity="0" mass="0"'))


def test_an_inline_mesh_compiles_as_in_the_oracle(any_contact: None) -> None:
    check(model_of(list(INLINE)))


# surfaces with faults that MuJoCo overlooks: holes, turned, degenerate and doubled triangles, two parts
BENT = [(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)]
FAULTS = {
    "open": BENT[:3],
    "one": BENT[:1],
    "turned": [(a, c, b) for a, b, c in BENT],
    "one_turned": [*BENT[:3], (1, 3, 2)],
    "degenerate": [*BENT, (0, 0, 1), (2, 2, 2)],
    "doubled": BENT + BENT,
}
REFUSED = {("one", "legacy"), ("one", "exact"), ("turned", "exact"), ("one_turned", "exact"), ("doubled", "exact")}


@pytest.mark.parametrize("inertia", ["legacy", "convex", "exact", "shell"])
def test_a_damaged_surface_compiles_as_in_the_oracle(inertia: str) -> None:
    faces = {name: " ".join(str(k) for triangle in face for k in triangle) for name, face in FAULTS.items()}
    used = [name for name in FAULTS if (name, inertia) not in REFUSED]
    meshes = [f'{POINTS} face="{faces[name]}" inertia="{inertia}"' for name in used]
    twice = " ".join([POINTS[8:-1], *(f"{x}" for x in np.array(POINTS[8:-1].split(), float) + 5)])
    both = " ".join(str(k) for part in (0, 4) for triangle in BENT for k in np.array(triangle) + part)
    check(model_of([*meshes, f'vertex="{twice}" face="{both}" inertia="{inertia}"']))


@pytest.mark.parametrize(("name", "inertia"), sorted(REFUSED))
def test_a_surface_that_the_oracle_refuses_is_refused(name: str, inertia: str) -> None:
    face = " ".join(str(k) for triangle in FAULTS[name] for k in triangle)
    xml = model_of([f'{POINTS} face="{face}" inertia="{inertia}"'])
    with pytest.raises(ValueError, match=r"mesh volume is|inconsistent orientation"):
        oracle.load_with_assets(xml, {})
    with pytest.raises(MjcfError, match=r"volume of the mesh is|inconsistent orientation"):
        load(xml)


def test_hulls_are_made_only_for_what_may_collide(any_contact: None) -> None:
    meshes = [f"{POINTS} {FACES}", f'{POINTS} {FACES} inertia="convex"']
    check(model_of(meshes, 'contype="0" conaffinity="0"'))
    check(model_of(meshes, 'contype="0"'))


def test_a_default_class_and_the_file_name_serve_meshes(any_contact: None) -> None:
    xml = """<mujoco><default><mesh scale=".1 .2 .3"/>
    <default class="c"><mesh inertia="shell" maxhullvert="5"/></default></default>
    <asset><mesh file="d/binary.stl"/><mesh class="c" name="n" file="d/binary.stl"/></asset>
    <worldbody><geom type="mesh" mesh="binary"/><geom type="mesh" mesh="n" pos="1 1 1"/></worldbody></mujoco>"""
    files = {"d/binary.stl": FILES["binary.stl"]}
    model = load(xml, assets=files)
    assert differences(model, oracle.load_with_assets(xml, files)) == []
    assert model.name("mesh", 0) == "binary"


FITS = ('fitscale="1.3"', 'material="own" size=".1 .2 .3" fitscale=".7" mass="3"', 'density="0" fluidshape="ellipsoid"')


@pytest.mark.parametrize("setting", ["", '<compiler fitaabb="true"/>'])
def test_a_fitted_shape_compiles_as_in_the_oracle(setting: str) -> None:
    kinds = ("sphere", "capsule", "cylinder", "ellipsoid", "box")
    geoms = "".join(
        f'<body><frame pos="1 2 3" euler="10 20 30"><geom type="{kind}" mesh="m" pos=".1 .2 .3" quat="1 2 3 4" {way}/>'
        "</frame></body>"
        for kind in kinds
        for way in FITS
    )
    assets = '<mesh name="m" file="fit.stl" material="its"/><material name="its"/><material name="own"/>'
    check(
        f"<mujoco>{setting}<asset>{assets}</asset><worldbody>{geoms}</worldbody></mujoco>",
        {"fit.stl": FILES["binary.stl"]},
    )


def test_ascii_stl_is_read_like_binary_stl() -> None:
    box = asset_files.crooked_box().astype(np.float32)
    xml = model_of(['file="m.stl"'])
    binary = load(xml, assets={"m.stl": asset_files.stl(box, asset_files.TRIANGLES)})
    text = load(xml, assets={"m.stl": asset_files.ascii_stl(box, asset_files.TRIANGLES)})
    assert text.topology == binary.topology
    assert np.array_equal(text.mesh_vert, binary.mesh_vert)


@pytest.mark.parametrize("form", ["%.6f", "%.1f", "%.15f", "%.9g", "%.3e", "%+.4f"])
def test_numbers_of_an_obj_are_the_nearest_floats(form: str) -> None:
    numbers = np.random.default_rng(1).normal(size=(200, 3)) * 100
    words = [[form % x for x in row] for row in numbers] + [["-.5", "7.", "-0.0"], ["0.1", "1.5", "-2.25"]]
    surface = read_obj("\n".join("v " + "  ".join(row) for row in words).encode())
    np.testing.assert_array_equal(surface.vertex, np.array(words).astype(np.float64).astype(np.float32))


@pytest.mark.parametrize("corners", [99, 100, 101, 102])
def test_polygons_with_more_than_100_corners_are_left_out_with_a_warning(corners: int) -> None:
    angle = 2 * np.pi * np.arange(corners) / corners
    lines = [f"v {np.cos(a):.6f} {np.sin(a):.6f} 0" for a in angle] + ["v 0 0 1"]
    lines += ["f " + " ".join(str(k + 1) for k in range(corners))]
    lines += [f"f {k + 1} {(k + 1) % corners + 1} {corners + 1}" for k in range(corners)]
    assets = {"cone.obj": "\n".join(lines).encode()}
    xml = """<mujoco><asset><mesh name='m' file='cone.obj' inertia='shell'/></asset>
      <worldbody><body><geom type='mesh' mesh='m'/></body></worldbody></mujoco>"""
    if corners > 100:
        with pytest.warns(UserWarning, match=r"cone.obj has 1 polygons with more than 100 corners"):
            ours = load(xml, assets=assets)
    else:
        ours = load(xml, assets=assets)
    theirs = oracle.load_with_assets(xml, assets)
    np.testing.assert_array_equal(ours.topology.mesh_facenum, theirs.mesh_facenum)
    np.testing.assert_allclose(ours.body_mass, theirs.body_mass, rtol=1e-9)


@pytest.mark.parametrize("word", [".", "-", "1..2", "1-.5", "-.", "1.2.", "--1."])
def test_a_word_of_an_obj_that_is_no_number_is_refused(word: str) -> None:
    with pytest.raises(AssetError, match="not a number"):
        read_obj(f"v 1.0 2.0 3.0\nv {word} 1.0 2.5\n".encode())


def test_normals_that_are_no_numbers_point_up(any_contact: None) -> None:
    normal = np.tile([[np.nan, 0.0, 0.0], [np.inf, 0.0, 0.0]], (4, 1))
    data = asset_files.msh(asset_files.crooked_box(), asset_files.TRIANGLES, normal)
    model = load(model_of(['file="m.msh"']), assets={"m.msh": data})
    assert np.isfinite(model.mesh_normal).all()


def test_normals_that_cancel_are_the_oracles_to_the_last_bits() -> None:
    """Walls without thickness, each triangle both ways round but for a few: what remains is rounding in float32."""
    rng = np.random.default_rng(0)
    point = rng.normal(size=(60, 3)) * [0.3, 0.2, 0.1]
    face = ConvexHull(point).simplices
    both = rng.permutation(np.concatenate([face, face[3:, ::-1]]))
    text = " ".join(f"{x:.9g}" for x in point.ravel())
    mesh = f'vertex="{text}" face="{" ".join(str(k) for k in both.ravel())}" inertia="shell"'
    check(model_of([mesh, f'{mesh} smoothnormal="true"', f'{mesh} scale="1 2 -3"']))


def test_short_normals_of_a_file_are_directions_down_to_the_oracles_limit() -> None:
    normal = np.random.default_rng(1).normal(size=(8, 3)) * np.geomspace(1e-10, 1e-5, 8)[:, None]
    data = {"short.msh": asset_files.msh(asset_files.crooked_box(), asset_files.TRIANGLES, normal)}
    check(model_of(['file="short.msh"', 'file="short.msh" scale=".01 1 1"']), data)


def test_the_hull_holds_every_vertex_and_its_rims_close(any_contact: None) -> None:
    model = load(model_of(['builtin="supersphere" params="12 .4 1.7"']))
    vertices, edges, triangles = hull_of(model.topology, 0)
    assert len(vertices) - len(edges) // 2 + len(triangles) == 2
    points = np.asarray(model.mesh_vert)
    for a, b, c in triangles:
        normal = np.cross(points[b] - points[a], points[c] - points[a])
        assert np.all((points - points[a]) @ normal <= 1e-6 * np.linalg.norm(normal))
    # every edge of a polygon is run through in the other direction by its neighbour
    topology = model.topology
    rims = [
        np.asarray(topology.mesh_polyvert)[start : start + number].tolist()
        for start, number in zip(topology.mesh_polyvertadr, topology.mesh_polyvertnum, strict=True)
    ]
    directed = {edge for rim in rims for edge in zip(rim, [*rim[1:], rim[0]], strict=True)}
    assert directed == {(b, a) for a, b in directed}


def edges_in_order(graph: np.ndarray) -> tuple[list[int], list[list[int]], list[int]]:
    """The vertices of a hull, the neighbours of each and the triangles, all in the order of `mesh_graph`."""
    count, faces = graph[:2].tolist()
    start, vertex, edges = graph[2 : 2 + count], graph[2 + count : 2 + 2 * count], graph[2 + 2 * count :]
    lists = [edges[first : first + int(np.argmax(edges[first:] < 0))] for first in start]
    return vertex.tolist(), [vertex[around].tolist() for around in lists], edges[count + 3 * faces :].tolist()


CORNERS = np.array([[x, y, z] for x in (-0.1, 0.1) for y in (-0.2, 0.2) for z in (-0.15, 0.15)])


@pytest.mark.parametrize("kind", ["tetrahedron", "few", "many", "box", "prism"])
def test_a_graph_has_the_order_of_the_oracle(kind: str) -> None:
    """Where a plane touches a hull, its contacts are the first neighbours of the lowest vertex."""
    rng = np.random.default_rng(2)
    for _ in range(8):
        vertex = {
            "tetrahedron": rng.normal(size=(4, 3)),
            "few": rng.normal(size=(8, 3)),
            "many": rng.normal(size=(60, 3)),
            "box": CORNERS[rng.permutation(8)],
            "prism": np.array([[np.cos(a), np.sin(a), z] for z in (-1, 1) for a in 2 * np.pi * np.arange(7) / 7]),
        }[kind]
        numbers = " ".join(f"{x:.8g}" for x in vertex.ravel())
        xml = f"""<mujoco><asset><mesh name='m' vertex='{numbers}'/></asset>
          <worldbody><geom type='mesh' mesh='m'/></worldbody></mujoco>"""
        ours, theirs = load(xml).topology.mesh_graph, oracle.load_with_assets(xml, {}).mesh_graph
        assert edges_in_order(np.asarray(ours)) == edges_in_order(theirs)


def test_a_rim_that_does_not_close_is_left_out_and_its_neighbours_stay() -> None:
    # a ring that touches itself in vertex 0: from the first edge the path turns into the hole and never comes back
    ring = [(0, 0), (-1, 0.5), (-1, -0.5), (1, -0.5), (1, 0.5), (-2, 0), (2, 0), (-2, 3), (2, 3), (0, 2)]
    faces = [(2, 0, 1), (0, 3, 4), (1, 5, 2), (5, 1, 7), (3, 6, 4), (6, 8, 4), (1, 9, 7), (4, 8, 9), (7, 9, 8)]
    # beside it, on another slope, a side of more corners than the ring has edges
    round_ = [(5 + np.cos(a), np.sin(a), 0.3 * np.cos(a) + 0.2 * np.sin(a)) for a in np.linspace(0, 2 * np.pi, 21)[:-1]]
    fan = [(10, 10 + k, 11 + k) for k in range(1, 19)]
    vertex = np.array([(x, y, 0.0) for x, y in ring] + round_)
    face = np.array(faces + fan, np.int32)
    sides = polygons(vertex, Hull(face, face, np.zeros(len(face), bool)))
    assert sides.count.tolist() == [20]
    assert (np.roll(sides.vertex, 10 - sides.vertex[0]) == np.arange(10, 30)).all()


# all of the packages' models: `make corpus`
REAL = [
    "dm_control/third_party/kinova/jaco_arm.xml",
    "dm_control/mjcf/test_assets/model_with_assetdir.xml",
    "mujoco/testdata/msh.xml",
    "mujoco/mjx/test_data/convex.xml",
    "mujoco/mjx/test_data/shadow_hand/right_hand.xml",
]


@pytest.mark.parametrize("path", REAL)
def test_a_real_model_with_meshes_compiles_as_in_the_oracle(path: str, any_contact: None) -> None:
    model = load(oracle.package_path(path))
    assert differences(model, oracle.load_oracle(path)) == []


def test_a_converted_model_has_the_meshes() -> None:
    path = "mujoco/mjx/test_data/ray.xml"
    converted = from_mujoco(oracle.load_oracle(path))
    assert differences(converted, oracle.load_oracle(path)) == []
    assert converted.id("mesh", "dodecahedron") == 1


SWING = f"""<mujoco><asset><mesh name="m" {POINTS} {FACES}/><hfield name="h" nrow="2" ncol="2" size="1 1 1 1"/></asset>
<worldbody><geom type="hfield" hfield="h" contype="0" conaffinity="0"/>
<body><joint axis="0 1 0"/><geom type="mesh" mesh="m" contype="0" conaffinity="0"/>
<body pos="1 0 0"><joint axis="1 0 0"/><geom size=".1"/></body></body></worldbody></mujoco>"""


def test_a_mesh_that_is_only_seen_moves_as_in_the_oracle() -> None:
    model, mjmodel = load(SWING), oracle.load_oracle(SWING)
    state, inputs = diffsim.make_state(model), diffsim.make_inputs(model)
    state = state.replace(qvel=jnp.array([1.0, -2.0]))
    step = uncompiled(diffsim.step)
    data = oracle.stepped(mjmodel, np.array([1.0, -2.0]), 20)
    for _ in range(20):
        state = step(model, state, inputs)
    np.testing.assert_allclose(state.qpos, data.qpos, rtol=0, atol=1e-9)
    slope = uncompiled(jax.grad(lambda m: diffsim.step(m, state, inputs).qvel.sum()))(model)
    assert np.isfinite(slope.body_mass).all()
    assert not np.any(slope.mesh_vert)


def test_thin_polygons_are_cut_as_by_the_oracle() -> None:
    """Corners in line, twice in one place, and out of their plane: rounding decides what is an ear."""
    rng, points, faces = np.random.default_rng(0), [], []
    for _ in range(400):
        count = int(rng.integers(4, 14))
        along = rng.choice([0, 0.25, 0.3333, 0.5, 1], size=count)[:, None] * rng.normal(size=3)
        spread = 10 ** rng.uniform((-3, -9), (-1, -2))
        faces.append(1 + len(points) + np.arange(count))
        points.extend(0.1 * rng.normal(size=3) + spread[0] * along + spread[1] * rng.normal(size=(count, 3)))
    lines = [f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in points] + [f"f {' '.join(map(str, face))}" for face in faces]
    text = """<mujoco><asset><mesh file="thin.obj" inertia="shell"/></asset><worldbody>
      <geom type="mesh" mesh="thin" contype="0" conaffinity="0"/></worldbody></mujoco>"""
    files = {"thin.obj": "\n".join(lines).encode()}
    theirs = oracle.mujoco.MjModel.from_xml_string(text, files)
    np.testing.assert_array_equal(load(text, assets=files).topology.mesh_face, theirs.mesh_face)
