"""Reads models that MuJoCo 3.9 to 4.0 compiled, and refuses those with new features that diffsim does not support.

`from_mujoco` uses this module. An MjModel does not say which MuJoCo compiled it, so its version is the version of its
package. Fields with the same meaning as in 3.8.1 are read, and the model follows the changes of its version
(`base/changes.py`).
Source: mjmodel.h of 3.8.1, 3.17.0 and 4.0.0.
"""

import dataclasses
import sys
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from diffsim.base import changes
from diffsim.base.enums import (
    BiasType,
    ConDataField,
    DisableBit,
    DynType,
    EnableBit,
    GainType,
    SensorType,
    TrnType,
)
from diffsim.base.errors import Problems, UnsupportedError
from diffsim.base.motor_layout import MotorGain, MotorInput
from diffsim.types.kinds import KINDS
from diffsim.types.model import NEQDATA, Headlight, Model, Option, Statistic
from diffsim.types.topology import Topology

# how to get a diffsim model without from_mujoco
HINT = (
    "MjSpec.to_xml() or mujoco.mj_saveLastXML(path, model) writes the XML of a model, and mjx.make_data takes the "
    'model that diffsim.load(xml, mujoco="{}") makes of it'
)
# the beginning of a hint for a feature that only newer versions have
WITHOUT = "leave it out of the XML: "


class Newer(NamedTuple):
    """A field that came after 3.8.1.

    Attributes:
      what: what an object has if the field is set, for the message.
      since: the version that added it.
      kind: the kind of its objects.
      nothing: its value when it has no effect.
    """

    what: str
    since: str
    kind: str
    nothing: float = 0


# fields that change the motion unless they have the value `nothing`
REFUSED = {
    "geom_adhesion": Newer("adhesion", "3.11", "geom"),
    "pair_adhesion": Newer("adhesion", "3.11", "pair"),
    "actuator_ctrlnum": Newer("more or less than one control", "3.12", "actuator", nothing=1),
    "site_dataid": Newer("a mesh", "3.13", "site", nothing=-1),
    "jnt_springyield": Newer("springyield", "4.0", "joint"),
    "tendon_springyield": Newer("springyield", "4.0", "tendon"),
}
# Fields with enums, MuJoCo's enum and ours. Later versions have more names, and other numbers for some of them, so
# these fields are read by name.
ENUMS: dict[str, tuple[str, type[IntEnum]]] = {
    "actuator_trntype": ("mjtTrn", TrnType),
    "actuator_dyntype": ("mjtDyn", DynType),
    "actuator_gaintype": ("mjtGain", GainType),
    "actuator_biastype": ("mjtBias", BiasType),
}
# inputs of DC motors by the bits of `actuator_ctrlspec` (mjtInput)
MOTOR_INPUTS = {1: MotorInput.POS, 2: MotorInput.VEL, 4: MotorInput.FF, 8: MotorInput.VOLTAGE}
# fields of flexes that later versions no longer have
GONE = (
    *("nflexevpair", "flex_internal", "flex_bandwidth", "flex_evpairadr", "flex_evpairnum", "flex_evpair"),
    *("flex_vertedgeadr", "flex_vertedgenum", "flex_vertedge", "flex_vertmetric"),
)


def version_of(mjmodel: Any) -> str:
    """The version of MuJoCo that compiled an MjModel, an entry of `base.changes.VERSIONS`.

    Raises:
      UnsupportedError: diffsim does not support the version.
    """
    release = getattr(_package(mjmodel), "__version__", changes.DEFAULT)
    try:
        return changes.version_of(release)
    except ValueError:
        message = f"this MjModel comes from MuJoCo {release}; diffsim reads models of {', '.join(changes.VERSIONS)}"
        raise UnsupportedError.of("", message, HINT.format(changes.VERSIONS[-1])) from None


