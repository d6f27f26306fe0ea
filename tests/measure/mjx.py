"""mjx: MJX's own tests of physics, MuJoCo Playground's environments and Brax, by `diffsim.mjx`; and speed beside MJX.

    make measure WHAT=mjx                      # all that is there
    python -m tests.measure.mjx tests          # MJX's tests, from MJX=/work/mj381/mjx/mujoco/mjx
    python -m tests.measure.mjx playground     # needs a Python that has the package: PLAYGROUND=/tmp/vplay/bin/python
    python -m tests.measure.mjx speed

The tests are run where they are, from a copy of MuJoCo's repository at 3.8.1, with `diffsim.mjx.install()` before; each
is passed, refused for a reason in `REFUSED`, or failed.
"""

import collections
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types
import unittest
from typing import Any

MJX = pathlib.Path(os.environ.get("MJX", "/work/mj381/mjx/mujoco/mjx"))
ROOT = pathlib.Path(__file__).parents[2]
PLAYGROUND = os.environ.get("PLAYGROUND", "/tmp/vplay/bin/python")
SPEED = ("CartpoleBalance", "CheetahRun", "HumanoidWalk", "Go1JoystickFlatTerrain", "PandaPickCube")
FILES = ("math", "dataclasses", "smooth", "passive", "forward", "inverse", "constraint", "solver", "sensor", "ray")
FILES += ("support", "io", "collision_driver")
NOT_PHYSICS = ("mesh: its own hulls", "scan: its own loops over trees", "render, render_util: MuJoCo Warp")

# tests by the end of their name -> why they cannot pass
INSIDE = "calls functions inside of MJX that no program calls: "
WIDER = "asserts that MJX refuses what runs here: "
REFUSED = {
    "SolverTest.test_solver": INSIDE + "solver.Context",
    "ConstraintTest.test_disable_": INSIDE + "constraint.counts, make_efc_type, _kbi",
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
    "DataIOTest.test_put_data0": "reads ten_wrapadr and the like, which diffsim.support.tendon_paths gives",
    "ResolveImplAndDeviceTest": INSIDE + "io._resolve_impl_and_device",
    "StateIOTest.test_get_set_state": INSIDE + "io._STATE_MAP",
    "_cpp": "is of the implementation in C++",
    "'cpp')": "is of the implementation in C++",
}


def load(name: str, path: pathlib.Path) -> Any:
    """A module from a file, under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_file(name: str) -> None:
    """Runs one file of MJX's tests in this process and prints its results as JSON, the last line."""
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
    result = unittest.TestResult()
    try:
        suite = unittest.defaultTestLoader.loadTestsFromModule(load(f"mjx_{name}_test", MJX / f"_src/{name}_test.py"))
    except Exception as error:
        print(json.dumps({"failed": {f"{name}: import": repr(error)}, "passed": [], "skipped": {}}))
        return
    tests = [test.id() for test in _flat(suite)]
    suite.run(result)
    wrong = {test.id(): text.strip().splitlines()[-1][:300] for test, text in result.failures + result.errors}
    skipped = {test.id(): why for test, why in result.skipped}
    for test, text in result.failures + result.errors if os.environ.get("VERBOSE") else ():
        print(test.id(), text[-3000:], file=sys.stderr)
    print(json.dumps({"failed": wrong, "skipped": skipped, "passed": sorted({*tests} - {*wrong} - {*skipped})}))


def _flat(suite: Any) -> list[Any]:
    return [test for part in suite for test in (_flat(part) if isinstance(part, unittest.TestSuite) else [part])]


def tests(names: tuple[str, ...] = FILES) -> None:
    """Runs the files one after another, each in a process, and prints counts and what failed."""
    counts: collections.Counter[str] = collections.Counter()
    reasons: dict[str, str] = {}
    for name in names:
        command = [sys.executable, "-m", "tests.measure.mjx", "file", name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": "."})
        if os.environ.get("VERBOSE"):
            print(done.stderr[-20000:])
        if not done.stdout.strip():
            raise SystemExit(f"{name}: {done.stderr[-3000:]}")
        report = json.loads(done.stdout.strip().splitlines()[-1])
        wrong = report["failed"]
        refused = {test: why for test, why in REFUSED.items() if any(test in each for each in wrong)}
        failed = {test: text for test, text in wrong.items() if not any(end in test for end in refused)}
        found = {"passed": len(report["passed"]), "refused": len(wrong) - len(failed), "failed": len(failed)}
        counts.update(found | {"of Warp or C, skipped": len(report["skipped"])})
        print(f"{name}:", ", ".join(f"{number} {what}" for what, number in found.items()), flush=True)
        for test, text in failed.items():
            print("   ", test, text)
        reasons |= refused
    print("MJX's tests:", ", ".join(f"{number} {what}" for what, number in counts.items()))
    for test, why in reasons.items():
        print(f"  refused {test}: {why}")


def _lines(command: list[str]) -> list[dict[str, Any]]:
    """What a run of mjx_playground.py reports, by the Python that has the package; nothing where it fails."""
    script = str(ROOT / "tests/measure/mjx_playground.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([PLAYGROUND, script, *command], capture_output=True, text=True, env=environment)
    if done.returncode:
        print("   ", " ".join(command), done.stderr.strip().splitlines()[-1][:300])
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def playground(names: list[str]) -> None:
    """Observations of Playground's environments beside MJX's, one line each, and how many are the same to 1e-4."""
    folder, counts = pathlib.Path(os.environ.get("RECORDED", "/tmp/play")), collections.Counter[str]()
    folder.mkdir(exist_ok=True)
    for name in names or _lines(["names", "", ""])[0]["names"]:
        if not (folder / f"{name}.pkl").exists():
            _lines(["record", name, str(folder)])
        report = (_lines(["compare", name, str(folder)]) or [{"env": name, "failed": True}])[0]
        same = "worst" in report and max(report["reset"], report["worst"]) < 1e-4
        counts["same" if same else "differ" if "worst" in report else "run" if report.get("finite") else "failed"] += 1
        print(json.dumps(report), flush=True)
    print("Playground:", ", ".join(f"{number} {what}" for what, number in counts.items()))


def speed(names: list[str]) -> None:
    """Environment steps per second of 256 worlds, by MJX and by diffsim in turn."""
    for name in names or SPEED:
        both = {engine: (_lines(["speed", name, engine]) or [{}])[0] for engine in ("mjx", "diffsim")}
        rates, compiling = ([each.get(key) for each in both.values()] for key in ("steps/s", "compile"))
        print(
            f"{name}: steps/s {rates[0]} by MJX, {rates[1]} by diffsim; compiled in {compiling[0]} and {compiling[1]} s"
        )


def main() -> None:
    """Runs what the first argument names, or all."""
    what, *rest = sys.argv[1:] or ["all"]
    if what == "file":
        run_file(*rest)
    if what in ("tests", "all"):
        tests(tuple(rest) or FILES)
    if what in ("playground", "all"):
        playground(rest)
    if what in ("speed", "all"):
        speed(rest)


if __name__ == "__main__":
    main()
