# ruff: noqa: E402
"""Acceleration, next state and sensors beside the oracle, on every model of the test packages.

python -m tests.measure.parity [--only TEXT] [--states 5] [--seed 0] [--numpy] [--corpus] [--seconds 280] [--again]

It goes on where it stopped: what stands in the log is not run again, but with `--again` what was not equal.

With --numpy the traced program is run by numpy: sooner where little has to be solved (11 s for 20), much later where
solvers run to their limit.

Models: those of tests/models and of diffsim/envs, the small ones of tests/compiler/features.py (one per feature), that
of tests/everything.py under every option, and every XML of dm_control's suite, gymnasium and mujoco-mjx; with --corpus
instead of these the other robots that `make corpus` downloads, XML and URDF. Each is compiled by us and by the oracle,
both solvers run to convergence, states are visited along a simulation under random controls.

MuJoCo searches for contacts by its own collider (some models ask for libccd, whose depths are not the least ones) until
it knows the gap to 1e-12 m; its default is 1e-6.

One line per model, one line of counts at the end. A model that limits its contacts gets room for all. Counted are
states that are `compared` in all fields. Where contacts differ by more than 1e-9 the oracle is given ours and goes on
from there; all fields are compared then, too, and the state is `near`: each pair of geoms has as many contacts and
their depths are the same to 1e-8 m (a search ends near the place, two normals are equally good); it has `other points`:
the deepest of each pair are the same to 1e-8 m, but one has more of them; or `other contacts`: other depths (docs,
"Limits", and tests/corpus_ledger.py). Where the oracle's forces do not give its acceleration, to 1e-6 of the forces,
acceleration and sensors alone are compared, and nothing if the acceleration differs: `forces cancel`. The last are
those that the oracle itself cannot continue.
"""

import argparse
import os
import pathlib
import sys
import time
import warnings
from collections import Counter
from typing import Any, NamedTuple

# compile time is what this costs
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")
HERE = pathlib.Path(__file__).parents[1]

import jax

jax.config.update("jax_enable_x64", True)

import numpy as np
import oracle
from compiler.features import FEATURES
from corpus_ledger import LEDGER, OTHER_CONTACTS, WITHOUT_ORACLE
from everything import everything
from uncompiled import uncompiled

import diffsim
from diffsim import envs
from diffsim.base.errors import DiffsimError, UnsupportedError
from tests.measure import corpus
from tests.measure.resumed import resumed

PACKAGES = ("dm_control/suite/*.xml", "gymnasium/envs/mujoco/assets/*.xml", "mujoco/mjx/test_data/**/*.xml")
CORPUS = HERE.parent / ".corpus" / "files"
SETTINGS = {"tolerance": 1e-15, "iterations": 500, "ls_iterations": 200, "ls_tolerance": 1e-6}
# of the oracle's search for contacts: when it ends
SEARCH = {"ccd_tolerance": 1e-12, "ccd_iterations": 500}
# of the depths of contacts that end near the same place (m)
DEPTH = 1e-8
BAR = {"qacc": 1e-7, "sensordata": 1e-6, "qpos": 1e-9, "qvel": 1e-8, "act": 1e-9, "history": 1e-6}


def sources(corpus: bool = False) -> dict[str, str]:
    """Models by name: a path, or XML text; with the robots that `make corpus` downloads if asked."""
    found = {f"models/{path.stem}": str(path) for path in sorted(oracle.MODELS.glob("*.xml"))}
    found |= {f"envs/{path.stem}": str(path) for path in sorted(envs.MODELS.glob("*.xml"))}
    found |= {f"feature/{name}": text for name, text in FEATURES.items()}
    found |= {f"everything/{name}": text for name, text in everything().items()}
    for pattern in PACKAGES:
        found |= {str(path.relative_to(oracle.SITE)): str(path) for path in sorted(oracle.SITE.glob(pattern))}
    if corpus:
        found |= {str(path.relative_to(CORPUS)): str(path) for path in sorted(CORPUS.glob("**/*.xml"))}
    return found


def robots() -> dict[str, str]:
    """The models that `make corpus` downloads, but for those that are here anyhow."""
    here = sources()
    found = {str(path.relative_to(corpus.FILES)): str(path) for path in corpus.models("")}
    # below the folder of its package a file has the name that it has when it is installed
    return {name: path for name, path in found.items() if name.partition("/")[2] not in here}


class Dropped(Exception):
    """Contacts did not fit in the buffer."""


