"""`make mutations`: bugs seen in other engines, planted one at a time; each must be caught by the test named beside it.

python tests/mutations.py [--only TEXT]

Most leave every value as it is and spoil a derivative only, by `jax.lax.stop_gradient`. A mutation is applied to a copy
of the tree, in a temporary folder. One line each, one line of counts at the end; 1 if a bug goes unnoticed, or if the
text that it replaces is gone.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).parents[1]
MATRIX = "tests/gradient_matrix.py --only"
PYRAMID, WELD = (f"{MATRIX} '{entry} pyramidal newton euler'" for entry in ("contact 6", "weld"))
CONE = "tests/gradients/test_matrix.py"
IMPLICIT = "'tests/simulate/test_gradients.py::test_step_derivatives_match_differences[smooth-2]'"
SOLVER = "tests/solver/test_derivatives.py"
EULER = "tests/gradients/test_step.py"
RK4 = "'tests/simulate/test_gradients.py::test_step_derivatives_match_differences[spinning-1]'"


class Mutation(NamedTuple):
    """Replace `old` in diffsim/`file` by `new`, and `test` (arguments of pytest, or the command of a sweep) fails."""

    file: str
    old: str
    new: str
    test: str


def held(text: str) -> str:
    """The expression without derivatives, also in files that do not import jax."""
    return f"__import__('jax').lax.stop_gradient({text})"


MUTATIONS = {
    "M^-1 counted twice in the adjoint": Mutation(
        "solver/solve.py",
        "-solve_hessian_linear(objective, x, change)",
        "-solve_hessian_linear(objective, x, solve_hessian_linear(objective, x, change))",
        f"{SOLVER}::test_against_differences",
    ),
    "constraints missing in the Hessian of the adjoint": Mutation(
        "solver/solve.py",
        "-solve_hessian_linear(objective, x, change)",
        "-jax.numpy.linalg.solve(objective.qM.dense, change)",
        f"{SOLVER}::test_against_differences",
    ),
    "the step length of an unrolled iteration is held": Mutation(
        "solver/iteration.py",
        "-safe.divide(change, curvature), 0",
        "-0 * safe.divide(change, curvature), 0",
        f"{SOLVER}::test_unrolled_iterations_equal_differences",
    ),
    "edges of a pyramid cancel in the reference acceleration": Mutation(
        "constraint/rows.py", "-side * vel[i] for", f"{held('-side * vel[i]')} for", PYRAMID
    ),
    "friction coefficients carry no derivative": Mutation(
        "constraint/rows.py",
        "friction=contacts.friction[:, : dim - 1].T",
        f"friction={held('contacts.friction[:, : dim - 1].T')}",
        PYRAMID,
    ),
    "equalities do not depend on the state": Mutation(
        "constraint/rows.py",
        "ref.stiffness * ref.impedance * violation",
        f"ref.stiffness * ref.impedance * {held('violation')}",
        WELD,
    ),
    "Jdot v has no derivative": Mutation(
        "constraint/rows.py",
        "aref - raw.jacobian_dot_v",
        f"aref - {held('raw.jacobian_dot_v')}",
        WELD,
    ),
    "Jdot v is missing": Mutation(
        "constraint/rows.py",
        "aref - raw.jacobian_dot_v",
        "aref - 0 * raw.jacobian_dot_v",
        "tests/constraint/test_rows.py::test_rows_match",
    ),
    "Euler's implicit damping has no derivative": Mutation(
        "simulate/integrate/integrators.py",
        "    return _semi_implicit(model, state, data, qacc)\n\n\ndef euler_inertia",
        f"    qacc = data.qacc + {held('qacc - data.qacc')}\n"
        "    return _semi_implicit(model, state, data, qacc)\n\n\ndef euler_inertia",
        EULER,
    ),
    "(M - hD)^-1 M is missing in the derivative of implicit": Mutation(
        "simulate/integrate/integrators.py",
        "    return _semi_implicit(model, state, data, qacc)\n\n\ndef implicit_inertia",
        f"    qacc = data.qacc + {held('qacc - data.qacc')}\n"
        "    return _semi_implicit(model, state, data, qacc)\n\n\ndef implicit_inertia",
        IMPLICIT,
    ),
    "stages of Runge-Kutta share a state": Mutation(
        "simulate/integrate/runge_kutta.py",
        "qpos=integrate_position(model, state.qpos, slopes.path, h),",
        f"qpos=integrate_position(model, {held('state.qpos')}, slopes.path, h),",
        RK4,
    ),
    "ctrl has no derivative": Mutation(
        "actuator/actuators.py",
        "state.time, inputs.ctrl)",
        f"state.time, {held('inputs.ctrl')})",
        EULER,
    ),
    "xfrc_applied has no derivative": Mutation(
        "simulate/forward.py",
        "applied_force(model, inputs, kinematics, com)",
        f"applied_force(model, inputs.replace(xfrc_applied={held('inputs.xfrc_applied')}), kinematics, com)",
        IMPLICIT,
    ),
    "impratio has no derivative": Mutation(
        "constraint/rows.py",
        "    impratio = at_least(model.opt.impratio, MINVAL)\n",
        f"    impratio = {held('at_least(model.opt.impratio, MINVAL)')}\n",
        CONE,
    ),
    "impratio is ignored": Mutation(
        "constraint/rows.py",
        "    impratio = at_least(model.opt.impratio, MINVAL)\n",
        "    impratio = jnp.ones_like(model.opt.impratio)\n",
        "tests/constraint/test_options.py",
    ),
    "the length of free quaternions is not divided out": Mutation(
        "kinematics/joints.py",
        "quat_rate(qpos[3:], change[3:])]",
        "quat_rate(qpos[3:], change[3:]) * jnp.sum(qpos[3:] ** 2)]",
        "tests/simulate/test_gradients.py::test_quaternions_are_projected",
    ),
    "the length of ball quaternions is not divided out": Mutation(
        "kinematics/joints.py",
        "        return quat_rate(qpos, change)\n",
        "        return quat_rate(qpos, change) * jnp.sum(qpos**2)\n",
        "tests/simulate/test_gradients.py::test_quaternions_are_projected",
    ),
}


def caught(mutation: Mutation) -> bool:
    """Whether the named test fails on a tree with the bug; errors of collection do not count.

    Raises:
      LookupError: the text to replace is not there exactly once.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder)
        for name in ("diffsim", "tests"):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", copy)
        target = copy / "diffsim" / mutation.file
        text = target.read_text()
        if text.count(mutation.old) != 1:
            raise LookupError(f"{mutation.file} has {mutation.old!r} {text.count(mutation.old)} times")
        target.write_text(text.replace(mutation.old, mutation.new))
        sweep = mutation.test.startswith(MATRIX)
        command = f"{sys.executable} {'' if sweep else '-m pytest -x '}{mutation.test}"
        settings = {**os.environ, "PYTHONPATH": str(copy), "DIFFSIM_JAX_CACHE": str(copy / "cache")}
        run = subprocess.run(command, shell=True, cwd=copy, env=settings, capture_output=True, text=True)
    if run.returncode not in (0, 1):
        raise LookupError(f"{command}: {run.stdout[-500:]}")
    return run.returncode == 1 and ("WRONG" if sweep else "AssertionError") in run.stdout


def main() -> int:
    """Plants all mutations; 1 if one is not caught."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="mutations whose name contains this")
    options = parser.parse_args()
    chosen = {name: mutation for name, mutation in MUTATIONS.items() if options.only in name}
    missed = 0
    for name, mutation in chosen.items():
        found = caught(mutation)
        missed += not found
        print(f"{'caught' if found else 'MISSED'}: {name}, by {mutation.test}", flush=True)
    print(f"MUTATIONS {len(chosen)} planted, {missed} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
