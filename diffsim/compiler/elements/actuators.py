"""Actuators: transmission, limits and activations. Shortcuts such as `<motor>` are general actuators at this point.

A positive biasprm[2] is a damping ratio until `simulate.constants` converts it to damping at qpos0.
Source: MuJoCo "Modeling", actuator shortcuts; "Computation", actuation model.
"""

import numpy as np

from diffsim.actuator.laws import DYNAMICS, has_states
from diffsim.base.enums import BiasType, DynType, GainType, LRMode, TrnType
from diffsim.base.joints import is_scalar
from diffsim.compiler.draft import Draft, Fields, Node, addresses, check_limits, or_minus_one
from diffsim.compiler.elements.plugins import own_states
from diffsim.mjcf.attributes import Tristate
from diffsim.mjcf.elements.actuator import PARAMETERS
from diffsim.mjcf.elements.settings import MOST_NUMBERS
from diffsim.types.history import buffer_size

Array = np.ndarray

# the kind of object on which each transmission acts
KIND = {
    TrnType.JOINT: "joint",
    TrnType.JOINTINPARENT: "joint",
    TrnType.TENDON: "tendon",
    TrnType.SLIDERCRANK: "site",
    TrnType.SITE: "site",
    TrnType.BODY: "body",
}
# transmissions to which actuators can add damping and armature
REFLECTING = (TrnType.JOINT, TrnType.JOINTINPARENT, TrnType.TENDON)


def actuator_rows(draft: Draft) -> None:
    """Fills the rows of all actuators, and the addresses of their activations and histories."""
    nodes = draft.nodes["actuator"]
    for node, count in zip(nodes, _activations(draft, nodes), strict=True):
        node.row = {**_actuator_row(draft, node), "actuator_actnum": count}
    draft.problems.raise_if_any()
    draft.columns("actuator")
    numbers = np.array([node.row["actuator_actnum"] for node in nodes], int)
    samples = np.array([max(0, node.e.nsample) for node in nodes], int)
    histories = buffer_size(samples, 1)
    if histories.sum() > MOST_NUMBERS:
        longest = nodes[int(np.argmax(histories))].source
        draft.problems.add(
            longest,
            f"the history buffers of all actuators have more than {MOST_NUMBERS} numbers",
            "make nsample smaller",
        )
        draft.problems.raise_if_any()
    draft.fields.update(
        na=int(numbers.sum()),
        nhistory=int(histories.sum()),
        actuator_actadr=or_minus_one(addresses(numbers), numbers),
        actuator_historyadr=or_minus_one(addresses(histories), histories),
    )


def _actuator_row(draft: Draft, node: Node) -> Fields:
    """The fields of one actuator, except for its activations and history; notes errors."""
    e = node.e
    transmission, name = e.target
    target = draft.find(node.source, KIND[transmission], name)
    if transmission not in REFLECTING and (e.damping.any() or e.armature):
        draft.problems.add(node.source, "attributes 'damping' and 'armature' need a joint or tendon as the target")
    # the second object: the slider site of a crank, or the reference site of a site
    second = {TrnType.SLIDERCRANK: e.slidersite, TrnType.SITE: e.refsite}.get(transmission)
    if transmission == TrnType.SLIDERCRANK and e.cranklength <= 0:
        draft.problems.add(node.source, "attribute 'cranklength': must be positive")
    lengthrange = _length_range(draft, node, transmission, target)
    ranges = _inherited_ranges(draft, node, transmission, target)
    # until 3.11 the setpoint of <intvelocity> is always limited, as the shortcut says
    auto = e.tag == "intvelocity" and draft.spec.follows("intvelocity_limits")
    act_limited = check_limits(draft, node, "act", Tristate.AUTO if auto else e.actlimited, ranges["actrange"])
    if act_limited and e.dyntype == DynType.NONE:
        draft.problems.add(node.source, "attribute 'actrange' needs an activation, but dyntype is 'none'")
    _check(draft, node)
    return {
        "actuator_trntype": transmission,
        "actuator_trnid": (target.id if target else -1, draft.optional(node, "site", second)),
        "actuator_dyntype": e.dyntype,
        "actuator_gaintype": e.gaintype,
        "actuator_biastype": e.biastype,
        "actuator_group": e.group,
        "actuator_history": (e.nsample, e.interp),
        "actuator_delay": e.delay,
        "actuator_ctrllimited": check_limits(draft, node, "ctrl", e.ctrllimited, ranges["ctrlrange"]),
        "actuator_forcelimited": check_limits(draft, node, "force", e.forcelimited, e.forcerange),
        "actuator_actlimited": act_limited,
        "actuator_actearly": e.actearly,
        "actuator_cranklength": e.cranklength,
        "actuator_gear": e.gear,
        "actuator_damping": e.damping[0],
        "actuator_dampingpoly": e.damping[1:],
        "actuator_armature": e.armature,
        "actuator_dynprm": e.dynprm,
        "actuator_gainprm": e.gainprm,
        "actuator_biasprm": e.biasprm,
        "actuator_ctrlrange": ranges["ctrlrange"],
        "actuator_forcerange": e.forcerange,
        "actuator_actrange": ranges["actrange"],
        "actuator_lengthrange": lengthrange,
    }


