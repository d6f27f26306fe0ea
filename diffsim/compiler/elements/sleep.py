"""Sleep policies of trees: from attribute 'sleep' of their root bodies, or by default from what acts on them.

By default, a tree does not sleep if an actuator, a flex or a spring to another tree acts on it. A tree cannot sleep if
a tendon connects it to other trees in a way that could not wake it. Trees that start asleep (`sleep="init"`) must be
able to sleep at qpos0. Source: MuJoCo XML reference, "body/sleep"; mj_setConst and mj_resetData of 3.8.1.
"""

from collections.abc import Callable

import jax
import numpy as np

from diffsim.base.enums import EnableBit, SleepPolicy, TrnType, WrapType
from diffsim.compiler.draft import Draft, Fields
from diffsim.compiler.host.interpret import interpret
from diffsim.simulate.forward import forward
from diffsim.simulate.sleep import AWAKE, asleep_at_first
from diffsim.types.model import Model

# fields with the bodies of flexes
FLEXES = ("flex_vertbodyid", "flex_nodebodyid")


def tree_rows(draft: Draft) -> None:
    """Addresses and counts of each tree's bodies and dofs; for each tendon, its number of trees and the first two."""
    fields = draft.fields
    for kind in ("body", "dof"):
        tree = fields[f"{kind}_treeid"]
        trees = np.arange(fields["ntree"])
        fields[f"tree_{kind}adr"] = np.array([np.flatnonzero(tree == number)[0] for number in trees], int)
        fields[f"tree_{kind}num"] = np.array([np.count_nonzero(tree == number) for number in trees], int)
    along = [_trees_of_wraps(fields, tendon) for tendon in range(len(fields["tendon_adr"]))]
    fields["tendon_treenum"] = np.array([len(trees) for trees in along], int)
    fields["tendon_treeid"] = np.array([[*trees, -1, -1][:2] for trees in along], int).reshape(-1, 2)


def sleep_policies(draft: Draft) -> None:
    """tree_sleep_policy; also sets all trees awake, until `check_sleepers` finds those that start asleep."""
    fields = draft.fields
    fields.update(tree_asleep0=np.full(fields["ntree"], AWAKE), sensordata_asleep0=np.zeros(fields["nsensordata"]))
    policy = np.full(fields["ntree"], SleepPolicy.AUTO)
    before = -1
    for node in draft.nodes["body"][1:]:
        tree = fields["body_treeid"][node.id]
        if node.e.sleep != SleepPolicy.AUTO and tree in (-1, before):
            draft.problems.add(node.source, "attribute 'sleep' is only for the root body of a moving tree")
        elif node.e.sleep != SleepPolicy.AUTO:
            policy[tree] = node.e.sleep
        before = tree

    # whether each tree stays awake by default; static bodies have the tree -1, which is the last place
    busy = np.zeros(fields["ntree"] + 1, bool)
    for actuator in range(len(fields["actuator_trntype"])):
        busy[_trees_of_actuator(fields, actuator)] = True
    for name in FLEXES:
        bodies = np.ravel(np.asarray(fields.get(name, ()), int))
        busy[fields["body_treeid"][bodies[bodies >= 0]]] = True
    for tendon in range(len(fields["tendon_adr"])):
        trees = _trees_of_wraps(fields, tendon)
        pulls = [fields[f"tendon_{name}"][tendon] for name in ("stiffness", "stiffnesspoly", "damping", "dampingpoly")]
        free = not any(map(np.any, pulls)) and fields["tendon_actuatorid"][tendon] == -1
        if len(trees) < 2 or (len(trees) == 2 and free):
            continue
        busy[trees] = True
        why = "runs over more than two trees" if len(trees) > 2 else "has stiffness or damping between two trees"
        for tree in trees:
            if policy[tree] in (SleepPolicy.ALLOWED, SleepPolicy.INIT):
                body = draft.nodes["body"][int(fields["tree_bodyadr"][tree])]
                message = f"this tendon {why}, so body '{body.name}' cannot have sleep '{body.e.sleep.name.lower()}'"
                draft.problems.add(draft.nodes["tendon"][tendon].source, message)
    auto = np.where(busy[:-1], SleepPolicy.AUTO_NEVER, SleepPolicy.AUTO_ALLOWED)
    fields["tree_sleep_policy"] = np.where(policy == SleepPolicy.AUTO, auto, policy)


def _trees_of_wraps(fields: Fields, tendon: int) -> list[int]:
    """The trees on the path of a tendon, in the order in which it reaches them."""
    owner = {
        WrapType.JOINT: "jnt_bodyid",
        WrapType.SITE: "site_bodyid",
        WrapType.SPHERE: "geom_bodyid",
        WrapType.CYLINDER: "geom_bodyid",
    }
    trees: list[int] = []
    first = fields["tendon_adr"][tendon]
    for wrap in range(first, first + fields["tendon_num"][tendon]):
        kind = WrapType(int(fields["wrap_type"][wrap]))
        if kind in owner:
            tree = int(fields["body_treeid"][fields[owner[kind]][fields["wrap_objid"][wrap]]])
            trees += [tree] if tree >= 0 and tree not in trees else []
    return trees


def _trees_of_actuator(fields: Fields, actuator: int) -> list[int]:
    """The trees that an actuator keeps awake; -1 for a static body."""
    kind = fields["actuator_trntype"][actuator]
    target = fields["actuator_trnid"][actuator, 0]
    if kind == TrnType.TENDON:
        return _trees_of_wraps(fields, target)
    if kind == TrnType.UNDEFINED:
        return []
    owner = {TrnType.JOINT: "jnt_bodyid", TrnType.JOINTINPARENT: "jnt_bodyid", TrnType.BODY: None}
    name = owner.get(TrnType(int(kind)), "site_bodyid")
    return [int(fields["body_treeid"][target if name is None else fields[name][target]])]


def check_sleepers(draft: Draft, packed: Callable[[Fields], Model]) -> None:
    """Adds the fields of trees that start asleep; notes an error if one of them cannot sleep."""
    asleep, failed = first_sleepers(draft.fields, packed)
    draft.fields.update(asleep)
    if failed:
        count = int(np.sum(draft.fields["tree_sleep_policy"] == SleepPolicy.INIT))
        body = draft.nodes["body"][failed[0]]
        message = f"of {count} trees with sleep 'init', {count - len(failed)} can sleep at qpos0, but this one cannot"
        draft.problems.add(body.source, message, "it touches, or is connected to, something that is awake")


def first_sleepers(fields: Fields, packed: Callable[[Fields], Model]) -> tuple[Fields, list[int]]:
    """Fields of the trees that start asleep, if sleeping is enabled, and the root bodies of those that cannot sleep."""
    initial = np.asarray(fields["tree_sleep_policy"]).reshape(-1) == SleepPolicy.INIT
    if not int(fields["opt"]["enableflags"]) & EnableBit.SLEEP or not initial.any():
        return {}, []
    with jax.enable_x64(True):
        tree_asleep, readings = interpret(lambda model: asleep_at_first(model, forward), packed(fields))
    failed = np.asarray(fields["tree_bodyadr"])[initial & (tree_asleep < 0)]
    return {"tree_asleep0": tree_asleep, "sensordata_asleep0": readings}, failed.tolist()
