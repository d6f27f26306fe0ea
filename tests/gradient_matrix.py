"""`make sweep`: derivatives of steps, for every constraint family x cone x solver x integrator.

AD (forward and reverse) against Richardson differences of our own steps, with respect to position, velocity, control,
applied force and every float of the model at once. One small model per family, made here. A state counts only if the
differences agree with themselves at two step sizes; where they do not, a zone changes within the step size and the next
state is tried. Prints one line of counts, and a line for every finding.

python tests/gradient_matrix.py --seed 0             every family x cone x integrator by Newton, other solvers by Euler
python tests/gradient_matrix.py --full               the whole product
python tests/gradient_matrix.py --steps 100          of a rollout, in which constraints push in most steps
"""

import argparse
import functools
import itertools
import os
import sys
from typing import Any, NamedTuple

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import diffsim
from diffsim.base.enums import Cone, Integrator, Solver
from diffsim.compiler.host.interpret import interpret
from diffsim.kinematics.joints import integrate_position, position_difference

Array = jax.Array
# of one step, and of many
BAR, FAR = 1e-6, 1e-5
SIZES = (1e-3, 1e-4, 1e-5, 1e-6)
TRIES = 8

LINKED = """<mujoco><option timestep=".004"/>
<default><geom contype="0" conaffinity="0" density="500"/><joint damping=".2"/></default>
<worldbody>
  <body name="arm" pos="0 0 1"><joint name="a" axis="0 1 0" {a}/>
    <geom type="capsule" size=".04" fromto="0 0 0 .4 0 0"/><site name="arm" pos=".2 0 .1"/>
    <body name="fore" pos=".4 0 0"><joint name="b" axis="0 1 .3" {b}/>
      <geom type="capsule" size=".03" fromto="0 0 0 .3 0 .02"/>
      <body name="tip" pos=".3 0 0"><joint name="c" type="ball" {c}/>
        <geom type="box" size=".06 .05 .04" pos=".02 .01 0"/><site name="tip" pos=".05 0 .02" euler="10 20 30"/>
  </body></body></body>
  <body name="box" pos=".8 .1 1.1" euler="10 30 20"><freejoint/>
    <geom type="box" size=".1 .07 .05"/><site name="box" pos=".02 .05 .01" euler="0 30 0"/></body>
</worldbody>
{more}
<actuator><motor joint="a" gear="2"/><velocity joint="b" kv=".3"/></actuator></mujoco>"""

TENDONS = """<tendon><spatial name="rope" {rope}><site site="tip"/><site site="box"/></spatial>
<fixed name="sum" {sum}><joint joint="a" coef="1"/><joint joint="b" coef="-.6"/></fixed></tendon>"""

TOUCHING = """<mujoco><option timestep=".004" impratio="2"/>
<default><geom condim="{dim}" friction=".7 .02 .01" density="500" contype="0"/><joint damping=".2"/></default>
<worldbody>
  <geom type="plane" size="5 5 1" contype="1"/>
  <body pos="0 0 .098"><freejoint/><geom type="ellipsoid" size=".2 .15 .1" solimp=".8 .95 .01 .4 3"/>
    <body pos=".1 0 .2"><joint name="a" axis="0 1 0"/><geom type="capsule" size=".04" fromto="0 0 0 0 .1 .3"/></body>
  </body>
  <body pos="1 0 .078"><joint name="x" type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
    <joint name="b" axis="0 1 0"/><geom size=".08" solref=".03 .8"/></body>
</worldbody>
<actuator><motor joint="a" gear="2"/><velocity joint="b" kv=".3"/></actuator></mujoco>"""


def linked(a: str = "", b: str = "", c: str = "", more: str = "") -> str:
    return LINKED.format(a=a, b=b, c=c, more=more)


def tendons(rope: str = "", total: str = "", equality: str = "") -> str:
    return linked(more=TENDONS.format(rope=rope, sum=total) + f"<equality>{equality}</equality>")


