# ruff: noqa: E402
"""The constraint solver beside the oracle's, on every model of the test packages.

python -m tests.measure.solver [--only PATTERN] [--states 5] [--seed 0] [--solver newton] [--corpus]

Run to convergence, beside the oracle's Newton: acceleration, constraint force and the force of every row (in the
oracle's order) within 1e-7, our objective not above the oracle's by more than 1e-10. At MuJoCo's default tolerance:
iterations, ours and the oracle's by the same solver from the same warm start. The same problem cast to float32: force
within 1e-3 of float64 (at this tolerance by Newton, run to convergence by CG and PGS, which end before that), and
iterations. One line per model, one line of counts at the end. States in which the oracle has other contacts are left
out of what compares, those that it cannot continue, and, counted, those in which ours says that it did not get to the
end.
"""

import argparse
import copy
import pathlib
import re
import sys
import time
import warnings
from collections import Counter
from typing import Any, NamedTuple

HERE = pathlib.Path(__file__).parents[1]

import jax
import jax.numpy as jnp
import numpy as np
import oracle

import diffsim
from diffsim.base.enums import DisableBit, Solver
from diffsim.base.errors import DiffsimError
from diffsim.solver import solve
from diffsim.solver.objective import Objective, cost
from diffsim.support import efc
from tests.measure import parity

# CG and PGS converge linearly: a small improvement is no sign of the optimum
CONVERGED = {
    Solver.NEWTON: {},
    Solver.CG: {"tolerance": 0.0, "iterations": 3000},
    Solver.PGS: {"tolerance": 0.0, "iterations": 1000},
}
BAR = {"qacc": 1e-7, "qfrc_constraint": 1e-7, "efc_force": 1e-7, "objective": 1e-10, "float32": 1e-3}
MORE = 1
# of models that are looked at
MOST_DOFS = 300


class Probe(NamedTuple):
    """One state: the converged solution and its row forces, how far our objective is above that at the oracle's
    solution, and the solver at the model's own tolerance in float64 and float32."""

    data: diffsim.Data
    efc_force: jax.Array
    excess: jax.Array
    iterations: jax.Array
    single_force: jax.Array
    single_iterations: jax.Array


class Record(NamedTuple):
    """Errors over their bars, and iterations: by how many the oracle's are more, ours, ours in float32; each one number
    per state. How many states had not converged."""

    errors: dict[str, list[float]]
    more: list[int]
    ours: list[int]
    single: list[int]
    unfinished: list[int]


def single_precision(tree: Any) -> Any:
    """The same with its floats in float32."""
    return jax.tree.map(lambda x: x.astype(jnp.float32) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)


def make_probe(model: diffsim.Model, usual: diffsim.Model) -> Any:
    """Jitted: (state, inputs, the oracle's qacc) -> Probe, of a model that converges and one as users run it."""

    def probe(state: diffsim.State, inputs: diffsim.Inputs, theirs: jax.Array) -> Probe:
        data = diffsim.forward(model, state, inputs)
        objective = Objective(data.M, data.qfrc_smooth, data.efc)
        own, lowest = (cost(objective, qacc, data.efc.J @ qacc) for qacc in (data.qacc, theirs))
        excess = (own - lowest) / jnp.maximum(1, jnp.abs(lowest))
        problem = (data.M, data.qfrc_smooth, state.qacc_warmstart, data.efc)
        rough = solve(usual, *problem)
        single = solve(*single_precision((usual, *problem)))
        others = single_precision((model, *problem))
        best = single if usual.opt.solver == Solver.NEWTON else solve(*others)
        rest = (rough.solver_niter, best.qfrc_constraint, single.solver_niter)
        return Probe(data, efc(model, data).efc_force, excess, *rest)

    return jax.jit(probe)


def usual_iterations(mjmodel: Any, data: Any, options: dict[str, Any]) -> int:
    """How many iterations the oracle takes with these options, as one island."""
    model = mjmodel.__copy__()
    model.opt.disableflags |= DisableBit.ISLAND
    for name, value in options.items():
        setattr(model.opt, name, value)
    again = oracle.mujoco.MjData(model)
    for name in ("qpos", "qvel", "act", "ctrl", "qacc_warmstart", "mocap_pos", "mocap_quat", "eq_active"):
        getattr(again, name)[:] = getattr(data, name)
    again.qfrc_applied[:], again.xfrc_applied[:], again.time = data.qfrc_applied, data.xfrc_applied, data.time
    oracle.mujoco.mj_forward(model, again)
    return int(again.solver_niter[0])


