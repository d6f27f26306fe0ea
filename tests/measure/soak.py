"""Long runs, one line of counts each, beside C MuJoCo where it has an answer; fails on any finding.

python -m tests.measure.soak --only energy boxes
"""

import argparse
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Callable

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

import diffsim
from diffsim import support
from diffsim.cli import find_model
from tests.measure.soak_models import BOXES, HOSTILE, PENDULUM, SPINNER

HUMANOID = "mujoco/mjx/test_data/humanoid/humanoid.xml"
# MiB that many loads and compilations may leave behind
GROWTH = 200.0


def line(name: str, good: bool, **numbers: object) -> bool:
    """Prints the counts of one run."""
    print(f"SOAK {name}", *(f"{key}={value}" for key, value in numbers.items()), "" if good else "FAILED", flush=True)
    return good


def marched(model: diffsim.Model, state: diffsim.State, steps: int) -> diffsim.Rollout:
    """A rollout without controls and readouts."""
    ctrl = jnp.zeros((steps, model.nu))
    return jax.jit(lambda s: diffsim.rollout(model, s, ctrl, readout=lambda s, d: ()))(state)


def energies(xml: str, speed: np.ndarray, steps: int) -> tuple[float, float]:
    """Relative change of energy over a run in float64: ours, and C MuJoCo's."""
    mjmodel = mujoco.MjModel.from_xml_string(xml)
    data = mujoco.MjData(mjmodel)
    data.qvel[:] = speed
    mujoco.mj_forward(mjmodel, data)
    start = data.energy.sum()
    with jax.enable_x64(True):
        model = diffsim.load(xml)
        state = diffsim.make_state(model).replace(qvel=speed)
        final = marched(model, state, steps).final
        ours = float(jnp.sum(diffsim.forward(model, final).energy))
    for _ in range(steps):
        mujoco.mj_step(mjmodel, data)
    mujoco.mj_forward(mjmodel, data)
    return abs(ours / start - 1), abs(data.energy.sum() / start - 1)


def energy() -> bool:
    """Energy of a double pendulum and of an asymmetric free body over 100,000 steps of RK4."""
    good = True
    for name, xml, speed in (
        ("pendulum", PENDULUM, np.array([1.0, -2.0])),
        ("free body", SPINNER, np.r_[0:3, 1, 9, 2.0]),
    ):
        ours, theirs = energies(xml, speed, 100_000)
        good &= line(f"energy of a {name}", ours < 1.1 * theirs + 1e-9, ours=f"{ours:.2e}", mujoco=f"{theirs:.2e}")
    return good


def boxes() -> bool:
    """Ten stacked boxes over 10,000 steps in float32: they stand where C MuJoCo's stand."""
    mjmodel = mujoco.MjModel.from_xml_string(BOXES)
    data = mujoco.MjData(mjmodel)
    mujoco.mj_step(mjmodel, data, 10_000)
    model = diffsim.load(BOXES)
    result = marched(model, diffsim.make_state(model), 10_000)
    away = np.abs(np.asarray(result.final.qpos) - data.qpos).reshape(-1, 7)[:, :3].max()
    speed = float(jnp.abs(result.final.qvel).max())
    good = away < 1e-3 and speed < 1e-3 and not bool(jnp.any(diffsim.is_bad(result)))
    return line("ten boxes", good, apart=f"{away:.1e}m", speed=f"{speed:.1e}", mujoco=f"{np.abs(data.qvel).max():.1e}")


def humanoids() -> bool:
    """64 humanoids with random controls over 10,000 steps in float32: what is bad in ours and in C MuJoCo."""
    path, worlds, steps = str(find_model(HUMANOID)), 64, 10_000
    model, mjmodel = diffsim.load(path), mujoco.MjModel.from_xml_path(path)
    ctrl = np.random.default_rng(0).uniform(-1, 1, (steps // 50, worlds, mjmodel.nu)).astype(np.float32)
    one = diffsim.make_state(model)
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (worlds, *x.shape)), one)

    def advance(carry: tuple[diffsim.State, jax.Array], row: jax.Array) -> tuple[tuple[diffsim.State, jax.Array], None]:
        def repeated(state: diffsim.State, ctrl: jax.Array) -> diffsim.Rollout:
            return diffsim.rollout(model, state, jnp.tile(ctrl, (50, 1)), readout=lambda s, d: ())

        result = jax.vmap(repeated)(carry[0], row)
        return (result.final, carry[1] + diffsim.is_bad(result)), None

    start = (states, jnp.zeros(worlds, jnp.int32))
    (final, bad), _ = jax.jit(lambda c: jax.lax.scan(advance, start, c))(jnp.asarray(ctrl))
    heights, warned = [], 0
    for world in range(worlds):
        data = mujoco.MjData(mjmodel)
        for row in ctrl[:, world]:
            data.ctrl[:] = row
            mujoco.mj_step(mjmodel, data, 50)
        heights.append(data.qpos[2])
        warned += int(data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number > 0)
    ours = np.asarray(final.qpos[:, 2])
    finite = int(np.isfinite(np.asarray(final.qpos)).all(axis=1).sum())
    good = finite == worlds and int(bad.sum()) == 0 and abs(ours.mean() - np.mean(heights)) < 0.1
    height = f"{ours.mean():.3f}/{np.mean(heights):.3f}m"
    return line("64 humanoids", good, finite=finite, bad=int((bad > 0).sum()), mujoco_bad=warned, height=height)