def _inherited_ranges(draft: Draft, node: Node, transmission: TrnType, target: Node | None) -> dict[str, Array]:
    """ctrlrange and actrange; with inheritrange, one of them comes from the range of the target."""
    e = node.e
    ranges = {"ctrlrange": np.array(e.ctrlrange), "actrange": np.array(e.actrange)}
    # position and intvelocity actuators: force kp (ctrl - length)
    servo = e.gaintype == GainType.FIXED and e.biastype == BiasType.AFFINE and e.gainprm[0] == -e.biasprm[1]
    if not servo or e.inheritrange <= 0 or target is None:
        return ranges
    which = {
        DynType.NONE: "ctrlrange",
        DynType.FILTEREXACT: "ctrlrange",
        DynType.INTEGRATOR: "actrange",
    }.get(e.dyntype)
    scalar = transmission == TrnType.JOINT and is_scalar(target.e.type)
    if which is None or not (scalar or transmission == TrnType.TENDON):
        draft.problems.add(
            node.source, "attribute 'inheritrange' is only for position and intvelocity on a hinge, slide or tendon"
        )
        return ranges
    lower, upper = target.row["jnt_range" if scalar else "tendon_range"]
    if lower == upper:
        draft.problems.add(node.source, f"attribute 'inheritrange' is given, but '{target.name}' has no range")
    middle = (lower + upper) / 2
    radius = (upper - lower) / 2 * e.inheritrange
    ranges[which] = np.array([middle - radius, middle + radius])
    return ranges


def _length_range(draft: Draft, node: Node, transmission: TrnType, target: Node | None) -> Array:
    """The lengthrange as given, or from the target's limits, according to `<lengthrange>`.

    Otherwise the actuator is added to `draft.unmeasured`, and derive.py computes the range by simulation.
    """
    e = node.e
    lengthrange = np.array(node.e.lengthrange)
    settings = draft.lengthrange
    muscle = e.gaintype == GainType.MUSCLE or e.biastype == BiasType.MUSCLE
    user = e.gaintype == GainType.USER or e.biastype == BiasType.USER
    measured = {LRMode.NONE: False, LRMode.MUSCLE: muscle, LRMode.MUSCLEUSER: muscle or user, LRMode.ALL: True}
    if not measured[settings.mode] or (settings.useexisting and lengthrange[0] < lengthrange[1]):
        return lengthrange
    kind = {TrnType.JOINT: "jnt", TrnType.JOINTINPARENT: "jnt", TrnType.TENDON: "tendon"}.get(transmission)
    if settings.uselimit and kind and target and target.row[f"{kind}_limited"]:
        return np.array(target.row[f"{kind}_range"])
    draft.unmeasured.add(node.id)
    return lengthrange


def _activations(draft: Draft, nodes: list[Node]) -> list[int]:
    """The number of activations of each actuator.

    It is the number of states of its law that its parameters switch on, plus the number of states of its plugin. For
    dyntype `user`, it is `actdim`.
    """
    names = "dyntype", "actdim", "dynprm", "gainprm"
    dyntype, actdim, *parameters = (np.array([getattr(node.e, name) for node in nodes]) for name in names)
    parameters = (prm.reshape(len(nodes), PARAMETERS) for prm in parameters)
    of_plugin = own_states(draft.fields).sum(axis=1)
    of_law = has_states(dyntype, np.abs(actdim) - of_plugin, *parameters).sum(axis=1)
    counts = (of_law + of_plugin).tolist()
    for node, count in zip(nodes, counts, strict=True):
        if draft.fields["actuator_plugin"][node.id] < 0:
            _check_actdim(draft, node, count)
        elif max(node.e.actdim, -1) not in ({count} | ({-1} if not of_plugin[node.id] else set())):
            draft.problems.add(
                node.source, f"the plugin of this actuator needs actdim {count}", f'set actdim="{count}"'
            )
    return counts


def _check_actdim(draft: Draft, node: Node, count: int) -> None:
    """Notes an error if attribute 'actdim' contradicts the number of states of the actuator's law."""
    actdim = node.e.actdim
    states = DYNAMICS[node.e.dyntype].states
    misfit = f"attribute 'actdim': {actdim} does not match dyntype '{node.e.dyntype.name.lower()}'"
    if states is None:
        if actdim == 0:
            draft.problems.add(node.source, misfit)
    elif actdim > 1 and len(states) <= 1:
        several = [kind for kind, law in DYNAMICS.items() if law.states is None or len(law.states) > 1]
        names = " and ".join(f"'{kind.name.lower()}'" for kind in sorted(several, reverse=True))
        draft.problems.add(node.source, f"attribute 'actdim': more than 1 is only for dyntype {names}")
    elif actdim >= 0 and actdim != count:
        draft.problems.add(node.source, misfit, f"this actuator has {count} states" if len(states) > 1 else "")


def _check(draft: Draft, node: Node) -> None:
    """Notes errors in the parameters of the laws and in the history buffer."""
    e, place = node.e, node.source
    if DYNAMICS[e.dyntype].always_early and not e.actearly:
        draft.problems.add(place, f"attribute 'actearly': cannot be false for dyntype '{e.dyntype.name.lower()}'")
    if e.delay > 0 and e.nsample <= 0:
        draft.problems.add(place, "attribute 'delay' needs a history buffer", "set nsample")
    # parameters of a muscle: range (2), force, scale, lmin, lmax, vmax, fpmax, fvmax
    muscles = [(e.gaintype == GainType.MUSCLE, e.gainprm), (e.biastype == BiasType.MUSCLE, e.biasprm)]
    for parameters in (values for muscle, values in muscles if muscle):
        if parameters[0] >= parameters[1]:
            draft.problems.add(place, "attribute 'range': must be increasing")
        if not parameters[4] < 1 < parameters[5]:
            draft.problems.add(place, "a muscle needs lmin < 1 < lmax")
        if (parameters[[3, 6, 7, 8]] <= 0).any():
            draft.problems.add(place, "attributes 'scale', 'vmax', 'fpmax' and 'fvmax' of a muscle must be positive")