def pair(source: str, **capacity: int) -> tuple[diffsim.Model, Any]:
    """(ours, oracle), both solvers run to convergence.

    A dual solver stops early; its optimum is that of Newton.
    """
    text = source.lstrip().startswith("<")
    mjmodel = oracle.mujoco.MjModel.from_xml_string(source) if text else corpus.load_oracle(pathlib.Path(source))
    model = diffsim.load(source, allow_outside=True, **capacity)
    for name, value in (SETTINGS | SEARCH).items():
        setattr(mjmodel.opt, name, value)
    mjmodel.opt.disableflags &= ~int(oracle.mujoco.mjtDisableBit.mjDSBL_NATIVECCD)
    mjmodel.opt.solver = oracle.mujoco.mjtSolver.mjSOL_NEWTON
    # the oracle's shortcuts for frames that coincide to 1e-6
    for name in ("body_sameframe", "geom_sameframe", "site_sameframe"):
        getattr(mjmodel, name)[:] = 0
    return model.replace(opt=model.opt.replace(**SETTINGS)), mjmodel


class Found(NamedTuple):
    """Of a model's states: the worst error of each field over its bar, relative where values exceed one; how many had
    which fate; and the largest difference of the depths of a pair of geoms (m).
    """

    worst: dict[str, float]
    fates: Counter[str]
    depth: float


def errors(source: str, options: argparse.Namespace, **capacity: int) -> Found:
    """What differs from the oracle.

    Raises:
      Dropped: some contacts did not fit.
    """
    model, mjmodel = pair(source, **capacity)

    @(uncompiled if options.numpy else jax.jit)
    def both(state: diffsim.State, inputs: diffsim.Inputs) -> tuple[diffsim.Data, diffsim.State, Any]:
        data = diffsim.forward(model, state, inputs)
        listed = () if mjmodel.nflex else diffsim.support.contacts(model, data)
        return data, diffsim.integrate(model, state, inputs, data), listed

    worst: dict[str, float] = {}
    fates: Counter[str] = Counter()
    furthest = 0.0
    for data in oracle.visited_states(mjmodel, options.states, options.seed):
        now, after, listed = both(oracle.state_of(data), oracle.inputs_of(data))
        if int(now.ncon_dropped):
            raise Dropped
        fate, theirs, fields = "compared", data, list(BAR)
        if not same_contacts(now.contact, data):
            fate, depth = ("other contacts", np.inf) if mjmodel.nflex else likeness(listed, data)
            furthest, theirs = (
                max(furthest, depth),
                data if mjmodel.nflex else oracle.with_contacts(mjmodel, data, listed),
            )
        # Runge-Kutta's later stages would search for contacts again
        again = theirs is not data and mjmodel.opt.integrator == oracle.mujoco.mjtIntegrator.mjINT_RK4
        if again or not balanced(mjmodel, theirs):
            fate, fields = f"{fate}, acceleration alone", fields[:2]
        if not balanced(mjmodel, theirs) and not np.allclose(
            now.qacc, theirs.qacc, rtol=0, atol=bound(theirs.qacc, "qacc")
        ):
            fates["forces cancel"] += 1
            continue
        expected = {name: np.array(getattr(theirs, name)) for name in fields[:2]}
        if not can_go_on(mjmodel, theirs, again=theirs is data):
            fates["the oracle fails"] += 1
            continue
        fates[fate] += 1
        expected |= {name: np.array(getattr(theirs, name)) for name in fields[2:]}
        for name, value in expected.items() if theirs is not data or not fate.startswith("other") else ():
            ours = np.asarray(getattr(now if name in fields[:2] else after, name))
            error = float(np.max(np.abs(ours - value), initial=0)) / bound(value, name)
            worst[name] = max(worst.get(name, 0.0), error if error == error else np.inf)
    return Found(worst, fates, furthest)


def bound(value: Any, name: str) -> float:
    """The largest difference from the oracle's values of a field that is no fault."""
    return BAR[name] * max(1.0, float(np.max(np.abs(value), initial=0)))


def same_contacts(contacts: Any, data: Any) -> bool:
    """Whether both have the same active contacts."""
    try:
        oracle.assert_same_contacts(contacts, data, 1e-9)
    except AssertionError:
        return False
    return True


