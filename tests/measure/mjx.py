"""mjx: MJX's own tests of physics, MuJoCo Playground's environments and Brax, by `diffsim.mjx`; and speed beside MJX.

    make measure WHAT=mjx                      # all that is there
    python -m tests.measure.mjx tests          # MJX's tests, from MJX=/work/mj381/mjx/mujoco/mjx
    python -m tests.measure.mjx tests ray io   # of these files
    python -m tests.measure.mjx playground     # needs a Python that has the package: PLAYGROUND=/tmp/vplay/bin/python
    python -m tests.measure.mjx speed
    python -m tests.measure.mjx train          # Brax's PPO on CartpoleBalance, by MJX and by diffsim: two curves

The tests are run where they are, from a copy of MuJoCo's repository at 3.8.1, with `diffsim.mjx.install()` before; each
is passed, refused for a reason in `REFUSED`, or failed. What each test gave is kept in the folder RECORDED
(/tmp/diffsim_mjx) and not run again; `--seconds 300` stops after so many, and the next call goes on; `--again` runs
those that failed once more, `--ends` compares environments only with solvers that may end.
"""

import argparse
import collections
import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import time
import types
import unittest
from typing import Any

import numpy as np

MJX = pathlib.Path(os.environ.get("MJX", "/work/mj381/mjx/mujoco/mjx"))
ROOT = pathlib.Path(__file__).parents[2]
RECORDED = pathlib.Path(os.environ.get("RECORDED", "/tmp/diffsim_mjx"))
# compiling is what comparisons spend their time on; speed is measured without
QUICK = {"XLA_FLAGS": "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"}
# stands in a record where all tests of a file have been run
DONE = "all"
PLAYGROUND = os.environ.get("PLAYGROUND", "/tmp/vplay/bin/python")
SPEED = ("CartpoleBalance", "CheetahRun", "HumanoidWalk", "Go1JoystickFlatTerrain", "PandaPickCube")
FILES = ("math", "dataclasses", "smooth", "passive", "forward", "inverse", "constraint", "solver", "sensor", "ray")
FILES += ("support", "io", "collision_driver")
NOT_PHYSICS = ("mesh: its own hulls", "scan: its own loops over trees", "render, render_util: MuJoCo Warp")

