"""The oracle's finished data as the input of our sensors."""

from typing import Any

import numpy as np
from oracle import contact_forces_of, field_of, inputs_of, load_pair, record_of, state_of
from ray_scenes import GEOMS, xml

from diffsim.collision import slots_of
from diffsim.constraint import Sources, make_constraints
from diffsim.sensor import read_sensors
from diffsim.solver.objective import row_forces
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.data import (
    Actuation,
    BodyForces,
    ComFrame,
    Contacts,
    Energy,
    Kinematics,
    SubtreeVelocities,
    Tendons,
    Transmission,
    Velocities,
)
from tests.uncompiled import uncompiled

RECORDS = (Kinematics, ComFrame, Tendons, Transmission, Velocities, SubtreeVelocities, Actuation, BodyForces, Energy)
FAR = 1e10

# rangefinders on every type of geom, by a site and through a camera
SITES = "".join(f"<site name='{k}' pos='{k} -2 1' euler='{60 + 9 * k} 0 {9 * k}'/>" for k in range(3))
RANGES = xml(
    tuple(GEOMS),
    in_world=SITES + "<camera name='eye' pos='0 -3 2' xyaxes='1 0 0 0 .5 1' resolution='9 7' fovy='60'/>",
    after="""<sensor><rangefinder site='0' data='dist point normal'/><rangefinder site='1'/><rangefinder site='2'/>
      <rangefinder camera='eye' data='dist normal depth'/></sensor>""",
)

# limits of every kind, active on both sides in the course of a simulation, without contacts
LIMITS = """<mujoco><option gravity='3 2 -9.8'/><default><geom contype='0' conaffinity='0'/></default><worldbody>
  <body><joint name='ball' type='ball' range='0 20' limited='true'/><geom size='.1' pos='.3 0 0'/>
    <body pos='.3 0 0'><joint name='hinge' axis='0 1 0' range='-5 5' limited='true' margin='.05'/>
      <geom size='.1' pos='.3 .1 0'/>
      <body pos='.3 0 0'><joint name='slide' type='slide' axis='1 0 0' range='-.02 .01' limited='true'/>
        <geom size='.1' pos='.3 .1 0'/>
        <body pos='.3 0 0'><joint name='loose' axis='0 0 1'/><geom size='.1' pos='.2 .1 0'/></body></body></body></body>
  </worldbody>
  <tendon><fixed name='free'><joint joint='hinge' coef='1'/></fixed>
    <fixed name='tight' range='-.02 .03' limited='true'><joint joint='hinge' coef='.3'/><joint joint='slide' coef='1'/>
    </fixed></tendon>
  <sensor><jointlimitfrc joint='ball'/><jointlimitfrc joint='slide'/>
    <jointlimitfrc joint='hinge'/><tendonlimitfrc tendon='tight'/>
    <jointlimitpos joint='hinge'/><jointlimitvel joint='slide'/><tendonlimitpos tendon='tight'/>
    <tendonlimitvel tendon='tight'/></sensor></mujoco>"""

# distances of round and of boxy shapes, in both orders and between bodies; the convex pairs take long to compile
BODIES = "".join(
    f"<body pos='{x} {y} {z}' euler='{90 * x + 20} {70 * z} {80 * y + 10}'><freejoint/>"
    f"<geom name='{name}' type='{kind}' size='{size}'/></body>"
    for name, kind, size, x, y, z in (
        ("sphere", "sphere", ".1", 0, 0, 0.3),
        ("capsule", "capsule", ".06 .1", 0.2, 0, 0.3),
        ("rod", "capsule", ".05 .2", 0.1, 0.1, 0.3),
        ("box", "box", ".1 .08 .12", 0.2, 0.15, 0.35),
        ("brick", "box", ".1 .2 .05", -0.2, 0.3, 0.4),
        ("cylinder", "cylinder", ".08 .12", -0.1, -0.1, 0.5),
    )
)
PAIRS = ("sphere rod", "rod capsule", "sphere box", "box rod", "cylinder sphere", "box brick", "cylinder box")
DISTANCES = f"""<mujoco><option ccd_tolerance='1e-13' ccd_iterations='200'/><default><geom contype='0' conaffinity='0'/>
  </default><worldbody><geom name='floor' type='plane' size='5 5 .1'/>{BODIES}
  <body name='two' pos='0 0 .8'><freejoint/><geom size='.1'/><geom type='capsule' size='.1 .1' pos='.3 0 0'/></body>
  </worldbody><sensor>
  {"".join("<distance geom1='{}' geom2='{}' cutoff='9'/>".format(*pair.split()) for pair in PAIRS)}
  {"".join("<fromto geom1='{}' geom2='{}' cutoff='9'/>".format(*pair.split()) for pair in PAIRS)}
  <normal geom1='sphere' geom2='floor' cutoff='9'/><normal geom1='rod' geom2='sphere' cutoff='9'/>
  <distance geom1='cylinder' geom2='floor' cutoff='9'/><distance geom1='floor' geom2='box' cutoff='9'/>
  <distance geom1='sphere' geom2='floor' cutoff='.01'/><fromto geom1='sphere' geom2='floor' cutoff='.01'/>
  <distance body1='two' body2='world' cutoff='2'/><fromto body1='two' geom2='capsule' cutoff='2'/>
  </sensor></mujoco>"""

