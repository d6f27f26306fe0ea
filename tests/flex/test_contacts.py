"""Contacts of flexes with geoms: where they are, what they have, which stay of too many, and what they exert."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracle import mujoco, state_of
from wide import WIDE, wide

import diffsim
from tests.flex.hills import FIELD, FILE, HILLS
from tests.flex.models import check_slopes, flexcomp, moved, pair, velocity_along
from tests.uncompiled import uncompiled

PLANE = '<geom type="plane" size="1 1 .1" friction=".7"/>'
CONTACT, PASSIVE = (f'<contact selfcollide="none" internal="false" {a}/>' for a in ("", 'passive="true"'))
EDGES = '<edge equality="true"/>'
# searches of the oracle's end near 1e-9
CCD = 'ccd_tolerance="1e-13" ccd_iterations="1000"'


def geom(kind: str, size: str, pos: str = "0 0 -1.05", euler: str = "10 80 0", more: str = "") -> str:
    """A body that falls, 1 m below the flex."""
    return (
        f'<body pos="0 0 2"><freejoint/><geom type="{kind}" size="{size}" pos="{pos}" euler="{euler}" {more}/></body>'
    )


def scene(world: str, count: str = "6 6 1", dim: int = 2, option: str = "", contact: str = CONTACT) -> str:
    """A flex that touches."""
    return flexcomp(contact + EDGES, count, dim, option + CCD, world, turned="")


SCENES = {
    "plane": scene(PLANE.replace("/>", ' pos="0 0 .99"/>'), "4 4 1"),
    "plane, more than 50": scene(PLANE.replace("/>", ' pos="0 0 .993"/>'), "9 9 1"),
    "plane, elliptic cones of dimension 6": scene(
        PLANE.replace("/>", ' pos="0 0 .99" condim="6"/>'), "4 4 1", option='cone="elliptic" '
    ),
    "springs": scene(PLANE.replace("/>", ' pos="0 0 .99" margin=".005"/>'), "4 4 1", contact=PASSIVE),
    "sphere and triangles": scene(geom("sphere", ".1", "0 0 -1.1", more='condim="4"')),
    "capsule and triangles": scene(geom("capsule", ".05 .1")),
    "box and triangles": scene(geom("box", ".06 .07 .05", euler="10 8 0")),
    "box and triangles, more than 50": scene(geom("box", ".2 .2 .05", "0 0 -1.055", "0 0 20"), "7 7 1"),
    "cylinder and triangles": scene(geom("cylinder", ".06 .07")),
    "sphere and segments": scene(geom("sphere", ".1", "0 0 -1.1"), "7 1 1", 1),
    "box and segments": scene(geom("box", ".06 .07 .05", euler="10 8 0"), "7 1 1", 1),
    "ellipsoid and segments": scene(geom("ellipsoid", ".06 .07 .05"), "7 1 1", 1),
    "cylinder and solid": scene(geom("cylinder", ".06 .07", "0 0 -1.1", "10 8 0"), "3 3 3", 3),
    "box and solid": scene(geom("box", ".06 .07 .05", "0 0 -1.1", "10 8 0"), "3 3 3", 3),
}
NEAR, INSIDE = (
    f'<contact selfcollide="{n}" internal="{i}" condim="3"/>' for n, i in (("narrow", "false"), ("none", "true"))
)
SHAKEN = {"a rope within itself": 0.05, "a cloth within itself": 0.04, "a solid within itself": 0.012}
SHAKEN |= {"a cloth and itself": 0.015, "a solid and itself": 0.015}
SCENES |= {
    "a rope within itself": scene("", "8 1 1", 1, contact=INSIDE),
    "a cloth within itself": scene("", "4 4 1", contact=INSIDE),
    "a solid within itself": scene("", "3 2 2", 3, contact=INSIDE),
    "a cloth and itself": scene("", "6 6 1", contact=NEAR),
    "a solid and itself": scene("", "3 3 2", 3, contact=NEAR),
    "two flexes": scene(
        f"""<flexcomp name="d" type="grid" count="4 1 1" spacing=".05 .05 .05" dim="1" radius=".01" pos="0 0 1.01">
        {CONTACT}{EDGES}</flexcomp>""",
        "4 4 1",
    ),
}
EXTENSION = """<extension><plugin plugin="mujoco.sdf.torus"><instance name="t"><config key="radius1" value=".12"/>
  <config key="radius2" value=".05"/></instance></plugin></extension>"""
RING = '<asset><mesh name="torus"><plugin instance="t"/></mesh></asset>'
TORUS = """<body pos="0 0 .96" euler="5 3 0"><freejoint/>
  <geom type="sdf" mesh="torus" mass="1"><plugin instance="t"/></geom></body>"""


def with_assets(text: str, assets: str) -> str:
    """A scene with other sections."""
    return text.replace("<worldbody>", f"{assets}<worldbody>", 1)


SCENES |= {
    "hills and triangles": with_assets(scene(HILLS.format(0.93)), FIELD),
    "hills and segments": with_assets(scene(HILLS.format(0.965), "6 1 1", 1), FIELD),
    "hills and solid": with_assets(scene(HILLS.format(0.9), "3 3 3", 3), FIELD),
    "torus and triangles": with_assets(scene(TORUS, "7 7 1", option='sdf_initpoints="4" '), EXTENSION + RING),
}
# of which the oracle's contacts are kept
KEPT = json.loads(FILE.read_text()) if FILE.exists() else {}
# whose closest points the oracle searches for: position and frame are known to less than the distance
SEARCHED = ("cylinder and triangles", "cylinder and solid", "ellipsoid and segments", "box and solid")
SEARCHED += ("hills and triangles", "hills and segments", "hills and solid")
SEARCHED += ("a cloth and itself", "a solid and itself", "two flexes")


def listed(contact, which) -> dict[tuple, list[int]]:
    """Numbers of some contacts by geom, flexes, elements and vertices."""
    found: dict[tuple, list[int]] = {}
    columns = [np.asarray(ids)[which] for ids in (contact.geom, contact.flex, contact.elem, contact.vert)]
    for number, key in enumerate(np.concatenate(columns, axis=1).tolist()):
        found.setdefault(tuple(key), []).append(number)
    return found


def contacts_alone(model, state):
    """What needs no solver."""
    return diffsim.forward(model, state).contact


# others of the same kind
MORE = ("capsule and triangles", "cylinder and solid", "box and segments", "hills and segments", "hills and solid")
MORE += ("a solid and itself", "box and triangles, more than 50")


@pytest.mark.parametrize("name", [name for name in SCENES if name not in MORE or WIDE])
def test_contacts_and_accelerations_are_the_oracles(name):
    model, mjmodel = pair(SCENES[name])
    hills = "hills" in name
    data = moved(mjmodel, seed=1, spread=SHAKEN.get(name, 4e-3), evaluated=not hills)
    their = SimpleNamespace(**{k: np.array(v) for k, v in KEPT[name].items()}) if hills else data.contact
    searched = name in SEARCHED
    found = uncompiled(contacts_alone if searched else diffsim.forward)(model, state_of(data))
    contact = found if searched else found.contact
    there = np.flatnonzero((contact.dist <= contact.margin) & (contact.flex[:, 1] >= 0))
    ours, theirs = listed(contact, there), listed(their, np.arange(len(their.dist)))
    assert len(their.dist) and {k: len(v) for k, v in ours.items()} == {k: len(v) for k, v in theirs.items()}
    place = np.concatenate([there[ours[key]] for key in theirs])
    order = np.concatenate(list(theirs.values()))
    close = {"dist": 1e-9, "pos": 1e-5, "frame": 1e-4} if searched else {"dist": 1e-13, "pos": 1e-13, "frame": 1e-12}
    close |= {} if hills else dict.fromkeys(("includemargin", "friction", "solref", "solimp"), 1e-15)
    for field, tolerance in close.items():
        mine = np.asarray(getattr(contact, field))[place]
        assert np.max(np.abs(mine - getattr(their, field)[order].reshape(mine.shape))) <= tolerance, field
    if not searched:
        for field in ("qfrc_spring", "qacc", "qfrc_constraint", "cfrc_ext"):
            mine, theirs_of_field = np.asarray(getattr(found, field)), getattr(data, field)
            assert np.max(np.abs(mine - theirs_of_field)) <= 1e-9 * max(1, np.max(np.abs(theirs_of_field))), field


@pytest.mark.parametrize(("name", "count", "smaller"), [("plane, more than 50", 9, 8), ("a cloth and itself", 6, 4)])
def test_a_step_in_contact_has_its_derivative(name, count, smaller):
    """jvp and vjp of a step of free vertices equal Richardson differences, by state, masses, friction and radius."""
    xml = SCENES[name].replace(EDGES, "").replace(f"{count} {count} 1", f"{smaller} {smaller} 1")
    model, mjmodel = pair(xml)
    data = moved(mjmodel, seed=1, spread=SHAKEN.get(name, 4e-3))
    state = state_of(data)
    assert data.ncon >= 2
    rng = np.random.default_rng(3)
    names = ("body_mass", "flex_friction", "flex_radius", "flex_solref")
    change = {field: 0.01 * rng.normal(size=getattr(model, field).shape) * getattr(model, field) for field in names}
    push, weight = rng.normal(size=(2, mjmodel.nv))
    turn = np.zeros(mjmodel.nq)
    slides = mjmodel.jnt_qposadr[mjmodel.jnt_type == mujoco.mjtJoint.mjJNT_SLIDE]
    turn[slides] = 1e-3 * rng.normal(size=len(slides))
    check_slopes(velocity_along(model, state, change, push, turn), weight, 2e-5, 1e-8)


FEWER = {
    "hills and triangles": with_assets(scene(HILLS.format(0.97), "3 3 1"), FIELD),
    "torus and triangles": with_assets(scene(TORUS, "5 5 1", option='sdf_initpoints="4" '), EXTENSION + RING),
    "box and solid": scene(geom("box", ".06 .07 .05", "0 0 -1.08", "10 8 0"), "2 2 2", 3),
}


@pytest.mark.parametrize("name", ["hills and triangles", *wide(["torus and triangles", "box and solid"])])
def test_contacts_that_are_searched_have_their_derivative(name):
    """jvp and vjp of distances, positions and frames equal Richardson differences, by all positions."""
    model, mjmodel = pair(FEWER[name])
    state, rng = state_of(moved(mjmodel, seed=1, spread=4e-3, evaluated=False)), np.random.default_rng(3)
    turn = 1e-3 * rng.normal(size=mjmodel.nq)
    contact = uncompiled(contacts_alone)(model, state)
    there = np.flatnonzero((contact.dist <= contact.margin) & (contact.flex[:, 1] >= 0))
    assert len(there) >= 2

    def places(t):
        near = contacts_alone(model, state.replace(qpos=state.qpos + t * turn))
        parts = (near.dist[there], near.pos[there].ravel(), near.frame[there].ravel())
        return jnp.concatenate(parts)

    check_slopes(places, rng.normal(size=13 * len(there)), 2e-5, 1e-8)


def test_in_float32_a_contact_that_no_joint_can_undo_leaves_the_rest_to_be_solved():
    """A column that turns upright stands in the floor: its contact weighs 1e14, the cloth beside it is held."""
    column = '<body pos="-.8 0 .95"><joint axis="0 0 1" armature="1"/><geom type="capsule" size=".07 .1"/></body>'
    model, mjmodel = pair(scene(PLANE.replace("/>", ' pos="0 0 .99"/>') + column, "6 6 1", option='timestep=".001" '))
    data = moved(mjmodel)
    single = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), (model, state_of(data)))
    found = uncompiled(diffsim.forward)(*single)
    assert found.qacc.dtype == np.float32 and data.efc_D.max() > 1e12 and found.solver_niter > 0
    assert np.max(np.abs(found.qacc - data.qacc)) < 1e-4 * np.max(np.abs(data.qacc))