CONTACT = ["dist", "pos", "frame", "includemargin", "friction", "solref", "solreffriction", "solimp", "dim", "geom1"]
CONTACT += ["geom2", "geom", "efc_address"]
# tests by the end of their name -> why they cannot pass
INSIDE = "calls functions inside of MJX that no program calls: "
WIDER = "asserts that MJX refuses what runs here: "
ORDER = "sets efc_force in MJX's order, connects before welds; rows stand here as MuJoCo lists them"
SPARSE = "reads M or its factor in MuJoCo's sparse format; M is dense here, no factor is kept"
SLOTS = "expects MJX's number of slots of a pair; the contacts in them are C's"
THEIRS = "expects MJX's contact where it is not C's; ours is C's"
TIE = "the end of the capsule is equally deep below two faces; C takes one of them, this the other"
EMPTY = "reads normals of slots without a contact, which are zero here"
ROUNDED = "asks J in float32 to 1e-7; it is made anew of poses in float32, and is MuJoCo's to 1.4e-7"
OTHER = "is of the implementation in C++"
REFUSED = {
    "SmoothTest.test_smooth": SPARSE,
    "test_rnepostconstraint7 ": ORDER,
    "test_rnepostconstraint8 ": ORDER,
    "TendonTest.test_tendon_armature1": SPARSE,
    "ForwardTest.test_forward": "expects of implicitfast what MJX does with free bodies, not C",
    "ForwardTest.test_rk4": "reads xpos of the last evaluation of RK4; here Data is that of the state before the step",
    "ConstraintTest.test_disable_": INSIDE + "constraint.counts, make_efc_type, _kbi",
    "SupportTest.test_bind": "reads the words of three errors; what it asks of bind before is right",
    "SupportTest.test_wrap_inside": INSIDE + "support.wrap_inside",
    "SupportTest.test_muscle": INSIDE + "support.muscle_gain, muscle_bias",
    "SupportTest.test_smooth_muscle_dynamics": INSIDE + "support.muscle_dynamics",
    "SensorTest.test_unsupported_sensor": WIDER + "sensors of distance",
    "ModelIOTest.test_implicit_not_implemented": WIDER + "the integrator implicit",
    "ModelIOTest.test_pgs_not_implemented": WIDER + "the solver PGS",
    "ModelIOTest.test_margin_gap_mesh": WIDER + "meshes with a margin",
    "ModelIOTest.test_implicitfast_fluid": WIDER + "implicitfast in a medium",
    "ModelIOTest.test_contact_sensor_jax": WIDER + "contact sensors of sites, bodies and subtrees",
    "ModelIOTest.test_unsupported_contact_types": WIDER + "cylinders against meshes",
    "ModelIOTest.test_wrap_inside": INSIDE + "model._impl.is_wrap_inside",
    "ModelIOTest.test_fluid_params": INSIDE + "opt._impl.has_fluid_params",
    "DataIOTest.test_contact_elliptic_condim1": WIDER + "frictionless contacts beside elliptic ones",
    "DataIOTest.test_make_data0": "expects MJX's number of rows; here dofs have rows of limits that are never there",
    "DataIOTest.test_put_data0": "expects MJX's number of rows; here dofs have rows of limits that are never there",
    "DataIOTest.test_get_data_batched0": "adds 0.05 to margins too; contacts within their margin are contacts, as in C",
    "ResolveImplAndDeviceTest": INSIDE + "io._resolve_impl_and_device",
    "DimTest": INSIDE + "collision_driver.make_condim",
    "TopKContactTest": "changes numerics of a compiled model; here they are put_model(max_contacts=, max_pairs=)",
    "test_capsule1 ": SLOTS,
    "test_capsule_convex_edge_deep": THEIRS,
    "test_capsule_convex_face_deep": TIE,
    "test_parallel_capsules": THEIRS,
    "test_box_box": SLOTS,
    "test_convex_convex": SLOTS,
    "test_cylinder_plane": SLOTS,
    "test_sphere_cylinder": THEIRS,
    "test_ellipsoid_cylinder": THEIRS,
    "test_sphere_ellipsoid": THEIRS,
    "HFieldTest.test_hfield_deep": EMPTY,
    "HFieldTest.test_sphere_hfield": EMPTY,
    "_cpp": OTHER,
    "'cpp')": OTHER,
    "DataIOTest.test_get_data0 ": ROUNDED,
    "DataIOTest.test_get_data1 ": ROUNDED,
}


def load(name: str, path: pathlib.Path) -> Any:
    """A module from a file, under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def contacts_apart(d: Any, dx: Any) -> float:
    """How far the contacts of Data are from those of an MjData: distances, positions and normals; inf of another
    number."""
    slots = np.flatnonzero((dx.contact.geom[:, 0] >= 0) & (dx.contact.dist < dx.contact.includemargin))
    ours = np.column_stack([dx.contact.dist, dx.contact.pos, dx.contact.frame[:, 0]])[slots]
    theirs = np.column_stack([d.contact.dist, d.contact.pos, d.contact.frame[:, :3]])
    if len(ours) != len(theirs):
        return float("inf")
    return max((float(np.abs(ours - one).max(axis=1).min()) for one in theirs), default=0.0)


def context(m: Any, d: Any) -> Any:
    """What a test asks of MJX's `solver.Context`: the cost of the constraints at `qacc`."""
    from diffsim.constraint import laws
    from diffsim.solver.objective import residuals_at

    pairs = zip(d.efc.groups, residuals_at(d.efc, d.qacc), strict=True)
    return types.SimpleNamespace(cost=sum(laws.cost(rows, x).sum() for rows, x in pairs), gauss=0.0)