evaluate, constrain = uncompiled(read_sensors), uncompiled(make_constraints)


def contacts_of(mjdata: Any, slots: int) -> Contacts:
    """The oracle's contacts, in its order, followed by unused slots."""
    count = mjdata.ncon
    assert count <= slots

    def padded(values: Any, fill: float, dtype: type = float) -> np.ndarray:
        values = np.array(values, dtype)
        rest = np.full((slots - count, *values.shape[1:]), fill, dtype)
        return np.concatenate([values, rest])

    contact = mjdata.contact
    return Contacts(
        dist=padded(contact.dist, FAR),
        pos=padded(contact.pos, 0),
        frame=padded(np.array(contact.frame).reshape(-1, 3, 3), 0),
        # how wide the gap is, the oracle does not keep
        margin=padded(np.maximum(contact.includemargin, contact.dist), 0),
        includemargin=padded(contact.includemargin, 0),
        friction=padded(contact.friction, 0),
        solref=padded(contact.solref, 0),
        solreffriction=padded(contact.solreffriction, 0),
        solimp=padded(contact.solimp, 0),
        geom=padded(contact.geom, -1, np.int32),
        **{name: padded(getattr(contact, name), -1, np.int32) for name in ("flex", "elem", "vert")},
        sort_key=np.arange(slots, dtype=np.int32),
        ncon_dropped=np.int32(0),
    )


def readings_of(path: str, mjdata: Any, slots: int = 24) -> tuple[Model, State, Inputs, Data, np.ndarray]:
    """The arguments of `read_sensors`, all from the oracle."""
    model, mjmodel = load_pair(path)
    state, inputs = state_of(mjdata), inputs_of(mjdata)
    parts = {cls: record_of(cls, mjmodel, mjdata) for cls in RECORDS}
    contacts = contacts_of(mjdata, 0 if path == LIMITS else slots)
    rows, row_force = None, None
    if path == LIMITS:
        sources = Sources(
            model=model,
            state=state,
            inputs=inputs,
            kinematics=parts[Kinematics],
            com=parts[ComFrame],
            tendons=parts[Tendons],
            velocities=parts[Velocities],
            contacts=contacts,
            slots=slots_of(model),
        )
        rows = constrain(sources)
        row_force = rows.concatenate(row_forces(rows, np.array(mjdata.qacc)))
    given = {name for part in parts.values() for name in vars(part)} | {"qacc", "row_force", "contact", "efc"}
    fields = {name: None for name in Data.__dataclass_fields__ if name not in given}
    fields |= {name: value for part in parts.values() for name, value in vars(part).items()}
    fields |= {"qacc": np.array(mjdata.qacc), "row_force": row_force, "contact": contacts, "efc": rows}
    data = Data(**fields)
    forces = np.zeros((len(contacts.dist), 6))
    forces[: mjdata.ncon] = contact_forces_of(mjmodel, mjdata)
    return model, state, inputs, data, forces


def oracle_values(mjmodel: Any, mjdata: Any) -> np.ndarray:
    """The oracle's sensordata."""
    return field_of("sensordata", mjmodel, mjdata)