def likeness(ours: Any, data: Any) -> tuple[str, float]:
    """What a state with other contacts is called, and the largest difference of the deepest contacts of a pair (m)."""
    depths: list[dict[tuple[int, ...], list[float]]] = [{}, {}]
    for k in np.flatnonzero(ours.exclude[: int(ours.ncon)] == 0):
        depths[0].setdefault(tuple(ours.geom[k].tolist()), []).append(float(ours.dist[k]))
    for contact in (contact for contact in data.contact if contact.exclude == 0):
        depths[1].setdefault(tuple(contact.geom.tolist()), []).append(contact.dist)
    both = [sorted(depths[k].get(geoms, [0.0])) for k in range(2) for geoms in depths[0] | depths[1]]
    pairs = list(zip(both[: len(both) // 2], both[len(both) // 2 :], strict=True))
    deepest = max(abs(a[0] - b[0]) for a, b in pairs)
    alike = all(len(a) == len(b) and np.allclose(a, b, rtol=0, atol=DEPTH) for a, b in pairs)
    return "near" if alike else "other points" if deepest <= DEPTH else "other contacts", deepest


def balanced(mjmodel: Any, data: Any) -> bool:
    """Whether M qacc is the oracle's own forces: where nothing can move along a contact, 1e17 N cancel each other."""
    inertia = oracle.field_of("qM", mjmodel, data)
    scale = max(1.0, float(np.max(np.abs(data.qfrc_constraint), initial=0)))
    rest = inertia @ data.qacc - data.qfrc_smooth - data.qfrc_constraint
    return bool(np.max(np.abs(rest), initial=0) <= 1e-6 * scale)


def can_go_on(mjmodel: Any, data: Any, again: bool) -> bool:
    """Steps the oracle; whether it did so without a warning, and stayed near.

    Args:
      mjmodel, data: the oracle's, evaluated.
      again: whether it evaluates the state anew, with its contacts.
    """
    data.warning.number[:] = 0
    kinds = oracle.mujoco.mjtIntegrator
    if again or mjmodel.opt.integrator == kinds.mjINT_RK4:
        oracle.mujoco.mj_step(mjmodel, data)
    elif mjmodel.opt.integrator == kinds.mjINT_EULER:
        oracle.mujoco.mj_Euler(mjmodel, data)
    else:
        oracle.mujoco.mj_implicit(mjmodel, data)
    return not np.any(data.warning.number) and bool(np.all(np.abs(data.qvel) < 1e6))


def judge(source: str, options: argparse.Namespace) -> tuple[str, str]:
    """(verdict, what there is to say) of one model."""
    try:
        try:
            worst, fates, depth = errors(source, options)
        except Dropped:
            worst, fates, depth = errors(source, options, max_contacts=256, max_pairs=2048)
    except Dropped:
        return "dropped", "more than 256 contacts"
    except UnsupportedError as problem:
        return "unsupported", problem.problems[0].message
    except DiffsimError as problem:
        return "refused", str(problem)
    except ValueError as problem:
        return "refused by the oracle", str(problem)[:100]
    bad = {name: error for name, error in worst.items() if not error <= 1}
    shown = " ".join(f"{name}={error * BAR[name]:.1e}" for name, error in (bad or worst).items() if error > 0)
    fate = "" if set(fates) == {"compared"} else f" {dict(fates)}" + (f", depths off by {depth:.0e}" if depth else "")
    for verdict in ("other points", "compared", "near", "the oracle fails", "other contacts"):
        if any(kind.startswith(verdict) for kind in fates):
            break
    verdict = {"compared": "equal", "near": "equal", "other points": "other points"}.get(verdict, "not comparable")
    return "different" if bad else verdict, shown + fate


def main() -> int:
    """Runs all models; 1 if one differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--states", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=pathlib.Path, help="default out/parity.jsonl, with --corpus .corpus/parity.jsonl")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no model after so many")
    parser.add_argument("--again", action="store_true", help="run anew what was not equal")
    parser.add_argument("--numpy", action="store_true", help="run the traced program by numpy, uncompiled")
    parser.add_argument("--corpus", action="store_true", help="the files that `make corpus` downloads")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    oracle.mujoco.set_mju_user_warning(lambda text: None)
    known, models = LEDGER | WITHOUT_ORACLE, robots() if options.corpus else sources()
    names = [name for name in (corpus.in_turn(list(models)) if options.corpus else models) if options.only in name]
    log = CORPUS.parent / "parity.jsonl" if options.corpus else HERE.parent / "out" / "parity.jsonl"

    def one(name: str) -> dict[str, str]:
        start = time.process_time()
        verdict, text = ("ledger", known[name]) if name in known else judge(models[name], options)
        if verdict in ("not comparable", "other points") and name in OTHER_CONTACTS:
            verdict, text = "ledger", f"{OTHER_CONTACTS[name]}; {text}"
        print(f"{name}: {verdict}, {text} ({time.process_time() - start:.0f} s)", flush=True)
        jax.clear_caches()
        return {"verdict": verdict, "text": text}

    stale = lambda line: options.again and line["verdict"] not in ("equal", "ledger")  # noqa: E731
    lines = resumed(options.log or log, names, one, options.seconds, stale)
    counts = Counter(line["verdict"] for line in lines)
    for line in lines:
        if line["verdict"] not in ("equal", "ledger", "refused by the oracle"):
            print(f"{line['verdict']}: {line['path']}: {line['text']}")
    print(
        f"PARITY models={len(lines)} of {len(names)} states={options.states} seed={options.seed} {dict(counts)}",
        flush=True,
    )
    return int(counts["different"] + counts["refused"] > 0)


if __name__ == "__main__":
    sys.exit(main())
