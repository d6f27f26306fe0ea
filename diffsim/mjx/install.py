"""install: makes `from mujoco import mjx` mean `diffsim.mjx`, with the modules of MJX that other packages look into."""

import importlib
import sys
import types
from typing import Any

# of `mujoco.mjx._src`, and where their names are here
_MODULES = {
    "math": ("math",),
    "types": ("types",),
    "dataclasses": ("types",),
    "io": ("io",),
    "support": ("support",),
    "ray": ("support",),
    **dict.fromkeys(
        ("smooth", "forward", "inverse", "constraint", "passive", "sensor", "derivative"), ("stages", "support")
    ),
    **dict.fromkeys(("solver", "collision_driver"), ("stages",)),
}


def install() -> None:
    """Makes `from mujoco import mjx` mean `diffsim.mjx` in this process. Call it before anything imports MJX.

    Raises:
      ImportError: the package `mujoco` is not installed. RuntimeError: MJX has been imported already.
    """
    ours: Any = sys.modules["diffsim.mjx"]
    there = sys.modules.get("mujoco.mjx")
    if there is ours:
        return
    if there is not None:
        raise RuntimeError("mujoco.mjx has been imported already; call diffsim.mjx.install() before what imports it")
    mujoco: Any = importlib.import_module("mujoco")
    inside: Any = types.ModuleType("mujoco.mjx._src", "Modules of MJX, by diffsim.")
    inside.__path__ = []
    for name, sources in _MODULES.items():
        module = types.ModuleType(f"mujoco.mjx._src.{name}", f"mujoco.mjx._src.{name}, by diffsim.")
        for source in sources:
            held = vars(importlib.import_module(f"diffsim.mjx.{source}"))
            vars(module).update({key: value for key, value in held.items() if not key.startswith("__")})
        setattr(inside, name, module)
        sys.modules[module.__name__] = module
    sys.modules["mujoco.mjx"], sys.modules["mujoco.mjx._src"] = ours, inside
    mujoco.mjx, ours._src = ours, inside