MODELS = {
    "connect": linked(more='<equality><connect body1="box" body2="tip" anchor="-.1 0 .05"/></equality>'),
    "weld": linked(
        more='<equality><weld body1="box" body2="tip" torquescale="1.7"/><weld site1="arm" site2="box"/></equality>'
    ),
    "joint equality": linked(
        more='<equality><joint joint1="a" joint2="b" polycoef=".1 .5 -.3 .2 .1"/><joint joint1="b"/></equality>'
    ),
    "tendon equality": tendons(equality='<tendon tendon1="rope" tendon2="sum" polycoef=".1 .4 .1 0 0"/>'),
    "dof friction": linked(a='frictionloss=".4"', b='frictionloss="9"', c='frictionloss=".02"'),
    "tendon friction": tendons('frictionloss="30"', 'frictionloss=".2"'),
    "joint limit": linked(a='limited="true" range="-80 -2"', b='limited="true" range="-1 4" margin=".1"'),
    "ball limit": linked(c='limited="true" range="0 4" solimplimit=".8 .95 .2 .3 3"'),
    "tendon limit": tendons('limited="true" range=".01 .05"', 'limited="true" range="1.5 3"'),
    "contact 1": TOUCHING.format(dim=1),
    "contact 3": TOUCHING.format(dim=3),
    "contact 4": TOUCHING.format(dim=4),
    "contact 6": TOUCHING.format(dim=6),
}

# name -> options; noslip sweeps to its fixed point, whose derivative is taken. Each body touches in one point: two
# contacts that stick together can push each other, and the sweeps take a million rounds to settle how hard
SOLVERS: dict[str, dict[str, Any]] = {
    "newton": {"solver": Solver.NEWTON},
    # these converge linearly: a small improvement is no sign of the optimum
    "cg": {"solver": Solver.CG, "iterations": 2000, "tolerance": 0.0},
    "pgs": {"solver": Solver.PGS, "iterations": 5000, "tolerance": -1.0},
    "noslip": {"solver": Solver.NEWTON, "noslip_iterations": 300, "noslip_tolerance": -1.0},
}


class Combination(NamedTuple):
    """One entry of the matrix."""

    family: str
    cone: Cone
    solver: str
    integrator: Integrator


def name_of(entry: Combination) -> str:
    return f"{entry.family} {entry.cone.name.lower()} {entry.solver} {entry.integrator.name.lower()}"


def combinations(full: bool) -> list[Combination]:
    """The entries; the cone matters to contacts with friction only, noslip to all friction."""
    entries = []
    for family, solver, integrator in itertools.product(MODELS, SOLVERS, Integrator):
        has_cone = family.startswith("contact") and family != "contact 1"
        idle = solver == "noslip" and not (has_cone or family.endswith("friction"))
        if not idle and (full or solver == "newton" or integrator == Integrator.EULER):
            cones = Cone if has_cone else (Cone.PYRAMIDAL,)
            entries += [Combination(family, cone, solver, integrator) for cone in cones]
    return entries


class Outcome(NamedTuple):
    """Worst relative errors against differences and between the modes; groups compared, groups without an agreement."""

    difference: float
    modes: float
    compared: int
    unresolved: tuple[str, ...]


Variation = dict[str, Any]


@functools.cache
def load(family: str) -> diffsim.Model:
    return diffsim.load(MODELS[family])


def make(entry: Combination, steps: int, compiled: Any) -> tuple[Any, Any, diffsim.Model, Variation]:
    """Values of many variations, (tangent, gradient, number of steps with loaded rows), model, zero variation."""
    options = {"cone": entry.cone, "integrator": entry.integrator, **SOLVERS[entry.solver]}
    model = load(entry.family)
    opt = {"tolerance": 1e-15, "iterations": 200, "ls_iterations": 100} | options
    if steps > 1:
        # the tail of slow convergence matters to 1e-6, and takes its time; here sweeps end where they gain rounding
        opt["iterations"], opt["tolerance"] = min(opt["iterations"], 1000), max(opt["tolerance"], 1e-26)
    model = model.replace(opt=model.opt.replace(**opt))
    weight = jnp.asarray(np.random.default_rng(7).normal(size=(2, model.nv)))

    def result(variation: Variation, state: diffsim.State) -> tuple[Array, Array]:
        changed = jax.tree.map(lambda leaf, part: leaf * (1 + part), model, variation["model"])
        qpos = integrate_position(model, state.qpos, variation["qpos"], jnp.ones(()))
        moved = state.replace(qpos=qpos, qvel=state.qvel + variation["qvel"])
        inputs = diffsim.make_inputs(model).replace(ctrl=variation["ctrl"] + 0.3, qfrc_applied=variation["force"])

        def advance(now: diffsim.State, _: None) -> tuple[diffsim.State, Array]:
            data = diffsim.forward(changed, now, inputs)
            return diffsim.integrate(changed, now, inputs, data), jnp.any(jnp.abs(data.row_force) > 1e-6)

        after, loaded = jax.lax.scan(advance, moved, length=steps)
        total = weight[0] @ position_difference(model, after.qpos, state.qpos) + weight[1] @ after.qvel
        return total, jnp.sum(loaded)

    def derivatives(variation: Variation, way: Variation, state: diffsim.State) -> tuple[Array, Variation, Array]:
        _, tangent, loaded = jax.jvp(lambda v: result(v, state), (variation,), (way,), has_aux=True)
        return tangent, jax.grad(lambda v: result(v, state)[0])(variation), loaded

    zero = {"qpos": np.zeros(model.nv), "qvel": np.zeros(model.nv), "force": np.zeros(model.nv)}
    zero |= {"ctrl": np.zeros(model.nu), "model": jax.tree.map(np.zeros_like, model)}
    values = jax.vmap(lambda variation, state: result(variation, state)[0], (0, None))
    return compiled(values), compiled(derivatives), model, zero


