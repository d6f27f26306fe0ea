"""`optimize.fit` beside `mujoco.sysid`: the same arm, unknowns, recording, first state and least squares.

    make measure WHAT=sysid        # needs tabulate and plotly, which mujoco.sysid imports

The arm is that of mujoco.sysid's own test, five joints whose armature and damping are unknown; first states are known,
as mujoco.sysid wants them. A simulated step is one of a rollout, those that fill a program's last rows included; a
Jacobian of ours counts as one more for each step that it linearizes, and mujoco.sysid's as the rollouts of its
differences.
"""

import importlib.util
import sys
import time
from typing import Any
from unittest import mock

import jax

jax.config.update("jax_enable_x64", True)

import mujoco  # noqa: E402
import numpy as np  # noqa: E402

import diffsim  # noqa: E402
from diffsim import optimize  # noqa: E402
from diffsim.optimize.identify import problem  # noqa: E402
from diffsim.optimize.identify.residuals import CHUNK, Derivatives, Motions  # noqa: E402

JOINTS, ROWS, NOISE = 5, 500, 1e-3
ARMATURE, DAMPING = (0.5, 0.4, 0.3, 0.2, 0.1), (1.0, 0.8, 0.6, 0.4, 0.2)
GUESS = 0.05


def xml(armature: tuple[float, ...], damping: tuple[float, ...]) -> str:
    """An arm of five links, whose axes are upright or across."""
    bodies = "".join(
        f'<body name="link{i}" pos="0 0 .1">'
        f'<inertial pos="0 0 .05" mass="{1 - 0.18 * i:.3f}" diaginertia=".01 .01 .005"/>'
        f'<joint name="joint{i}" axis="0 {int(i in (1, 2, 4))} {int(i in (0, 3))}" armature="{armature[i]}" '
        f'damping="{damping[i]}"/><geom type="capsule" fromto="0 0 0 0 0 .1" size=".03"/>'
        for i in range(JOINTS)
    )
    motors = "".join(f'<motor name="act{i}" joint="joint{i}"/>' for i in range(JOINTS))
    sensors = "".join(f'<jointpos name="q{i}" joint="joint{i}"/>' for i in range(JOINTS))
    return (
        '<mujoco><option integrator="implicitfast" timestep=".004"><flag contact="disable"/></option><worldbody>'
        f"{bodies}{'</body>' * JOINTS}</worldbody><actuator>{motors}</actuator><sensor>{sensors}</sensor></mujoco>"
    )


def recorded() -> tuple[np.ndarray, np.ndarray]:
    """Controls (rows, nu) and noisy readings of C MuJoCo."""
    model = mujoco.MjModel.from_xml_string(xml(ARMATURE, DAMPING))
    data, t = mujoco.MjData(model), model.opt.timestep * np.arange(ROWS)[:, None]
    ctrl = np.asarray([5, 4, 3, 2, 1.0]) * np.sin(
        2 * np.pi * np.asarray([0.5, 0.7, 0.4, 0.9, 0.6]) * t + np.arange(5) / 2
    )
    seen = []
    for row in ctrl:
        data.ctrl[:] = row
        mujoco.mj_step(model, data)
        seen.append(data.sensordata.copy())
    return ctrl, np.asarray(seen) + NOISE * np.random.default_rng(0).normal(size=(ROWS, JOINTS))


def ours(ctrl: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, int, float, float]:
    """Numbers, simulated steps, seconds with and without compilation."""
    model = diffsim.load(xml((GUESS,) * JOINTS, (GUESS,) * JOINTS))
    recording = optimize.make_recording(model, ctrl, seen, np.zeros((ROWS, JOINTS)), np.zeros((ROWS, JOINTS)))
    unknowns = [optimize.Unknown(name, lower=1e-3, upper=2) for name in ("dof_armature", "dof_damping")]
    counted, times = [0], []
    simulate, differentiate = problem.motions, problem.derivatives

    def filled(states: diffsim.State) -> int:
        return -(-(states.qpos.shape[1] - 1) // CHUNK) * CHUNK

    def motions(*where: Any) -> Motions:
        moved = simulate(*where)
        counted[0] += filled(moved.states)
        return moved

    def derivatives(*where: Any) -> Derivatives:
        counted[0] += filled(where[-1])
        return differentiate(*where)

    for _ in range(3):
        with mock.patch.multiple(problem, motions=motions, derivatives=derivatives):
            counted[0], begin = 0, time.perf_counter()
            result = optimize.fit(model, recording, unknowns, NOISE, optimize.Fit(known_start=True))
            times.append(time.perf_counter() - begin)
    return result.identified.values, counted[0], times[0], min(times[1:])


def theirs(ctrl: np.ndarray, seen: np.ndarray) -> tuple[np.ndarray, int, float]:
    """Numbers, simulated steps, seconds of mujoco.sysid."""
    from mujoco import sysid

    spec = mujoco.MjSpec.from_string(xml((GUESS,) * JOINTS, (GUESS,) * JOINTS))
    model = spec.compile()
    data, t = mujoco.MjData(model), model.opt.timestep * np.arange(ROWS)
    params = sysid.ParameterDict()
    for field in ("armature", "damping"):
        for i in range(JOINTS):

            def put(spec: mujoco.MjSpec, value: object, i: int = i, field: str = field) -> None:
                number = value.value[0]  # type: ignore[attr-defined]
                # damping is a polynomial there
                setattr(spec.joint(f"joint{i}"), field, [number, 0, 0] if field == "damping" else number)

            params.add(sysid.Parameter(f"{field}{i}", nominal=GUESS, min_value=1e-3, max_value=2.0, modifier=put))
    state = sysid.create_initial_state(model, data.qpos, data.qvel, data.act)
    # readings of its rollouts bear the time after a step, and are those before it
    signals = sysid.TimeSeries.from_names(t[1:], seen[:-1], model)
    sequences = sysid.ModelSequences("arm", spec, "sines", state, sysid.TimeSeries(t, ctrl), signals)
    residual, counted = sysid.build_residual_fn(models_sequences=[sequences]), [0]

    def count(x: np.ndarray, *args: object, **kwargs: object) -> object:
        counted[0] += ROWS * (x.shape[1] if np.ndim(x) > 1 else 1)
        return residual(x, *args, **kwargs)

    begin = time.perf_counter()
    best, _ = sysid.optimize(initial_params=params, residual_fn=count, optimizer="mujoco", verbose=False)
    spent = time.perf_counter() - begin
    values = [best[f"{field}{i}"].value[0] for field in ("armature", "damping") for i in range(JOINTS)]
    return np.asarray(values), counted[0], spent


def main() -> None:
    """One line of each."""
    missing = [name for name in ("tabulate", "plotly") if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(f"mujoco.sysid needs {' and '.join(missing)}, which are not installed here")
    ctrl, seen = recorded()
    truth = np.asarray([*ARMATURE, *DAMPING])
    values, steps, first, again = ours(ctrl, seen)
    error = float(np.max(np.abs(values / truth - 1)))
    print(f"diffsim: worst error {error:.2%}, {steps} steps, {first:.1f} s, again {again:.2f} s", flush=True)
    values, other, spent = min((theirs(ctrl, seen) for _ in range(2)), key=lambda run: run[2])
    worst = float(np.max(np.abs(values / truth - 1)))
    print(f"mujoco.sysid: worst error {worst:.2%}, {other} steps, {spent:.1f} s")
    print(f"mujoco.sysid over diffsim: steps {other / steps:.1f} (bar 10), time {spent / again:.1f} (bar 5)")


if __name__ == "__main__":
    main()
