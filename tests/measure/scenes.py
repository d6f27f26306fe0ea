"""Five scenes of meshes, terrain and distance fields come to rest, beside C MuJoCo; one line each.

python -m tests.measure.scenes --only bowl nut --precision 64 --steps 2000

hand: the shadow hand closes around a falling stone. barkour: it stands on its height field. bowl: 30 convex meshes fall
into a bowl. stack: ten boxes that are meshes, each a centimetre aside. bolt: MuJoCo's nut on its bolt.

After 2,000 steps are compared, in float64 and float32:
- `energy`: of the scene, over its moving weight: m, as if all of it were lifted by so much.
- `depth`: of the deepest contact, m.
- `drift`: how far the centre of a body moves in the last tenth of the steps, m.
Energies and depths are within 1 mm of MuJoCo's, or of what MuJoCo itself makes of the scene when it starts 1e-9 m
elsewhere (`own`, the largest of several such starts: a pile falls in another way each time); drift is at most twice
MuJoCo's, and a tenth of a millimetre more.
"""

import argparse
import sys
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from oracle import mujoco

import diffsim
from tests.measure.scene_models import SCENES, Scene

# metres: of energies and depths, of drift, of other starts, and how many of these
BAR, DRIFT, AWAY, STARTS = 1e-3, 1e-4, 1e-9, 13


class Rest(NamedTuple):
    """Energy over the moving weight, deepest contact, and drift, m."""

    energy: float
    depth: float
    drift: float


def weight(mjmodel: Any) -> float:
    """Of all bodies that move, N."""
    moving = mjmodel.body_dofnum[mjmodel.body_rootid] > 0
    return float(np.sum(mjmodel.body_mass * moving) * np.linalg.norm(mjmodel.opt.gravity))


def theirs(scene: Scene, steps: int, away: float) -> Rest:
    """What MuJoCo makes of a scene that starts a little elsewhere."""
    data = mujoco.MjData(scene.mjmodel)
    data.qpos[:], data.ctrl[:] = scene.qpos, scene.ctrl
    data.qpos[-7:-4] += away
    mujoco.mj_step(scene.mjmodel, data, steps - steps // 10)
    before = data.xipos.copy()
    mujoco.mj_step(scene.mjmodel, data, steps // 10)
    mujoco.mj_forward(scene.mjmodel, data)
    depth = -data.contact.dist.min(initial=0)
    return Rest(data.energy.sum() / weight(scene.mjmodel), depth, np.abs(data.xipos - before).max())


def ours(scene: Scene, steps: int) -> Rest:
    """What we make of it."""
    model = diffsim.from_mujoco(scene.mjmodel, max_contacts=scene.contacts, max_pairs=4 * scene.contacts)
    state = diffsim.make_state(model).replace(qpos=jnp.asarray(scene.qpos, model.qpos0.dtype))
    ctrl = jnp.asarray(scene.ctrl, model.qpos0.dtype)

    @jax.jit
    def run(state: diffsim.State) -> tuple:
        rows = [jnp.broadcast_to(ctrl, (count, model.nu)) for count in (steps - steps // 10, steps // 10)]
        middle = diffsim.rollout(model, state, rows[0], readout=lambda s, d: d.ncon_dropped)
        final = diffsim.rollout(model, middle.final, rows[1], readout=lambda s, d: d.ncon_dropped)
        ends = [diffsim.forward(model, each.final) for each in (middle, final)]
        return ends, jnp.maximum(jnp.max(middle.readouts), jnp.max(final.readouts))

    (before, after), dropped = run(state)
    assert int(dropped) == 0, f"{int(dropped)} contacts did not fit"
    used = (np.asarray(after.contact.geom)[:, 0] >= 0) & (np.asarray(after.contact.dist) < 0)
    depth = -np.asarray(after.contact.dist)[used].min(initial=0)
    drift = np.abs(np.asarray(after.xipos) - np.asarray(before.xipos)).max()
    return Rest(float(jnp.sum(after.energy)) / weight(scene.mjmodel), float(depth), float(drift))


def said(rest: Rest) -> str:
    """In words."""
    return f"energy {rest.energy:.6f} depth {rest.depth:.6f} drift {rest.drift:.1e}"


def main() -> int:
    """Prints a line for each scene and precision; 1 if one fails."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", default=list(SCENES))
    parser.add_argument("--precision", type=int, nargs="*", default=[64, 32])
    parser.add_argument("--steps", type=int, default=2000)
    asked = parser.parse_args()
    failed = False
    for name in asked.only:
        scene = SCENES[name]()
        its, *others = [theirs(scene, asked.steps, k * AWAY) for k in range(STARTS)]
        own = np.abs(np.array(others) - np.array(its)).max(axis=0)
        print(
            f"{name}: MuJoCo energy {its.energy:.6f} depth {its.depth:.6f} drift {its.drift:.1e}; own {own}", flush=True
        )
        for precision in asked.precision:
            with jax.enable_x64(precision == 64):
                mine = ours(scene, asked.steps)
            off = np.abs(np.array(mine) - np.array(its))
            good = bool(np.all(off[:2] <= np.maximum(BAR, own[:2]))) and mine.drift <= 2 * its.drift + DRIFT
            failed |= not good
            numbers = (
                f"energy {mine.energy:.6f} depth {mine.depth:.6f} drift {mine.drift:.1e}, off {off[0]:.1e} {off[1]:.1e}"
            )
            print(f"{name}, float{precision}: {numbers}" + ("" if good else " FAILED"), flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
