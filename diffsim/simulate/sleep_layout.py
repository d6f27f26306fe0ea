"""membership: which kinematic trees each coordinate, equality, tendon, actuator and sensor reading sleeps with."""

from typing import NamedTuple

import numpy as np

from diffsim.base.enums import EnableBit, EqType, ObjType, SensorType, SleepPolicy, TrnType
from diffsim.base.joints import qpos_widths
from diffsim.constraint.equality import body_pairs
from diffsim.constraint.limit import limit_layout
from diffsim.types import Model
from diffsim.types.topology import Topology, per_topology


class Membership(NamedTuple):
    """The trees that each coordinate, equality, tendon, actuator and reading belongs to.

    Attributes:
      qpos: (nq,) the tree of each coordinate.
      equality: (neq, 2) the trees of each equality, -1 for none.
      tendon: (n,) tendons with limits between two trees.
      tendon_trees: (n, 2) the trees of these tendons.
      actuators: (nu, ntree) bool, the trees that an actuator sleeps with; none if it never sleeps.
      activations: (na,) the actuator of each activation.
      readings: (nsensordata, ntree) bool, the trees that a sensor sleeps with; none if it never sleeps.
      allowed: (ntree,) whether the policy of a tree lets it sleep.
      mocap: (ntree,) the mocap body that a tree hangs on, -1 for none.
    """

    qpos: np.ndarray
    equality: np.ndarray
    tendon: np.ndarray
    tendon_trees: np.ndarray
    actuators: np.ndarray
    activations: np.ndarray
    readings: np.ndarray
    allowed: np.ndarray
    mocap: np.ndarray


def sleeps(model: Model) -> bool:
    """Whether trees can fall asleep: the flag, which is static, is on, and there are trees."""
    return model.opt.enabled(EnableBit.SLEEP) and model.topology.nsleep > 0


@per_topology
def membership(topology: Topology) -> Membership:
    """The trees that everything in the model belongs to."""
    joint = np.repeat(np.arange(topology.njnt), qpos_widths(topology.jnt_type))
    two = limit_layout(topology).tendon
    two = two[topology.tendon_treenum[two] == 2]
    actuators = [_trees_of(topology, ObjType.ACTUATOR, actuator) for actuator in range(topology.nu)]
    sensors = [_trees_of(topology, ObjType.SENSOR, sensor) for sensor in range(topology.nsensor)]
    activations = np.zeros(topology.na, int)
    for actuator in np.flatnonzero(topology.actuator_actnum):
        activations[topology.actuator_actadr[actuator] :][: topology.actuator_actnum[actuator]] = actuator
    # an equality within one tree wakes nothing
    tied = np.full((topology.neq, 2), -1)
    joints = np.flatnonzero(topology.eq_type == EqType.JOINT)
    others = np.flatnonzero(np.isin(topology.eq_type, (EqType.CONNECT, EqType.WELD)))
    tied[others] = topology.body_treeid[body_pairs(topology, others).body]
    if len(joints):
        objects = np.stack([topology.eq_obj1id[joints], topology.eq_obj2id[joints]], axis=1)
        tied[joints] = np.where(objects >= 0, topology.body_treeid[topology.jnt_bodyid[objects]], -1)
    policy = topology.tree_sleep_policy
    return Membership(
        qpos=topology.dof_treeid[topology.jnt_dofadr][joint],
        equality=np.where(tied[:, :1] == tied[:, 1:], -1, tied),
        tendon=two,
        tendon_trees=topology.tendon_treeid[two],
        actuators=_incidence(topology, actuators),
        activations=activations,
        readings=_incidence(topology, sensors)[np.repeat(np.arange(topology.nsensor), topology.sensor_dim)],
        allowed=(policy != SleepPolicy.NEVER) & (policy != SleepPolicy.AUTO_NEVER),
        mocap=topology.body_mocapid[topology.body_rootid[topology.tree_bodyadr]],
    )


# what to do about an equality that the flag does not support
SLEEPLESS = "clear the flag sleep, or leave the equality out"


def sleepless_equalities(model: Model) -> list[tuple[int, str]]:
    """Equalities that the flag `sleep` does not allow, (index, reason); MuJoCo stops at them when it steps."""
    topology = model.topology
    if not sleeps(model):
        return []
    kinds = [(index, EqType(int(kind))) for index, kind in enumerate(topology.eq_type)]
    return [
        (index, f"the flag sleep does not support equalities of type {kind.name.lower()}")
        for index, kind in kinds
        if kind not in (EqType.CONNECT, EqType.WELD, EqType.JOINT)
    ]


def _incidence(topology: Topology, trees: list[set[int] | None]) -> np.ndarray:
    """(n, ntree) bool of sets of trees, none for None."""
    table = np.zeros((len(trees), topology.ntree), bool)
    for row, members in enumerate(trees):
        table[row, sorted(members or ())] = True
    return table


# prefix of the field names of each type of object that has a body
OWNER = {ObjType.JOINT: "jnt", ObjType.DOF: "dof", ObjType.GEOM: "geom", ObjType.SITE: "site"}
OWNER |= {ObjType.CAMERA: "cam", ObjType.LIGHT: "light"}

# what an actuator acts on
TARGET = {
    TrnType.JOINT: ObjType.JOINT,
    TrnType.JOINTINPARENT: ObjType.JOINT,
    TrnType.TENDON: ObjType.TENDON,
    TrnType.SITE: ObjType.SITE,
    TrnType.BODY: ObjType.BODY,
    TrnType.SLIDERCRANK: ObjType.SITE,
}
# sensors that look at everything, and never sleep
WAKEFUL = (SensorType.USER, SensorType.PLUGIN, SensorType.RANGEFINDER)


def _trees_of(topology: Topology, kind: ObjType, index: int) -> set[int] | None:
    """The trees that an object sleeps with; an empty set if it is static, None if it never sleeps."""
    if kind in (ObjType.BODY, ObjType.XBODY):
        tree = int(topology.body_treeid[index])
        root = topology.body_rootid[index]
        return {tree} if tree >= 0 else None if topology.body_mocapid[root] >= 0 else set()
    if kind in OWNER:
        return _trees_of(topology, ObjType.BODY, int(getattr(topology, f"{OWNER[kind]}_bodyid")[index]))
    if kind == ObjType.TENDON:
        trees = topology.tendon_treeid[index]
        return None if topology.tendon_treenum[index] > 2 else {int(tree) for tree in trees if tree >= 0}
    if kind == ObjType.ACTUATOR and topology.actuator_trntype[index] in TARGET:
        transmission = TrnType(int(topology.actuator_trntype[index]))
        ends = topology.actuator_trnid[index][: 2 if transmission == TrnType.SLIDERCRANK else 1]
        return _together([_trees_of(topology, TARGET[transmission], int(end)) for end in ends])
    if kind == ObjType.SENSOR and topology.sensor_type[index] not in WAKEFUL:
        kinds = [ObjType(int(kind[index])) for kind in (topology.sensor_objtype, topology.sensor_reftype)]
        ids = (int(column[index]) for column in (topology.sensor_objid, topology.sensor_refid))
        if topology.sensor_type[index] == SensorType.CONTACT and ObjType.SITE in kinds:
            return None
        return _together([_trees_of(topology, *end) for end in zip(kinds, ids, strict=True) if end[0]])
    return None


def _together(parts: list[set[int] | None]) -> set[int] | None:
    """The trees of several parts, all of which must sleep; None if a part never sleeps."""
    return None if None in parts else set().union(*(part for part in parts if part is not None))
