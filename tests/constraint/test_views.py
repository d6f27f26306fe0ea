"""The rows as MuJoCo lists them, field by field, in its order."""

import copy
from typing import Any

import numpy as np
import pytest
from oracle import assert_close, at_rest, load_pair, mujoco, state_of

import diffsim
from diffsim.base.enums import Cone, ConstraintType, DisableBit
from diffsim.compiler.host.interpret import interpret
from diffsim.constraint.views import efc_rows
from diffsim.solver import solve
from diffsim.support import contacts, efc
from tests.constraint.cases import CASES, Case, cases
from tests.constraint.feed import oracle_jacobian
from tests.uncompiled import uncompiled

EXACT = ("efc_type", "efc_state")
CLOSE = ("efc_pos", "efc_margin", "efc_frictionloss", "efc_D", "efc_vel", "efc_aref")


@uncompiled
def rows_at_solution(model, contacts, problem):
    return efc_rows(model, contacts, problem[3], solve(model, *problem))


def without_islands(case: Case) -> Any:
    """The oracle's data of a case, solved in one piece: island by island it does not update efc_state."""
    mjmodel, data = copy.copy(case.mjmodel), copy.copy(case.data)
    mjmodel.opt.disableflags |= int(DisableBit.ISLAND)
    mujoco.mj_forward(mjmodel, data)
    return data


@pytest.mark.parametrize(("path", "cone"), [*CASES[:5], CASES[8]])
def test_rows_are_listed_as_in_the_oracle(path: str, cone: Cone) -> None:
    seen = 0
    for case in cases(path, cone):
        rows, data = rows_at_solution(case.model, case.fed.contacts, case.problem), without_islands(case)
        count = data.nefc
        assert rows.nefc == count
        seen += count
        for name in EXACT:
            np.testing.assert_array_equal(getattr(rows, name)[:count], getattr(data, name), name)
        ids = np.array(data.efc_id)
        touching = data.efc_type >= ConstraintType.CONTACT_FRICTIONLESS
        ids[touching] = [case.fed.slots[i] for i in ids[touching]]
        np.testing.assert_array_equal(rows.efc_id[:count], ids)
        assert_close("efc_J", rows.efc_J[:count], oracle_jacobian(case.model.nv, data), 1e-11)
        for name in CLOSE:
            assert_close(name, getattr(rows, name)[:count], getattr(data, name), 1e-11, rtol=1e-11)
        assert_close("efc_force", rows.efc_force[:count], data.efc_force, 1e-7, rtol=1e-7)
        assert np.all(rows.efc_type[count:] == -1) and not np.any(rows.efc_J[count:])
    assert seen > 0


UNMOVED = """<mujoco><option jacobian="{layout}"/><worldbody>
  <geom type="plane" size="1 1 1" condim="1"/>
  <body pos="0 0 .09"><joint name="x" type="slide" axis="1 0 0" range="1 2"/><geom name="a" size=".1" condim="1"/>
    <body name="b" pos=".15 0 0"><geom name="b" size=".1"/></body></body>
  <body name="post" pos="0 1 0"><geom size=".1"/></body>
</worldbody>
<contact><pair geom1="a" geom2="b" condim="3"/></contact>
<equality><connect body1="post" anchor="0 0 .3"/><joint joint1="x" polycoef=".5"/></equality></mujoco>"""


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_what_nothing_moves_is_listed_as_in_the_oracle(layout: str) -> None:
    """An equality without a Jacobian is left out, a contact is listed; the oracle's layouts differ on the pair."""
    mjmodel = mujoco.MjModel.from_xml_string(UNMOVED.format(layout=layout))
    data = mujoco.MjData(mjmodel)
    mujoco.mj_forward(mjmodel, data)
    model = diffsim.load(UNMOVED.format(layout=layout))
    rows = interpret(lambda state: efc(model, diffsim.forward(model, state)), diffsim.make_state(model))
    assert rows.nefc == data.nefc
    np.testing.assert_array_equal(rows.efc_type[: data.nefc], data.efc_type)
    assert_close("efc_force", rows.efc_force[: data.nefc], data.efc_force, 1e-7, rtol=1e-7)


LISTED = """<mujoco><option jacobian="{layout}"/><worldbody><geom name="floor" type="plane" size="5 5 1"/>
  <body pos="0 0 .09"><freejoint/><geom size=".1" condim="4"/><geom type="box" size=".1 .1 .1" pos=".3 0 .005"/></body>
  <body pos="1 0 .11"><freejoint/><geom size=".1" margin=".02" gap=".015" condim="6"/></body>
  <body mocap="true" pos="2 0 .09"><geom size=".1"/></body>
  <body pos="2 0 .25"><joint type="slide" axis="0 0 1" limited="true" range=".1 1"/><geom size=".1" condim="1"/></body>
  <body pos="0 .18 .09"><freejoint/><geom size=".1" condim="1"/></body></worldbody></mujoco>"""


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_contacts_are_listed_as_in_the_oracle(layout: str) -> None:
    model, mjmodel = load_pair(LISTED.format(layout=layout))
    data = at_rest(mjmodel)
    ours = interpret(lambda state: contacts(model, diffsim.forward(model, state)), state_of(data))
    assert ours.ncon == data.ncon > 8 and set(data.contact.exclude) == {0, 1}
    for name in ("dim", "geom", "exclude", "efc_address"):
        np.testing.assert_array_equal(getattr(ours, name)[: data.ncon], getattr(data.contact, name), name)
    for name in ("dist", "pos", "includemargin", "friction", "solref", "solimp"):
        assert_close(name, getattr(ours, name)[: data.ncon], getattr(data.contact, name), 1e-12)
    assert np.all(ours.geom[data.ncon :] == -1) and not np.any(ours.exclude[data.ncon :])