def states(entry: Combination, model: diffsim.Model, seed: int) -> list[diffsim.State]:
    """Random states; contacts stay shallow."""
    rng = np.random.default_rng(seed)
    spread, speed = (1e-3, 0.3) if entry.family.startswith("contact") else (0.3, 1.0)
    start, found = diffsim.make_state(model), []
    for _ in range(TRIES):
        move = spread * rng.normal(size=model.nv)
        qpos = interpret(lambda v: integrate_position(model, start.qpos, v, jnp.ones(())), move)
        found.append(start.replace(qpos=qpos, qvel=jnp.asarray(speed * rng.normal(size=model.nv))))
    return found


def bar(steps: int) -> float:
    return BAR if steps == 1 else FAR


def difference(values: Any, way: Variation) -> tuple[float, float]:
    """The extrapolated central difference that agrees best with itself at half the step, and that disagreement."""
    steps = np.divide.outer(SIZES, (1, 2, 4))
    at = np.concatenate([steps.ravel(), -steps.ravel()])
    ahead, behind = np.asarray(values(jax.tree.map(lambda leaf: np.multiply.outer(at, leaf), way))).reshape(2, -1, 3)
    coarse, middle, fine = ((ahead - behind) / (2 * steps)).T
    first, second = (4 * middle - coarse) / 3, (4 * fine - middle) / 3
    spread, best = min(zip(np.abs(first - second), second, strict=True))
    return float(best), float(spread)


def check(entry: Combination, seed: int = 0, steps: int = 1, compiled: Any = jax.jit) -> Outcome:
    """Compares all groups of one entry, each in the first state that allows it."""
    values, derivatives, model, zero = make(entry, steps, compiled)
    rng = np.random.default_rng(seed)
    left, worst, modes = list(zero), 0.0, 0.0
    for state in states(entry, model, seed):
        for group in list(left):
            random = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape), zero[group])
            way = {**zero, group: random}
            tangent, gradient, loaded = derivatives(zero, way, state)
            if 2 * int(loaded) <= steps:
                break
            reverse = sum(np.vdot(a, b) for a, b in zip(*map(jax.tree.leaves, (gradient, way)), strict=True))
            scale = max(1.0, abs(float(tangent)))
            modes = max(modes, abs(float(reverse - tangent)) / scale)
            best, spread = difference(lambda v, s=state: values(v, s), way)
            if spread <= 0.3 * bar(steps) * scale:
                worst = max(worst, abs(best - float(tangent)) / scale)
                left.remove(group)
        if not left:
            break
    return Outcome(worst, modes, len(zero) - len(left), tuple(left))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--full", action="store_true", help="the whole product of solvers and integrators")
    parser.add_argument("--only", default="", help="entries whose name contains this: family, cone, solver, integrator")
    parser.add_argument("--steps", type=int, default=1)
    options = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    entries = [entry for entry in combinations(options.full) if options.only in name_of(entry)]
    compared, failed, unresolved, worst = 0, 0, 0, 0.0
    for entry in tqdm(entries, mininterval=30):
        outcome = check(entry, options.seed, options.steps)
        compared += outcome.compared
        unresolved += len(outcome.unresolved)
        worst = max(worst, outcome.difference)
        wrong = outcome.difference > bar(options.steps) or outcome.modes > 1e-9
        failed += wrong
        if wrong or outcome.unresolved:
            print(f"{'WRONG' if wrong else 'unresolved'}: {name_of(entry)}: {outcome}", flush=True)
        jax.clear_caches()
    text = f"{len(entries)} combinations, {compared} comparisons, {failed} failures, {unresolved} unresolved"
    print(f"gradient matrix, seed {options.seed}, steps {options.steps}: {text}, worst {worst:.1e}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
