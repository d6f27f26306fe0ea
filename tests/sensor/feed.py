"""The oracle's finished data as the input of our sensors."""

from typing import Any

import jax
import numpy as np
from oracle import contact_forces_of, field_of, inputs_of, load_pair, record_of, state_of

from diffsim.sensor import sensors
from diffsim.types import Data, Inputs, Model, State
from diffsim.types.data import (
    Actuation,
    BodyForces,
    ComFrame,
    Contacts,
    Energy,
    Kinematics,
    Tendons,
    Transmission,
    Velocities,
)

RECORDS = (Kinematics, ComFrame, Tendons, Transmission, Velocities, Actuation, BodyForces, Energy)
FAR = 1e10

evaluate = jax.jit(sensors)


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
        includemargin=padded(contact.includemargin, 0),
        friction=padded(contact.friction, 0),
        solref=padded(contact.solref, 0),
        solreffriction=padded(contact.solreffriction, 0),
        solimp=padded(contact.solimp, 0),
        geom=padded(contact.geom, -1, np.int32),
        ncon_dropped=np.int32(0),
    )


def readings_of(path: str, mjdata: Any, slots: int = 24) -> tuple[Model, State, Inputs, Data, np.ndarray]:
    """The arguments of `sensors`, all from the oracle."""
    model, mjmodel = load_pair(path)
    parts = [record_of(cls, mjmodel, mjdata) for cls in RECORDS]
    given = {name for part in parts for name in vars(part)}
    others = {name: None for name in Data.__dataclass_fields__ if name not in {*given, "contact"}}
    data = Data.collect(*parts, **others, contact=contacts_of(mjdata, slots))
    forces = np.zeros((slots, 6))
    forces[: mjdata.ncon] = contact_forces_of(mjmodel, mjdata)
    return model, state_of(mjdata), inputs_of(mjdata), data, forces


def oracle_values(mjmodel: Any, mjdata: Any) -> np.ndarray:
    """The oracle's sensordata."""
    return field_of("sensordata", mjmodel, mjdata)
