"""install: lets programs that import MJX run with diffsim."""

import importlib
import sys
from types import ModuleType
from typing import Any

# for each module of `mujoco.mjx._src`, the modules here that define the same names
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
    """Makes `from mujoco import mjx` import `diffsim.mjx` in this process. Call it before anything imports MJX.

    Raises:
      ImportError: the package `mujoco` is not installed.
      RuntimeError: MJX has already been imported.
    """
    ours: Any = sys.modules["diffsim.mjx"]
    imported = sys.modules.get("mujoco.mjx")
    if imported is ours:
        return
    if imported is not None:
        raise RuntimeError(
            "mujoco.mjx has already been imported; call diffsim.mjx.install() before the packages that import it"
        )
    mujoco: Any = importlib.import_module("mujoco")
    inside: Any = ModuleType("mujoco.mjx._src", "Modules of MJX, by diffsim.")
    inside.__path__ = []
    for name, sources in _MODULES.items():
        module = ModuleType(f"mujoco.mjx._src.{name}", f"mujoco.mjx._src.{name}, by diffsim.")
        for source in sources:
            names = vars(sys.modules[f"{ours.__name__}.{source}"])
            vars(module).update({key: value for key, value in names.items() if not key.startswith("__")})
        setattr(inside, name, module)
        sys.modules[module.__name__] = module
    sys.modules["mujoco.mjx"] = ours
    sys.modules["mujoco.mjx._src"] = inside
    mujoco.mjx = ours
    ours._src = inside
