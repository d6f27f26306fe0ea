"""Random chains of light links that carry a heavy one: how far float32 is from float64, and whether it says so."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from oracle import mujoco
from uncompiled import uncompiled

import diffsim
from diffsim.base.enums import Status

SOLVERS = (("Newton", "elliptic"), ("Newton", "pyramidal"), ("CG", "pyramidal"))
LINKS = (5, 8, 12)
# the least and the largest condition of M, in decades
DECADES = (2.0, 9.0)
# relative error of accelerations from which a world must be flagged
OFF = 1e-2
# halvings of ten decades of a mass
BISECTIONS = 8
# steps of a motion in float32
STEPS = 10
FLAGS = Status.ILL_CONDITIONED | Status.NOT_CONVERGED | Status.BAD_QACC


class Chain(NamedTuple):
    """A chain: its XML, condition of M in a state, and this state: positions and velocities (nv,)."""

    xml: str
    condition: float
    qpos: np.ndarray
    qvel: np.ndarray


class Comparison(NamedTuple):
    """What float32 made of chains.

    Attributes:
      chains: how many.
      off: accelerations off by over 1%, or not finite.
      unflagged: those of them without a bit in the status.
      nan: motions that are not finite after some steps.
      silent: those of them without a bit in any step.
      flagged_right: chains with the bit ILL_CONDITIONED whose accelerations are right to 1%.
    """

    chains: int
    off: int
    unflagged: int
    nan: int
    silent: int
    flagged_right: int


def chain_xml(count: int, solver: tuple[str, str], masses: tuple[float, float], armature: float) -> str:
    """Hinged links of a light mass over a floor, the last of a heavy one, with limits and friction of joints."""
    light, heavy = masses
    bodies = ""
    for k in range(count):
        mass = heavy if k == count - 1 else light
        bodies += (
            f"<body pos='{0.1 if k else 0} 0 {0 if k else 0.35}'><joint axis='{'0 1 0' if k % 3 else '1 0 1'}'"
            f" limited='true' range='-1.5 1.5' armature='{armature:.3g}' damping='{light:.3g}'"
            f" frictionloss='{0.01 * light:.3g}'/>"
            f"<geom type='capsule' size='.02' fromto='0 0 0 .1 0 0' mass='{mass:.4g}'/>"
        )
    option, default = f"solver='{solver[0]}' cone='{solver[1]}'", "<geom contype='1' conaffinity='2'/>"
    return (
        f"<mujoco><option {option}/><default>{default}</default><worldbody>"
        f"<geom type='plane' size='2 2 1' contype='2' conaffinity='1'/>{bodies}{'</body>' * count}"
        f"</worldbody></mujoco>"
    )


def condition(xml: str, qpos: np.ndarray) -> float:
    """The condition of M, by the oracle."""
    mjmodel = mujoco.MjModel.from_xml_string(xml)
    data, inertia = mujoco.MjData(mjmodel), np.zeros((mjmodel.nv, mjmodel.nv))
    data.qpos[:] = qpos
    mujoco.mj_forward(mjmodel, data)
    mujoco.mj_fullM(mjmodel, inertia, data.qM)
    return float(np.linalg.cond(inertia))


# (number of links, (solver, cone))
Kind = tuple[int, tuple[str, str]]
KINDS = tuple(itertools.product(LINKS, SOLVERS))


def chains(count: int, seed: int, kinds: Sequence[Kind]) -> dict[Kind, list[Chain]]:
    """Chains of some kinds, whose conditions are spread evenly over the decades."""
    rng = np.random.default_rng(seed)
    found: dict[Kind, list[Chain]] = defaultdict(list)
    for number, (links, solver) in zip(range(count), itertools.cycle(kinds)):
        aim = rng.uniform(*DECADES)
        heavy, qpos = 10 ** rng.uniform(-1, 1), rng.uniform(-0.8, 0.8, links)
        # the lighter the other links, the larger is the condition: bisection of the decades of their mass
        low, high, xml, value = -10.0, 0.0, "", 0.0
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            xml = chain_xml(links, solver, (heavy * 10**middle, heavy), heavy * 10 ** (middle - 4))
            value = condition(xml, qpos)
            low, high = (middle, high) if np.log10(value) > aim else (low, middle)
        velocity = (number % 2) * rng.normal(size=links)
        found[links, solver].append(Chain(xml, value, qpos, velocity))
    return found


def compare(count: int, seed: int, kinds: Sequence[Kind] = KINDS) -> Comparison:
    """Accelerations of random chains in float32 and float64, and a few steps in float32."""
    total = np.zeros(5, int)
    for group in chains(count, seed, kinds).values():
        with jax.enable_x64(True):
            models = [diffsim.load(chain.xml) for chain in group]
        # models of one topology run as a batch
        for topology in dict.fromkeys(model.topology for model in models):
            members = [k for k, model in enumerate(models) if model.topology == topology]
            batch = jax.tree.map(lambda *leaves: np.stack(leaves), *(models[k] for k in members))
            positions, velocities = (np.stack([getattr(group[k], name) for k in members]) for name in ("qpos", "qvel"))
            with jax.enable_x64(True):
                exact = np.asarray(uncompiled(jax.vmap(_acceleration))(batch, positions, velocities)[0])
            with jax.enable_x64(False):
                single = jax.tree.map(np.float32, (batch, positions, velocities))
                found, status, finite, bits = map(np.asarray, uncompiled(jax.vmap(_motion))(*single))
            error = np.max(np.abs(found - exact), axis=1) / np.max(np.abs(exact), axis=1)
            off, flagged = ~(error <= OFF), status & FLAGS != 0
            right = (status & Status.ILL_CONDITIONED != 0) & ~off
            total += [np.sum(kind) for kind in (off, off & ~flagged, ~finite, ~finite & (bits & FLAGS == 0), right)]
    return Comparison(count, *map(int, total))


def _acceleration(model: diffsim.Model, qpos: jax.Array, qvel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The acceleration (nv,) of a state, and its status."""
    data = diffsim.forward(model, diffsim.make_state(model).replace(qpos=qpos, qvel=qvel))
    return data.qacc, data.status


def _motion(model: diffsim.Model, qpos: jax.Array, qvel: jax.Array) -> tuple[jax.Array, ...]:
    """The acceleration (nv,) of a state, its status, whether a motion from it is finite, and the bits of its steps."""

    def move(state: diffsim.State, _: None) -> tuple[diffsim.State, jax.Array]:
        after, data = diffsim.step_data(model, state)
        return after, data.status

    state = diffsim.make_state(model).replace(qpos=qpos, qvel=qvel)
    last, bits = jax.lax.scan(move, state, length=STEPS)
    finite = jnp.all(jnp.isfinite(last.qpos)) & jnp.all(jnp.isfinite(last.qvel))
    return *_acceleration(model, qpos, qvel), finite, jax.lax.reduce(bits, jnp.int32(0), jax.lax.bitwise_or, (0,))
