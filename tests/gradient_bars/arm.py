"""The arm of Gymnasium's Pusher, seven joints, with encoders, dry friction and gravity, and recordings of it.

The object and the goal are left out; nothing touches. Torques follow a reference of sines by feedback, as an
experimenter would choose them, and what is recorded is the torque, not the reference.
"""

import functools
import xml.etree.ElementTree as ET

import jax
import jax.numpy as jnp
import numpy as np

import diffsim
from diffsim import optimize
from tests.oracle import package_path

ROWS, WINDOW, ENCODER = 400, 50, 1e-4
JOINTED = ("shoulder_pan", "shoulder_lift", "upper_arm_roll", "elbow_flex", "forearm_roll", "wrist_flex", "wrist_roll")
# of what moves with each joint, the link with most of the mass
BODIES = [f"r_{name.removesuffix('_roll') if 'arm' in name else name}_link" for name in JOINTED]
JOINTS = [f"r_{name}_joint" for name in JOINTED]
FIELDS = ("dof_damping", "dof_frictionloss", "dof_armature")


@functools.cache
def arm() -> diffsim.Model:
    """The true arm."""
    root = ET.parse(package_path("gymnasium/envs/mujoco/assets/pusher_v5.xml")).getroot()
    world, option, sensor = root.find("worldbody"), root.find("option"), ET.SubElement(root, "sensor")
    assert world is not None and option is not None
    for body in world.findall("body")[1:]:
        world.remove(body)
    option.set("gravity", "0 0 -9.81")
    ET.SubElement(option, "flag", contact="disable", limit="disable")
    for joint in root.iter("joint"):
        if joint.get("name"):
            joint.set("frictionloss", "0.3")
            ET.SubElement(sensor, "jointpos", joint=joint.get("name", ""))
    for motor in root.iter("motor"):
        motor.set("ctrllimited", "false")
    return diffsim.load(ET.tostring(root, encoding="unicode"))


@functools.cache
def clean() -> optimize.Recording:
    """A motion of it, read without noise."""
    model, rng = arm(), np.random.default_rng(0)
    time = float(model.opt.timestep) * np.arange(ROWS)[:, None, None]
    rate, phase = rng.uniform(2, 12, (3, 7)), rng.uniform(0, 2 * np.pi, (3, 7))
    wanted = jnp.asarray(0.35 * np.sin(rate * time + phase).sum(axis=1))
    strength = jnp.asarray([60.0, 60.0, 20.0, 30.0, 10.0, 8.0, 8.0])

    def move(state: diffsim.State, goal: jax.Array) -> tuple[diffsim.State, tuple[jax.Array, jax.Array]]:
        torque = strength * (goal - state.qpos - 0.1 * state.qvel)
        later = diffsim.step(model, state, diffsim.make_inputs(model).replace(ctrl=torque))
        return later, (torque, state.qpos)

    _, (torque, seen) = jax.jit(lambda state: jax.lax.scan(move, state, wanted))(diffsim.make_state(model))
    return optimize.make_recording(model, torque, seen)


def noisy(seed: int) -> optimize.Recording:
    """The same motion, read by an encoder."""
    recording = clean()
    noise = ENCODER * np.random.default_rng(seed).normal(size=recording.sensordata.shape)
    return optimize.make_recording(arm(), recording.ctrl, recording.sensordata + noise)


@functools.cache
def unknowns() -> tuple[optimize.Unknown, ...]:
    """Within a factor of three of the truth. The mass of the first link, which turns about a vertical axis, is none."""
    model = arm()
    named = [("body_mass", "body", name, None) for name in BODIES[1:]]
    named += [("body_inertia", "body", BODIES[-1], column) for column in range(3)]
    named += [(field, "joint", name, None) for field in FIELDS for name in JOINTS]

    def unknown(field: str, kind: str, name: str, column: int | None) -> optimize.Unknown:
        true = float(np.asarray(getattr(model, field)[model.id(kind, name)]).reshape(-1)[column or 0])
        return optimize.Unknown(field, name, column, true / 3, 3 * true, log=True)

    return tuple(unknown(*each) for each in named)


def guess() -> diffsim.Model:
    """The arm with unknowns that are wrong by up to a fifth."""
    space = optimize.Unknowns(arm(), unknowns())
    wrong = np.log(np.random.default_rng(1).uniform(0.8, 1.2, space.start.size))
    return space.model_of(jnp.asarray(space.start + wrong))