def resident() -> float:
    """MiB that this process holds."""
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def memory() -> bool:
    """1,000 loads, and 100 compilations with `jax.clear_caches()` after each ten."""

    def load(k: int) -> None:
        diffsim.load(PENDULUM.replace('timestep=".001"', f'timestep=".001{k}"').replace("upper", f"upper{k}"))

    def compiled(k: int) -> None:
        xml = PENDULUM.replace("upper", f"upper{k}")
        model = diffsim.load(xml)
        jax.jit(diffsim.step)(model, diffsim.make_state(model)).qpos.block_until_ready()
        if k % 10 == 9:
            jax.clear_caches()

    good = True
    for name, count, work in (("loads", 1000, load), ("compilations", 100, compiled)):
        for k in range(20):
            work(k)
        before = resident()
        for k in range(count):
            work(k)
        grown = resident() - before
        good &= line(f"memory of {count} {name}", grown < GROWTH, grown=f"{grown:.0f}MiB")
    return good


def motion() -> bytes:
    """qpos of 16 humanoids after 50 steps, as bytes."""
    model = diffsim.load(find_model(HUMANOID))
    states = jax.tree.map(lambda x: jnp.stack([x] * 16), diffsim.make_state(model))
    now = states.replace(qvel=0.1 * jnp.cos(jnp.arange(16 * model.nv, dtype=jnp.float32)).reshape(16, -1))
    step = jax.jit(jax.vmap(diffsim.step, in_axes=(None, 0)))
    for _ in range(50):
        now = step(model, now)
    return np.asarray(now.qpos).tobytes()


# children that a process forks before its first computation
FORKED = """
import os, sys
sys.path[:0] = [{here!r}, {here!r} + "/tests"]
from tests.measure import soak
children = []
for _ in range(2):
    reader, writer = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writer, "wb") as out:
            out.write(soak.motion())
        os._exit(0)
    os.close(writer)
    children.append(reader)
for reader in children:
    sys.stdout.buffer.write(os.fdopen(reader, "rb").read())
"""


def repeatable() -> bool:
    """The same motion bitwise: run again, in four threads at once, and in two forks of another process."""
    expected = motion()
    found = [motion()]
    threads = [threading.Thread(target=lambda: found.append(motion())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    script = FORKED.format(here=str(pathlib.Path(__file__).parents[2]))
    forked = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout
    found += [forked[: len(expected)], forked[len(expected) :]]
    different = sum(one != expected for one in found)
    return line("the same bits", different == 0 and len(found) == 7, runs=len(found), different=different)


def residual(model: diffsim.Model, data: diffsim.Data, qacc: jax.Array) -> jax.Array:
    """How far an acceleration is from the optimum: the norm of the objective's gradient, beside that of the forces."""
    smooth = support.mul_m(model, data, qacc - data.qacc_smooth)
    gradient = smooth + support.constraint_gradient(model, data, qacc)
    return jnp.linalg.norm(gradient) / (1 + jnp.linalg.norm(data.qfrc_smooth))


def hostile() -> bool:
    """Models that are hard to solve: finite or flagged, and no farther from the optimum than C MuJoCo, or than 1e-8."""
    with jax.enable_x64(True):
        # all of them, also after a finding
        return not [name for name, xml in HOSTILE.items() if not solved(name, xml)]


def solved(name: str, xml: str) -> bool:
    """One of them, at states that C MuJoCo visits."""
    mjmodel = mujoco.MjModel.from_xml_string(xml)
    data, model = mujoco.MjData(mjmodel), diffsim.load(xml)
    run, distance = jax.jit(diffsim.forward), jax.jit(residual)
    states = flagged = silent = above = 0
    worst = 0.0
    for _ in range(20):
        mujoco.mj_step(mjmodel, data, 10)
        state = diffsim.make_state(model).replace(qpos=data.qpos, qvel=data.qvel, time=data.time)
        state = state.replace(qacc_warmstart=data.qacc_warmstart)
        mujoco.mj_forward(mjmodel, data)
        ours = run(model, state)
        mine, theirs = (float(distance(model, ours, jnp.asarray(a))) for a in (ours.qacc, data.qacc))
        bad = bool(diffsim.is_bad(ours))
        states, flagged, silent = states + 1, flagged + bad, silent + (not np.isfinite(mine) and not bad)
        above, worst = above + (mine > max(1.1 * theirs, 1e-8)), max(worst, mine)
    good = silent == 0 and above == 0
    return line(
        f"hostile {name}", good, states=states, flagged=flagged, silent=silent, above=above, worst=f"{worst:.1e}"
    )


RUNS: dict[str, Callable[[], bool]] = {
    run.__name__: run for run in (energy, boxes, humanoids, memory, repeatable, hostile)
}


def main() -> int:
    """Runs them; 1 if anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", default=list(RUNS), choices=list(RUNS))
    return int(bool([name for name in parser.parse_args().only if not RUNS[name]()]))


if __name__ == "__main__":
    sys.exit(main())