def measure(source: str, states: int, seed: int, solver: Solver, **capacity: int) -> Record:
    """Errors and iterations of one model.

    Raises:
      Dropped: some contacts did not fit.
    """
    model, mjmodel = parity.pair(source, **capacity)
    if model.nv > MOST_DOFS:
        raise ValueError(f"{model.nv} degrees of freedom")
    usual = {"tolerance": 1e-8, "ls_tolerance": 0.01, "iterations": 100, "solver": int(solver)}
    models = (
        model.replace(opt=model.opt.replace(**{**options, "noslip_iterations": 0, "solver": solver}))
        for options in (CONVERGED[solver], usual)
    )
    mjmodel.opt.noslip_iterations = 0
    probe = make_probe(*models)
    record = Record({name: [] for name in BAR}, [], [], [], [])
    for data in oracle.visited_states(mjmodel, states, seed):
        found: Probe = probe(oracle.state_of(data), oracle.inputs_of(data), jnp.asarray(data.qacc))
        if int(found.data.ncon_dropped):
            raise parity.Dropped
        if not data.nefc or not parity.can_go_on(mjmodel, copy.copy(data)):
            continue
        record.ours.append(int(found.iterations))
        record.single.append(int(found.single_iterations))
        same = parity.same_contacts(found.data.contact, data)
        if same:
            record.more.append(usual_iterations(mjmodel, data, usual) - int(found.iterations))
        record.unfinished.append(int(found.data.solver_stalled))
        if not found.data.solver_stalled:
            compare(record, found, data if same else None)
    return record


def compare(record: Record, found: Probe, data: Any) -> None:
    """Adds the errors of a state; beside the oracle where `data` is given."""
    held = np.asarray(found.data.qfrc_constraint)
    away = np.linalg.norm(found.single_force - held) / max(np.linalg.norm(held), 1e-6)
    record.errors["float32"].append(float(away) / BAR["float32"])
    if data is None:
        return
    record.errors["objective"].append(float(found.excess) / BAR["objective"])
    pairs = {"qacc": found.data.qacc, "qfrc_constraint": held, "efc_force": found.efc_force[: data.nefc]}
    for name, value in pairs.items():
        expected = np.asarray(getattr(data, name))
        error = np.max(np.abs(np.asarray(value) - expected), initial=0) / max(1.0, np.max(np.abs(expected)))
        record.errors[name].append(float(error) / BAR[name])


def judge(source: str, options: argparse.Namespace) -> tuple[str, str, Record | None]:
    """(verdict, what there is to say, numbers) of one model."""
    solver = Solver[options.solver.upper()]
    try:
        try:
            record = measure(source, options.states, options.seed, solver)
        except parity.Dropped:
            record = measure(source, options.states, options.seed, solver, max_contacts=256, max_pairs=2048)
    except (parity.Dropped, DiffsimError, ValueError) as problem:
        return "refused", f"{type(problem).__name__} {problem}"[:120], None
    if not record.ours:
        return "free", "no constraint was active", None
    worst = {name: max(values) for name, values in record.errors.items() if values}
    bad = [name for name, value in worst.items() if not value <= 1]
    # PGS of the oracle visits the rows in random order
    bad += ["iterations"] if solver != Solver.PGS and min(record.more, default=0) < -MORE else []
    shown = " ".join(f"{name}={value * BAR[name]:.1e}" for name, value in worst.items())
    counts = f"iterations {record.ours} fewer than oracle {record.more} float32 {record.single}"
    counts += f" unfinished {sum(record.unfinished)}" * any(record.unfinished)
    return ("missed: " + " ".join(bad) if bad else "met"), f"{shown} {counts}", record


def main() -> int:
    """Runs all models; 1 if one misses a bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name has this regular expression")
    parser.add_argument("--states", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solver", default="newton", choices=[solver.name.lower() for solver in Solver])
    parser.add_argument("--corpus", action="store_true", help="also the files that `make corpus` downloads")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    oracle.mujoco.set_mju_user_warning(lambda text: None)
    verdicts: Counter[str] = Counter()
    ours, single, more, unfinished = [], [], [], []
    for name, source in parity.sources(options.corpus).items():
        if re.search(options.only, name):
            start = time.perf_counter()
            verdict, text, record = judge(source, options)
            verdicts[verdict.split(":")[0]] += 1
            if record:
                ours, single, more = ours + record.ours, single + record.single, more + record.more
                unfinished += record.unfinished
            print(f"{name}: {verdict}, {text} ({time.perf_counter() - start:.0f} s)", flush=True)
            jax.clear_caches()
    means = f"mean iterations {np.mean(ours or [0]):.2f}, float32 {np.mean(single or [0]):.2f}, fewer than oracle "
    means += f"{np.mean(more or [0]):.2f}, {sum(n < -MORE for n in more)} states above; unfinished {sum(unfinished)}"
    print(f"SOLVER {options.solver} states={len(ours)} seed={options.seed} {dict(verdicts)} {means}", flush=True)
    return int(verdicts["missed"] > 0)


if __name__ == "__main__":
    sys.exit(main())