def run_file(name: str, seconds: float) -> None:
    """Runs the tests of one file that have not been run, for so many seconds, and writes a line of JSON for each."""
    import mujoco

    import diffsim.mjx

    diffsim.mjx.install()
    # what is of Warp alone is skipped by the tests themselves where it is not installed
    warp: Any = types.ModuleType("mujoco.mjx.warp")
    warp.WARP_INSTALLED, warp.__path__ = False, []
    for part in ("types", "warp"):
        module = types.ModuleType(f"mujoco.mjx.warp.{part}")
        setattr(warp, part, module)
        sys.modules[module.__name__] = module
    sys.modules[warp.__name__] = mujoco.mjx.warp = warp
    helpers = load("mujoco.mjx._src.test_util", MJX / "_src/test_util.py")
    helpers.load_test_file = lambda file: mujoco.MjModel.from_xml_path(str(MJX / "test_data" / file))
    mujoco.mjx._src.test_util = helpers
    module = load(f"mjx_{name}_test", MJX / f"_src/{name}_test.py")
    # the fields that MJX's contacts have, which ours have among others
    module.Contact = dataclasses.make_dataclass("Contact", CONTACT)
    sys.modules["mujoco.mjx._src.solver"].Context = types.SimpleNamespace(create=context)
    module.epath = types.SimpleNamespace(resource_path=lambda package: MJX)
    apart: list[float] = []

    def collide(*arguments: Any, **options: Any) -> Any:
        both = collided(*arguments, **options)
        apart.append(contacts_apart(*both))
        return both

    collided, module._collide = getattr(module, "_collide", None), collide
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    known, begin = _recorded(name), time.monotonic()
    with _record_of(name).open("a") as log:
        for test in _flat(suite):
            if test.id() in known:
                continue
            if time.monotonic() - begin > seconds:
                return
            result, start = unittest.TestResult(), time.process_time()
            apart.clear()
            unittest.TestSuite([test]).run(result)
            wrong, skipped = result.failures + result.errors, result.skipped
            line = {"test": test.id(), "outcome": "failed" if wrong else "skipped" if skipped else "passed"}
            line["text"] = wrong[0][1][-6000:] if wrong else skipped[0][1] if skipped else ""
            line |= {"seconds": round(time.process_time() - start, 1), "apart": max(apart, default=0.0)}
            log.write(json.dumps(line) + "\n")
            log.flush()
        log.write(json.dumps({"test": DONE, "outcome": "done", "text": "", "seconds": 0}) + "\n")


def _flat(suite: Any) -> list[Any]:
    return [test for part in suite for test in (_flat(part) if isinstance(part, unittest.TestSuite) else [part])]


def _record_of(name: str) -> pathlib.Path:
    RECORDED.mkdir(exist_ok=True, parents=True)
    return RECORDED / f"{name}.jsonl"


def _recorded(name: str) -> dict[str, dict[str, Any]]:
    """What is known of the tests of a file, by test; DONE is among them if all have been run."""
    file = _record_of(name)
    lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    return {line["test"]: line for line in lines}


def tests(names: tuple[str, ...], seconds: float, again: bool) -> None:
    """Runs the files one after another, each in a process, and prints counts and what failed."""
    counts: collections.Counter[str] = collections.Counter()
    reasons: dict[str, int] = {}
    end = time.monotonic() + seconds
    for name in names:
        if again:
            kept = [json.dumps(line) for line in _recorded(name).values() if line["outcome"] in ("passed", "skipped")]
            _record_of(name).write_text("".join(line + "\n" for line in kept))
        left = end - time.monotonic()
        if DONE not in _recorded(name) and left > 0:
            command = [sys.executable, "-m", "tests.measure.mjx", "file", name, f"--seconds={left}"]
            settings = {**os.environ, **QUICK, "PYTHONPATH": "."}
            done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=settings)
            if done.returncode:
                print(f"{name}: {done.stderr[-3000:]}")
        lines = _recorded(name)
        whole = lines.pop(DONE, None) is not None
        kinds: collections.Counter[str] = collections.Counter()
        failed = []
        for test, line in lines.items():
            why = next((end for end in REFUSED if end in test), None)
            # what is refused for its contacts has those of C
            refused = why and (line.get("apart", 0) < 1e-4 or REFUSED[why] == TIE)
            outcome = "refused" if line["outcome"] == "failed" and refused else line["outcome"]
            kinds[outcome] += 1
            if outcome == "refused":
                reasons[str(why)] = reasons.get(str(why), 0) + 1
            if outcome == "failed":
                failed.append(f"    {test} {line['text'].strip().splitlines()[-1][:300]}")
        counts.update(kinds)
        took = sum(line["seconds"] for line in lines.values())
        print(f"{name}{'' if whole else ' (in part)'}:", _words(kinds), f"in {took:.0f} CPU s", flush=True)
        print("".join(line + "\n" for line in failed), end="")
    print("MJX's tests:", _words(counts))
    # what is not of physics: how MJX is built inside, what it refuses and runs here
    other = sum(n for end, n in reasons.items() if REFUSED[end].startswith((INSIDE, WIDER, OTHER)))
    of_all = counts["passed"] + counts["refused"] + counts["failed"]
    shares = (f"{100 * counts['passed'] / number:.1f}% of {number}" for number in (of_all, of_all - other) if number)
    print("passed of all, and without those of MJX's inside and of what it refuses:", ", ".join(shares))
    for end_of_test, number in reasons.items():
        print(f"  refused {number} {end_of_test}: {REFUSED[end_of_test]}")


