"""MuJoCo's own sleeping models beside it: the same trees asleep at the same steps, and where they are.

python -m tests.measure.sleep --models /work/mj381 --steps 1000 --only tendon

For each file of model/sleep and test/engine/testdata/sleep (perf/ too) a line: steps until both would part by rounding
(where a twin of MuJoCo, begun 1e-12 to one side or the other, is 1e-7 from it, or sleeps otherwise), greatest
difference of qpos and qvel up to there, and whether `tree_asleep` was equal in each of these steps. Fails if it was
not, or if they differ by more than 1e-6. Where geoms begin in exact touch rounding says whether they do, and twins part
at once: there all begin MOVED away. `--rk4` has all of them move by Runge-Kutta, until one falls asleep: MuJoCo wakes
it a step later, for it makes velocities within the step of accelerations that are left over; ours sleeps on. `--rest`
prints what a step of 100 humanoids costs where all sleep, as a fraction of one where they are awake.
"""

import argparse
import pathlib
import time

import jax
import numpy as np
from oracle import mujoco

import diffsim
from diffsim.base.enums import Integrator

CLOSE, PARTED, APART = 1e-6, 1e-7, 1e-12
# where twins part within so many steps, they begin as far away as this
FEW, MOVED = 10, 1e-5
STATE = ("qpos", "qvel", "tree_asleep")
CONVERGED = {"tolerance": 1e-15, "iterations": 300, "ls_iterations": 100, "ls_tolerance": 1e-6}
# MuJoCo's search for contacts: its tolerance of 1e-6 m is what states would differ by
SEARCH = {"ccd_tolerance": 1e-12, "ccd_iterations": 500}


def twins(mjmodel: mujoco.MjModel, steps: int, moved: float) -> tuple[np.ndarray, list[dict[str, np.ndarray]], int]:
    """Where MuJoCo begins, its states after each step, and how many of them two twins have too that began APART."""
    worlds = [mujoco.MjData(mjmodel) for _ in range(3)]
    awake = np.array(worlds[0].tree_awake, bool)[mjmodel.dof_treeid]
    push = np.random.default_rng(0).normal(size=mjmodel.nv) * awake
    for data, far in zip(worlds, (moved, moved + APART, moved - APART), strict=True):
        mujoco.mj_integratePos(mjmodel, data.qpos, push, far)
    start, states = worlds[0].qpos.copy(), []
    for step in range(steps):
        for data in worlds:
            mujoco.mj_step(mjmodel, data)
        found, *others = [{name: np.array(getattr(data, name)) for name in STATE} for data in worlds]
        for other in others:
            far = max(np.max(np.abs(found[name] - other[name]), initial=0) for name in ("qpos", "qvel"))
            if far > PARTED or not np.array_equal(found["tree_asleep"], other["tree_asleep"]):
                return start, states, step
        states.append(found)
        fallen = (found["tree_asleep"] >= 0) & (states[max(step - 1, 0)]["tree_asleep"] < 0)
        if mjmodel.opt.integrator == Integrator.RK4 and fallen.any():
            return start, states, step + 1
    return start, states, steps


def compare(path: pathlib.Path, steps: int, runge_kutta: bool) -> bool:
    """Prints the line of a file; whether all is well."""
    try:
        mjmodel = mujoco.MjModel.from_xml_path(str(path))
    except ValueError:
        try:
            diffsim.load(str(path))
        except diffsim.MjcfError:
            print(f"{path.stem:20s} refused by both", flush=True)
            return True
        print(f"{path.stem:20s} MuJoCo refuses it, we do not", flush=True)
        return False
    model, moved = diffsim.load(str(path)), 0.0
    if runge_kutta:
        mjmodel.opt.integrator = Integrator.RK4
        model = model.replace(opt=model.opt.replace(integrator="RK4"))
    # solvers run to convergence: at MuJoCo's tolerance they part from ours, but not from one another
    for name, value in (CONVERGED | SEARCH).items():
        setattr(mjmodel.opt, name, value)
    model = model.replace(opt=model.opt.replace(**CONVERGED))
    start, states, until = twins(mjmodel, steps, moved)
    if until < FEW:
        moved = MOVED
        start, states, until = twins(mjmodel, steps, moved)
    state, step = diffsim.make_state(model), jax.jit(diffsim.step)
    # a tree that is not where it fell asleep, to the last bit, wakes: qpos0 differs by rounding
    qpos = np.asarray(state.qpos)
    state = state.replace(qpos=np.where(np.abs(start - qpos) < APART / 10, qpos, start))
    worst, same = 0.0, 0
    for theirs in states:
        state = step(model, state)
        gaps = [np.abs(np.asarray(getattr(state, name)) - theirs[name]) for name in ("qpos", "qvel")]
        worst = max(worst, *(float(np.max(gap, initial=0)) for gap in gaps))
        same += bool(model.nv == 0 or np.array_equal(state.tree_asleep, theirs["tree_asleep"]))
    awake = int(np.sum(state.tree_awake))
    print(
        f"{path.parent.name}/{path.stem:20s} {until:5d} steps until chaos, {same:5d} with the same trees asleep, "
        f"differ by {worst:.1e}, {awake} of {model.ntree} trees awake at last"
        + (f", begun {moved} away" if moved else ""),
        flush=True,
    )
    return same == until and worst <= CLOSE


def cost_at_rest(path: pathlib.Path) -> None:
    """Prints the fraction of a step's time that it takes where all trees sleep."""
    model = diffsim.load(str(path))
    awake = diffsim.make_state(model)
    step = jax.jit(diffsim.step)
    resting = awake.replace(tree_asleep=np.arange(model.ntree), qvel=np.zeros(model.nv))
    seconds = []
    for state in (resting, awake.replace(tree_asleep=np.full(model.ntree, -11))):
        jax.block_until_ready(step(model, state))
        times = []
        for _ in range(5):
            start = time.perf_counter()
            jax.block_until_ready(step(model, state))
            times.append(time.perf_counter() - start)
        seconds.append(sorted(times)[2])
    asleep, moving = seconds
    print(f"{path.stem}: asleep {1e3 * asleep:.2f} ms a step, awake {1e3 * moving:.1f}: {asleep / moving:.1%}")


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path("/work/mj381"))
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--only", default="")
    parser.add_argument("--rk4", action="store_true")
    parser.add_argument("--rest", action="store_true")
    args = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if args.rest:
        cost_at_rest(args.models / "model/sleep/100_humanoids.xml")
        return
    folders = [args.models / "model/sleep", args.models / "test/engine/testdata/sleep"]
    files = [path for folder in folders for path in sorted(folder.rglob("*.xml")) if args.only in str(path)]
    good = [compare(path, args.steps, args.rk4) for path in files]
    print(f"sleep: {sum(good)} of {len(good)} files as MuJoCo's")
    raise SystemExit(not all(good))


if __name__ == "__main__":
    main()