def columns_of(mjmodel: Any, version: str) -> dict[str, Any]:
    """The fields of an MjModel that Topology, Model, Option and Statistic have, in the form of MuJoCo 3.8.1.

    Args:
      mjmodel: the compiled model.
      version: what `version_of` returns for it.

    Raises:
      UnsupportedError: the model has a feature that diffsim does not support; the message names every object that
        has one.
    """
    names = [f.name for cls in (Topology, Model) for f in dataclasses.fields(cls)]
    fields: dict[str, Any] = {name: getattr(mjmodel, name) for name in names if hasattr(mjmodel, name)}
    records = (("opt", Option, mjmodel.opt), ("stat", Statistic, mjmodel.stat))
    for name, cls, source in (*records, ("headlight", Headlight, mjmodel.vis.headlight)):
        fields[name] = {f.name: getattr(source, f.name) for f in dataclasses.fields(cls) if hasattr(source, f.name)}
    fields["mujoco"] = version
    if version == changes.DEFAULT:
        return fields
    problems = Problems()
    for message in _unsupported_features(mjmodel, fields):
        problems.unsupported(None, f"{message}, not supported yet", WITHOUT + HINT.format(version))
    if mjmodel.nflex:
        problems.unsupported(
            None, f"from_mujoco does not read flexes that MuJoCo {version} compiled", HINT.format(version)
        )
    problems.raise_if_any()
    # the model has no flexes, so these are zero or empty
    fields |= {name: 0 if name.startswith("n") else np.zeros(0, np.int32) for name in GONE if name not in fields}
    # later versions have one more number for each equality, which only `mj_setConst` uses
    fields["eq_data"] = mjmodel.eq_data[:, :NEQDATA]
    for name, value in fields.items():
        if isinstance(value, np.ndarray) and value.dtype == bool:
            fields[name] = value.astype(np.uint8)
    fields["actuator_gainprm"] = _with_motor_inputs(mjmodel, fields["actuator_gainprm"])
    for column in ENUMS:
        fields[column] = np.array([_member(mjmodel, column, number) for number in fields[column]], np.int32)
    return fields


def _with_motor_inputs(mjmodel: Any, gainprm: np.ndarray) -> np.ndarray:
    """(nu, 10) gainprm with the inputs of DC motors, which are in `actuator_ctrlspec` since MuJoCo 3.12."""
    gainprm = np.array(gainprm)
    for index, number in enumerate(mjmodel.actuator_gaintype):
        spec = int(mjmodel.actuator_ctrlspec[index]) if hasattr(mjmodel, "actuator_ctrlspec") else 0
        if spec in MOTOR_INPUTS and _member(mjmodel, "actuator_gaintype", number) is GainType.DCMOTOR:
            gainprm[index, MotorGain.INPUT] = MOTOR_INPUTS[spec]
    return gainprm


def _unsupported_features(mjmodel: Any, fields: dict[str, Any]) -> Iterator[str]:
    """Yields a message for each feature of a model of a later version that diffsim does not support."""
    for column, new in REFUSED.items():
        values = np.asarray(getattr(mjmodel, column, ()))
        for index in np.flatnonzero(values != new.nothing).tolist():
            yield f"{_label(mjmodel, new.kind, index)} has {new.what}, new in MuJoCo {new.since}"
    for column in ENUMS:
        for index, number in enumerate(fields[column]):
            member = _member(mjmodel, column, number)
            law = f"the {column.removeprefix('actuator_')} {_name(mjmodel, column, number)}"
            if member is None:
                yield f"{_label(mjmodel, 'actuator', index)} has {law}, new after MuJoCo 3.8"
    reports = (mjmodel.sensor_type == SensorType.CONTACT) & (mjmodel.sensor_intprm[:, 0] >> len(ConDataField) > 0)
    for index in np.flatnonzero(reports).tolist():
        label = _label(mjmodel, "sensor", index)
        yield f"{label} has velocities of contacts, new after MuJoCo 3.8"
    opt = fields["opt"]
    for name, known in (("disableflags", DisableBit), ("enableflags", EnableBit)):
        if unknown := int(opt[name]) & ~sum(known):
            kind = getattr(_package(mjmodel), known.__name__.join(("mjt", "")), int)
            yield f"opt.{name} has {kind(unknown)!r}, new after MuJoCo 3.8"


def _package(mjmodel: Any) -> Any:
    """The module `mujoco` whose class the model is."""
    return sys.modules.get(type(mjmodel).__module__.partition(".")[0])


def _name(mjmodel: Any, column: str, number: int) -> str:
    """The name, such as "FIXED", of a number in a column of `ENUMS`."""
    theirs, ours = ENUMS[column]
    kind = getattr(_package(mjmodel), theirs, ours)
    return kind(int(number)).name.rpartition("_")[2]


def _member(mjmodel: Any, column: str, number: int) -> IntEnum | None:
    """The enum of 3.8.1 with the same name as a number in a column of `ENUMS`; None if it has none."""
    return ENUMS[column][1].__members__.get(_name(mjmodel, column, number))


def _label(mjmodel: Any, kind: str, index: int) -> str:
    """The name of an object in a message: "joint 'knee'", or "joint 3" without a name."""
    prefix = KINDS[kind].prefix
    first = int(getattr(mjmodel, f"name_{prefix}adr")[index])
    name = mjmodel.names[first : mjmodel.names.index(b"\0", first)].decode()
    return f"{kind} {name!r}" if name else f"{kind} {index}"