def _words(counts: collections.Counter[str]) -> str:
    words = {"passed": "passed", "refused": "refused", "failed": "failed", "skipped": "of Warp or C, skipped"}
    return ", ".join(f"{counts[key]} {word}" for key, word in words.items())


def _lines(command: list[str]) -> list[dict[str, Any]]:
    """What a run of mjx_playground.py reports, by the Python that has the package; nothing where it fails."""
    script = str(ROOT / "tests/measure/mjx_playground.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({} if command[0] in ("speed", "train") else QUICK)}
    # the last line is then the error
    environment["JAX_TRACEBACK_FILTERING"] = "off"
    done = subprocess.run([PLAYGROUND, script, *command], capture_output=True, text=True, env=environment)
    if done.returncode:
        print("   ", " ".join(command), done.stderr.strip().splitlines()[-1][:300])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def playground(names: list[str], seconds: float, again: bool, ends: bool) -> None:
    """Observations of Playground's environments beside MJX's, one line each, and how many are the same to 1e-4.

    With `ends` only with solvers that may take 100 iterations, which takes half the time.
    """
    folder, counts = RECORDED / "playground", collections.Counter[str]()
    folder.mkdir(exist_ok=True, parents=True)
    end = time.monotonic() + seconds

    def compared(name: str, *iterations: str) -> dict[str, Any]:
        if not (folder / ".".join([name, *iterations, "pkl"])).exists():
            _lines(["record", name, str(folder), *iterations])
        return (_lines(["compare", name, str(folder), *iterations]) or [{"env": name, "failed": True}])[0]

    def worst(report: dict[str, Any]) -> float:
        return max(report["reset"], report["worst"], report.get("motion", 0)) if "worst" in report else float("inf")

    for name in names or _lines(["names", "", ""])[0]["names"]:
        file = folder / f"{name}.json"
        if again or not file.exists():
            if time.monotonic() > end:
                counts["not run yet"] += 1
                continue
            report = {"env": name} if ends else compared(name)
            if ends or ("worst" in report and worst(report) >= 1e-4):
                report["with 100 iterations"] = compared(name, "100")
            file.write_text(json.dumps(report))
        report = json.loads(file.read_text())
        at_ends = report.get("with 100 iterations", {})
        off, off_at_ends = ({"nearer": -1, "steps": 0} | part.get("off", {}) for part in (report, at_ends))
        kinds = {
            "same": worst(report) < 1e-4,
            "same where both solvers may end": worst(at_ends) < 1e-4,
            "C MuJoCo's where they may end, which MJX's are not": off_at_ends["nearer"] == off_at_ends["steps"],
            "nearer to C MuJoCo than MJX": 2 * off["nearer"] > off["steps"],
            "differ": "worst" in report or "worst" in at_ends,
            "run": report.get("finite"),
        }
        counts[next((kind for kind, holds in kinds.items() if holds), "failed")] += 1
        print(json.dumps(report), flush=True)
    print("Playground:", ", ".join(f"{number} {what}" for what, number in counts.items()))


def in_turn(what: str, names: list[str]) -> None:
    """By MJX and by diffsim in turn, a line each: the environment steps per second of 256 worlds and of their gradients
    by actions (`speed`), or the rewards as PPO goes on (`train`)."""
    for name in names or (SPEED if what == "speed" else ["CartpoleBalance"]):
        for engine in ("mjx", "diffsim"):
            for report in _lines([what, name, engine]):
                print(", ".join(f"{key} {value}" for key, value in report.items()), flush=True)


def main() -> None:
    """Runs what the first argument names, or all."""
    parser = argparse.ArgumentParser()
    parts = ("all", "tests", "playground", "speed", "train", "file")
    parser.add_argument("what", nargs="?", default="all", choices=parts)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--ends", action="store_true")
    asked = parser.parse_args()
    if asked.what == "file":
        run_file(asked.names[0], asked.seconds)
    if asked.what in ("tests", "all"):
        tests(tuple(asked.names) or FILES, asked.seconds, asked.again)
    if asked.what in ("playground", "all"):
        playground(asked.names, asked.seconds, asked.again, asked.ends)
    for what in ("speed", "train"):
        if asked.what in (what, "all"):
            in_turn(what, asked.names)


if __name__ == "__main__":
    main()
