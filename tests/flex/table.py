"""Small models with flexes and skins, one for each way to make them, beside MuJoCo's compilation of the same XML."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import oracle
from compiler.compare import differences

from diffsim import mjcf
from diffsim.base.errors import MjcfError
from diffsim.compiler.passes import compile_all
from diffsim.types import Model

OBJ = b"""v 0 0 0
v .1 0 0
v .1 .1 0
v 0 .1 0
v 0 0 .1
v .1 0 .1
v .1 .1 .1
v 0 .1 .1
v .5 .5 .5
vt 0 0
vt 1 0
vt 1 1
f 1/1 3/3 2/2
f 1/1 4/2 3/3
f 5/1 6/2 7/3
f 5/1 7/3 8/2
f 1/1 2/2 6/3
f 1/1 6/3 5/2
f 3/1 4/2 8/3
f 3/1 8/3 7/2
f 2/1 3/2 7/3
f 2/1 7/3 6/2
f 1/1 5/2 8/3
f 1/1 8/3 4/2
"""
PLAIN = b"\n".join(b"f 1 3 2" if row.startswith(b"f 1/1 3/3") else row for row in OBJ.split(b"\n")).replace(b"vt", b"#")
PLAIN = b"\n".join(
    b"f " + b" ".join(word.split(b"/")[0] for word in row.split()[1:]) if row.startswith(b"f") else row
    for row in PLAIN.split(b"\n")
)
# a solid of five tetrahedra, and a node that nothing uses
CORNERS = "0 0 0, .1 0 0, .1 .1 0, 0 .1 0, 0 0 .1, .1 0 .1, .1 .1 .1, 0 .1 .1, .7 .7 .7"
NODES = [number for row in CORNERS.split(", ") for number in row.split()]
TETS = [(1, 2, 4, 5), (3, 4, 2, 7), (6, 5, 7, 2), (8, 7, 5, 4), (2, 4, 5, 7)]
TRIANGLES = [(1, 2, 3), (1, 3, 4), (5, 6, 7)]
LINES = [(1, 2), (2, 3), (3, 7)]
SIMPLICES = {1: LINES, 2: TRIANGLES, 3: TETS}
CODES = {1: 1, 2: 2, 3: 4}


def _rows() -> list[list[str]]:
    return [NODES[3 * index : 3 * index + 3] for index in range(len(NODES) // 3)]


def gmsh(dim: int, version: str) -> bytes:
    """A Gmsh file in text."""
    cells, nodes = SIMPLICES[dim], _rows()
    if version == "2.2":
        points = [f"{index} {' '.join(row)}" for index, row in enumerate(nodes, 1)]
        elements = [f"{i} {CODES[dim]} 2 1 1 {' '.join(map(str, cell))}" for i, cell in enumerate(cells, 1)]
        head = [str(len(points)), *points], [str(len(elements)), *elements]
    else:
        count = len(nodes)
        points = [f"1 {count} 1 {count}", f"{dim} 1 0 {count}", *map(str, range(1, count + 1)), *map(" ".join, nodes)]
        elements = [f"1 {len(cells)} 1 {len(cells)}", f"{dim} 1 {CODES[dim]} {len(cells)}"]
        elements += [f"{i} {' '.join(map(str, cell))}" for i, cell in enumerate(cells, 1)]
        head = points, elements
    body = ["$MeshFormat", f"{version} 0 8", "$EndMeshFormat"]
    body += ["$Nodes", *head[0], "$EndNodes", "$Elements", *head[1], "$EndElements", ""]
    return "\n".join(body).encode()


FILES = {"cube.obj": OBJ.replace(b"v .5 .5 .5\n", b""), "plain.obj": PLAIN}
FILES |= {f"{v[0]}{d}.msh": gmsh(d, v) for v in ("2.2", "4.1") for d in (1, 2, 3)}

# how points are made: attributes by (type, dim)
WAYS: dict[tuple[str, int], str] = {
    ("grid", 1): 'type="grid" dim="1" count="4 1 1" spacing=".1 .1 .1"',
    ("circle", 1): 'type="circle" dim="1" count="6 1 1" spacing=".1 .1 .1"',
    ("grid", 2): 'type="grid" dim="2" count="3 4 1" spacing=".1 .12 .1"',
    ("square", 2): 'type="square" dim="3" count="3 4 1" spacing=".1 .12 .1"',
    ("disc", 2): 'type="disc" count="4 5 1" spacing=".1 .12 .1"',
    ("grid", 3): 'type="grid" dim="3" count="3 2 3" spacing=".1 .12 .1"',
    **{
        (kind, dim): f'type="{kind}" dim="{dim}" count="3 4 3" spacing=".1 .12 .11"'
        for kind in ("box", "cylinder", "ellipsoid")
        for dim in (2, 3)
    },
    ("mesh", 2): 'type="mesh" dim="2" file="plain.obj" scale="1 2 1.5"',
    ("mesh with texture", 2): 'type="mesh" dim="2" file="cube.obj" material="m"',
    ("mesh", 3): 'type="mesh" dim="3" file="plain.obj" origin=".05 .04 .06"',
    **{(f"gmsh {v}", dim): f'type="gmsh" file="{v[0]}{dim}.msh"' for v in ("2.2", "4.1") for dim in (2, 3)},
    ("gmsh 4.1", 1): 'type="gmsh" file="41.msh" scale="2 2 2"',
    **{
        ("direct", dim): f'type="direct" dim="{dim}" point="{" ".join(NODES)}" element="'
        + " ".join(str(vertex - 1) for cell in SIMPLICES[dim] for vertex in cell)
        + '"'
        for dim in (1, 2, 3)
    },
}
DOFS = ("full", "2d", "radial", "trilinear", "quadratic")
# what flexes are made of; {young} differs from model to model, for MuJoCo keeps stiffness by it
MATERIALS = {
    "edges": '<edge equality="true" solref=".01 1"/>',
    "vertices": '<edge equality="vert"/>',
    "strain": '<edge equality="strain"/>',
    "springs": '<edge stiffness="{young}" damping="1"/>',
    "solid": '<elasticity young="{young}" poisson=".2" damping=".01"/>',
    "stretch": '<elasticity young="{young}" poisson=".3" thickness=".02" elastic2d="stretch"/>',
    "bend": '<elasticity young="{young}" poisson=".1" thickness=".03" elastic2d="bend"/><edge equality="true"/>',
    "both": '<elasticity young="{young}" poisson=".2" thickness=".02" elastic2d="both" damping="1"/>',
}
# the body that carries a flex, and pins
PARENTS = {
    "world": "{flex}",
    "turned": '<body name="p" pos="1 2 3" euler="0 0 90">{flex}</body>',
    "free": '<body name="p" pos="0 0 1"><freejoint/><geom size=".05"/>{flex}</body>',
    "hinge": '<body name="p" pos="0 0 1" euler="10 20 30"><joint axis="0 1 1"/><geom size=".05"/>{flex}</body>',
}
PINS = ("", '<pin id="0 2"/>', '<pin range="0 1"/>')


class Case(NamedTuple):
    """A model by what it shows, and its XML."""

    name: str
    xml: str


def model(flexcomp: str, parent: str = "{flex}") -> str:
    """XML of a model with one flexcomp."""
    return f"""<mujoco><asset><material name="m"/></asset><worldbody><geom type="plane" size="1 1 1"/>
    {parent.replace("{flex}", flexcomp)}</worldbody></mujoco>"""


def cases() -> Iterator[Case]:
    """The table: type x dim x dof x material, parents and pins in turn."""
    turn = itertools.count()
    for (kind, dim), dof in itertools.product(WAYS, DOFS):
        for material in _fitting(dim, dof):
            number = next(turn)
            parent, pin = list(PARENTS)[number % len(PARENTS)], PINS[(number // 2) % len(PINS)]
            name = f"{kind} {dim} {dof} {material} {parent} {pin}"
            inside = MATERIALS[material].replace("{young}", str(1000 + number)) + (pin if material != "bend" else "")
            contact = '<contact selfcollide="none" internal="false"/>' if dof in ("trilinear", "quadratic") else ""
            cells = ' cellcount="2 1 1"' if number % 3 == 0 and kind.split()[0] in ("mesh", "gmsh", "direct") else ""
            flex = f'<flexcomp name="f" {WAYS[kind, dim]} dof="{dof}" radius=".01" mass="2" pos=".1 0 .2"{cells}>'
            yield Case(name, model(f"{flex}{contact}{inside}</flexcomp>", PARENTS[parent]))


def _fitting(dim: int, dof: str) -> list[str]:
    """Materials to try for a flex; of some MuJoCo refuses all."""
    if dof in ("trilinear", "quadratic"):
        return {1: ["solid"], 2: ["solid", "strain", "both"], 3: ["solid", "strain", "both"]}[dim]
    by_dim = {1: ["edges", "springs"], 2: ["edges", "vertices", "stretch", "bend", "both"], 3: ["edges", "solid"]}
    return by_dim[dim] if dof == "full" else by_dim[dim][:2]


def compiled(xml: str) -> Model:
    """Our model, whether or not it can be simulated."""
    return compile_all(mjcf.read(xml, FILES), refuse=False)


def verdict(xml: str) -> list[str]:
    """What differs between our compilation and the oracle's; both may refuse, and then nothing does."""
    try:
        theirs: Any = oracle.load_with_assets(xml, FILES)
    except ValueError as error:
        theirs = str(error)
    try:
        ours: Any = compiled(xml)
    except MjcfError as error:
        ours = str(error)
    if isinstance(theirs, str) or isinstance(ours, str):
        return [] if isinstance(theirs, str) and isinstance(ours, str) else [f"ours: {ours}", f"oracle: {theirs}"]
    return flex_differences(ours, theirs)


