"""Interpolated flexes: nodes, cells, shells and strain constraints, and their implicit treatment, are the oracle's."""

import numpy as np
import pytest
from flex.models import NO_CONTACT, check_slopes, moved, pair, velocity_along
from oracle import mujoco, state_of
from uncompiled import uncompiled

import diffsim
from diffsim.math.polar import polar_rotation

CONTACT = '<contact selfcollide="none" internal="false"/>'
SOLID = '<elasticity young="5e3" poisson=".3" damping=".02"/>'
SHELL = '<elasticity young="5e4" poisson=".3" damping=".02" thickness=".01" elastic2d="both"/>'
STRAIN = '<edge equality="strain"/>'
PLANE = '<geom type="plane" size="1 1 .1" pos="0 0 .93"/>'
CARRIER = '<freejoint/><geom size=".02" contype="0" conaffinity="0"/>'


def scene(order: str, inside: str, integrator: str = "implicitfast", world: str = "", carrier: str = "", kind="grid"):
    """A turned solid of 3 x 3 x 3 vertices, or a box with sides of 3 x 3."""
    return f"""<mujoco><option tolerance="0" iterations="200" integrator="{integrator}"/><worldbody>{world}
      <body name="b" pos="0 0 1" euler="10 20 30">{carrier}
      <flexcomp name="c" type="{kind}" count="3 3 3" spacing=".05 .06 .07" dim="3" mass="1" radius=".01" dof="{order}">
      {inside}</flexcomp></body></worldbody></mujoco>"""


# a mesh of 13 vertices in 2 x 1 x 1 cells
TETS = "0 1 2 8 1 3 2 8 4 6 5 8 5 6 7 8 0 4 1 8 1 4 5 8 2 3 6 8 3 7 6 8 0 2 4 8 2 6 4 8 1 5 3 8 3 5 7 8"
CORNERS = " ".join(f"{x} {y} {z}" for z in (0, 0.2) for y in (0, 0.1) for x in (0, 0.3))
CELLS = f"""<mujoco><option tolerance="0" iterations="200" integrator="implicitfast"/><worldbody>
  <geom type="plane" size="1 1 .1" pos="0 0 .01"/>
  <flexcomp name="c" type="direct" dim="3" mass="1" radius=".02" dof="trilinear" cellcount="2 1 1"
   point="{CORNERS} .1 .04 .1" element="{TETS}">{CONTACT}{SOLID}</flexcomp></worldbody></mujoco>"""
SCENES = {
    "on the floor": scene("trilinear", CONTACT + SOLID, world=PLANE),
    "quadratic": scene("quadratic", NO_CONTACT + SOLID, "implicit"),
    "on a body that moves": scene("trilinear", NO_CONTACT + SOLID + '<pin id="0 1"/>', carrier=CARRIER),
    "a shell on the floor": scene("trilinear", CONTACT + SHELL, "Euler", PLANE, kind="box"),
    "strain on the floor": scene("trilinear", CONTACT + STRAIN, world=PLANE),
    "cells on the floor": CELLS,
}
# relative to the largest number of the oracle's, whose search for rotations ends near 1e-9
CLOSE = {"flexvert_xpos": 1e-12, "qfrc_spring": 1e-8, "qfrc_damper": 1e-8, "qfrc_constraint": 1e-8, "qacc": 1e-8}


@pytest.mark.parametrize("name", SCENES)
def test_forces_and_a_step_are_the_oracles(name: str) -> None:
    model, mjmodel = pair(SCENES[name])
    data = moved(mjmodel, spread=4e-3)
    state = state_of(data)
    found = uncompiled(diffsim.forward)(model, state)
    assert bool(data.ncon) == ("floor" in name)
    for field, tolerance in CLOSE.items():
        theirs = getattr(data, field).reshape(np.shape(getattr(found, field)))
        difference = np.abs(np.asarray(getattr(found, field)) - theirs)
        assert np.max(difference, initial=0) <= tolerance * max(np.max(np.abs(theirs), initial=0), 1e-3), field
    later = uncompiled(diffsim.step)(model, state)
    mujoco.mj_step(mjmodel, data)
    assert np.max(np.abs(later.qvel - data.qvel)) <= 1e-8 * np.max(np.abs(data.qvel))


@pytest.mark.parametrize("name", ["on the floor", "a shell on the floor", "strain on the floor"])
def test_a_step_has_its_derivative(name: str) -> None:
    """By state, masses, stiffness, damping, and the rest shape of nodes and vertices."""
    model, mjmodel = pair(SCENES[name])
    state = state_of(moved(mjmodel, spread=4e-3))
    rng = np.random.default_rng(3)
    names = ("body_mass", "flex_stiffness", "flex_damping", "flex_node0", "flex_vert0", "flex_bending")
    change = {field: 0.01 * rng.normal() * getattr(model, field) for field in names if getattr(model, field).size}
    push, turn, weight = rng.normal(size=(3, mjmodel.nv))
    check_slopes(velocity_along(model, state, change, push, 1e-3 * turn), weight, 2e-5, 1e-8)


def test_rotations_of_what_is_flat_or_inside_out_are_finite() -> None:
    """The identity, and no derivative, where no rotation is nearest; else the nearest, also inside out."""
    rng = np.random.default_rng(0)
    matrix = np.stack([np.zeros((3, 3)), np.diag([1.0, 0, 0]), np.diag([1.0, 1, -1]), *rng.normal(size=(40, 3, 3))])
    left, _, right = np.linalg.svd(matrix)
    nearest = left @ np.eye(3)[None] * np.array([1, 1, 1.0])
    nearest[:, :, 2] *= np.linalg.det(left @ right)[:, None]
    found = np.asarray(uncompiled(polar_rotation)(matrix))
    np.testing.assert_array_equal(found[:3], np.broadcast_to(np.eye(3), (3, 3, 3)))
    np.testing.assert_allclose(found[3:], (nearest @ right)[3:], atol=1e-10)
    weight = rng.normal(size=matrix.shape)

    def slope(t):
        return polar_rotation(matrix + t * weight)[3:].reshape(-1)

    check_slopes(slope, rng.normal(size=9 * 40), 1e-5, 1e-9)
