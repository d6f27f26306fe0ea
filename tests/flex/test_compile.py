"""Flexes and skins compile as by MuJoCo: a small selection; the whole table is `make measure WHAT=flex`."""

import jax
import numpy as np
import oracle
import pytest
from derivatives import richardson
from flex.table import cases, compiled, model, verdict
from uncompiled import uncompiled

import diffsim
from diffsim import mjcf
from diffsim.base.errors import MjcfError
from diffsim.compiler.convert import from_mujoco
from diffsim.simulate.constants import constants

# every eleventh model of the table, so that each type, dof and material comes
SELECTED = list(cases())[::23]

GRID = '<flexcomp name="f" type="grid" dim="2" count="3 3 1" spacing=".1 .1 .1" radius=".01" {}>{}</flexcomp>'
WRONG = {
    "parent without name": (
        model(GRID.format("", ""), "<body>{flex}</body>"),
        "needs attribute 'name'",
    ),
    "dim": (model(GRID.replace('dim="2"', 'dim="4"').format("", "")), "must be 1, 2 or 3, not 4"),
    "too close": (model(GRID.replace('radius=".01"', 'radius=".06"').format("", "")), "must be at least 2"),
    "pin": (model(GRID.format("", '<pin id="9"/>')), "out of range"),
    "pins come in pairs": (model(GRID.format("", '<pin range="1 2 3"/>')), "multiple of 2, 3 given"),
    "elements of a wrong length": (
        model('<flexcomp name="f" type="direct" dim="3" point="0 0 0" element="0 1 2"/>'),
        "multiple of 4, 3 given",
    ),
    "no cells along an axis": (
        "<mujoco><worldbody><body name='b0'/><body name='b1'/><body name='b2'/><body name='b3'/></worldbody>"
        "<deformable><flex cellcount='2 2 0' dof='trilinear' dim='3' body='b0 b1 b2 b3' element='0 1 2 3'>"
        "<contact selfcollide='none'/></flex></deformable></mujoco>",
        "cellcount",
    ),
    "mass": (model(GRID.format('mass="0"', "")), "must be positive"),
    "young and equality": (
        model(GRID.format("", '<edge equality="true"/><elasticity young="1"/>')),
        "cannot both be given",
    ),
    "poisson": (
        model(GRID.format("", '<elasticity young="1" poisson=".5" thickness=".1" elastic2d="stretch"/>')),
        "'poisson': must be at least 0",
    ),
    "pinned bending": (
        model(GRID.format("", '<pin id="0"/><elasticity young="1" thickness=".1" elastic2d="bend"/>')),
        "bending does not support pins",
    ),
    "a file that is not there": (model('<flexcomp name="f" type="mesh" file="none.obj"/>'), "does not exist"),
    "an element of a flex": (
        "<mujoco><worldbody><body name='b'/></worldbody><deformable>"
        "<flex body='b' dim='2' vertex='0 0 0 1 0 0 0 1 0' element='0 1 3'/></deformable></mujoco>",
        "a vertex does not exist",
    ),
    "weights of a skin": (
        "<mujoco><worldbody><body name='b'/></worldbody><deformable><skin vertex='0 0 0 1 0 0 0 1 0' face='0 1 2'>"
        "<bone body='b' bindpos='0 0 0' bindquat='1 0 0 0' vertid='0 1' vertweight='1 1'/></skin></deformable>"
        "</mujoco>",
        "weights of vertex 2 must sum to more than zero",
    ),
}


@pytest.mark.parametrize("case", SELECTED, ids=lambda case: case.name)
def test_compiled_as_by_the_oracle(case) -> None:
    assert verdict(case.xml) == []


@pytest.mark.parametrize("kind", ['dim="2" count="7 6 1"', 'dim="3" count="4 4 3"', 'dim="1" count="9 1 1"'])
def test_elements_are_searched_in_the_order_of_the_oracles_tree(kind: str) -> None:
    xml = model(GRID.replace('dim="2" count="3 3 1"', kind).format('euler="10 20 30"', ""))
    ours, theirs = compiled(xml), from_mujoco(oracle.load_with_assets(xml, {}))
    np.testing.assert_array_equal(ours.topology.flex_elemorder, theirs.topology.flex_elemorder)


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    xml, message = WRONG[name]
    with pytest.raises(MjcfError, match=message):
        compiled(xml)
    with pytest.raises(ValueError):
        oracle.load_with_assets(xml, {})


def test_what_is_simulated_is_compiled() -> None:
    made = diffsim.compile(mjcf.read(model(GRID.format("", '<contact selfcollide="none"/><edge equality="true"/>'))))
    assert made.nflexvert == 9 and made.flex("f").name == "f"


SOLID = '<flexcomp name="f" type="{}" count="2 2 2" dim="3" spacing=".1 .1 .1" dof="{}">{}</flexcomp>'
APART, FIRM = '<contact selfcollide="none"/>', '<elasticity young="1000" poisson=".3" {}/>'
SHEET = 'thickness=".02" elastic2d="both"'
MATERIAL = {
    "surface": GRID.format("", FIRM.format(SHEET)),
    "solid": SOLID.format("grid", "full", FIRM.format("")),
    "cells": SOLID.format("grid", "quadratic", APART + FIRM.format("")),
    "shell": SOLID.format("box", "trilinear", APART + FIRM.format(SHEET)),
}
derived = uncompiled(constants)


@pytest.mark.parametrize("kind", MATERIAL)
def test_derivatives_by_material_and_rest_shape(kind: str) -> None:
    """Stiffness, bending and lengths by Young's modulus, Poisson's ratio, thickness and the places of vertices."""
    base = compiled(model(MATERIAL[kind]))
    rng = np.random.default_rng(0)
    shift = rng.standard_normal(np.shape(base.body_pos)) * (np.asarray(base.body_dofnum) > 0)[:, None]
    # the ends of a box are on several vertices of a grid: there its sizes have no derivative
    base = base.replace(body_pos=base.body_pos + (0.0 if base.flex_interp[0] else 0.01) * shift[::-1])
    if base.flex_interp[0]:
        # the grid of cells stays a box
        shift = np.asarray(base.body_pos) * rng.standard_normal(3)

    def loss(change: jax.Array) -> jax.Array:
        changed = base.replace(
            flex_young=base.flex_young * (1 + change[0]),
            flex_poisson=base.flex_poisson + change[1],
            flex_thickness=base.flex_thickness * (1 + change[2]),
            body_pos=base.body_pos + change[3] * shift,
        )
        found = constants(changed)
        weights = np.random.default_rng(1)
        total = 0.0
        for name in ("flex_stiffness", "flex_bending", "flexedge_length0", "flex_size", "flex_vert0"):
            values = found[name]
            scale = max(float(np.abs(np.asarray(getattr(base, name))).max(initial=0)), 1e-12)
            total = total + (values * weights.standard_normal(values.shape)).sum() / scale
        return total

    value, gradient = uncompiled(loss), uncompiled(jax.grad(loss))(np.zeros(4))
    assert np.isfinite(gradient).all()
    for axis in range(4):
        unit = np.eye(4)[axis]
        expected = float(richardson(value, unit, 1e-4))
        assert abs(gradient[axis] - expected) <= 1e-6 * max(1.0, abs(expected))