def flex_differences(ours: Model, theirs: Any) -> list[str]:
    """`differences`, but of strain constraints the sums of their modes' outer products."""
    same = dataclasses.replace(ours, flex_stiffness=_projected(theirs, ours.flex_stiffness))
    found = differences(same, theirs, skip={"flex_stiffness"})
    mine, its = np.asarray(same.flex_stiffness), _projected(theirs, theirs.flex_stiffness)
    if mine.shape != its.shape or np.abs(mine - its).max(initial=0) > 1e-6 * np.abs(its).max(initial=1e-12):
        found.append("flex_stiffness")
    return found


def _projected(mjmodel: Any, stiffness: Any) -> np.ndarray:
    values = np.array(stiffness, float)
    for flex in np.flatnonzero((mjmodel.flex_interp != 0) & (mjmodel.flex_edgeequality == 3)):
        order, (x, y, z) = int(mjmodel.flex_interp[flex]), mjmodel.flex_cellnum[flex]
        cells, dim = (x * y * z, 3) if order > 0 else (2 * (y * z + x * z + x * y), 2)
        size = 3 * (abs(order) + 1) ** dim
        for cell in range(cells):
            first = mjmodel.flex_stiffnessadr[flex] + cell * size * size
            modes = values[first + 1 : first + 1 + int(values[first]) * size].reshape(-1, size)
            values[first : first + size * size] = (modes.T @ modes).ravel()
    return values
