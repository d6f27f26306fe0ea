"""diffsim: differentiable, batched rigid-body simulation on JAX, with MuJoCo's semantics.

    import diffsim, jax
    model = diffsim.load("robot.xml")
    state = diffsim.make_state(model)
    state = jax.jit(diffsim.step)(model, state)

Importing diffsim changes no settings of JAX. The names below are the public interface. The packages `optimize`, `envs`,
`parallel`, `viz`, `viewer`, `bench`, `mjx` and `torch` are imported on first use: `diffsim.envs.make("hopper")`.
"""

import importlib
import importlib.util
import typing

from diffsim import math as math
from diffsim import mjcf as mjcf
from diffsim import support as support
from diffsim.base.errors import ArgumentError as ArgumentError
from diffsim.base.errors import CapacityWarning as CapacityWarning
from diffsim.base.errors import DiffsimError as DiffsimError
from diffsim.base.errors import MissingFileError as MissingFileError
from diffsim.base.errors import MjcfError as MjcfError
from diffsim.base.errors import PrecisionWarning as PrecisionWarning
from diffsim.base.errors import UnsupportedError as UnsupportedError
from diffsim.compiler import compile as compile
from diffsim.compiler.convert import from_mujoco as from_mujoco
from diffsim.compiler.passes import save_inertials as save_inertials
from diffsim.geometry.rays.ray import RayHits as RayHits
from diffsim.load import load as load
from diffsim.simulate.arguments import model_axes as model_axes
from diffsim.simulate.constants import set_const as set_const
from diffsim.simulate.export import Program as Program
from diffsim.simulate.export import export as export
from diffsim.simulate.export import load_program as load_program
from diffsim.simulate.forward import forward as forward
from diffsim.simulate.randomize import Scale as Scale
from diffsim.simulate.randomize import Shift as Shift
from diffsim.simulate.randomize import Uniform as Uniform
from diffsim.simulate.randomize import randomize as randomize
from diffsim.simulate.stack import stack as stack
from diffsim.simulate.status import is_bad as is_bad
from diffsim.simulate.step import Policy as Policy
from diffsim.simulate.step import integrate as integrate
from diffsim.simulate.step import inverse as inverse
from diffsim.simulate.step import rollout as rollout
from diffsim.simulate.step import step as step
from diffsim.simulate.step import step_data as step_data
from diffsim.support.check import check as check
from diffsim.support.rays import GeomDistance as GeomDistance
from diffsim.support.rays import RayFilter as RayFilter
from diffsim.support.rays import geom_distance as geom_distance
from diffsim.support.rays import multi_ray as multi_ray
from diffsim.support.rays import ray as ray
from diffsim.types import Data as Data
from diffsim.types import Inputs as Inputs
from diffsim.types import Model as Model
from diffsim.types import Rollout as Rollout
from diffsim.types import State as State
from diffsim.types.hooks import Hooks as Hooks
from diffsim.types.hooks import Plugin as Plugin
from diffsim.types.hooks import PluginUse as PluginUse
from diffsim.types.state import make_inputs as make_inputs
from diffsim.types.state import make_state as make_state
from diffsim.types.views import View as View
from diffsim.types.views import sensor as sensor
from diffsim.version import VERSION as __version__  # noqa: F401
from diffsim.xla.compiled import compiler_options as compiler_options
from diffsim.xla.compiled import jit as jit
from diffsim.xla.compiled import use_cache as use_cache

if typing.TYPE_CHECKING:
    from diffsim import bench as bench
    from diffsim import envs as envs
    from diffsim import mjx as mjx
    from diffsim import optimize as optimize
    from diffsim import parallel as parallel
    from diffsim import torch as torch
    from diffsim import viewer as viewer
    from diffsim import viz as viz

else:
    # hidden from type checkers, which assume that a module with __getattr__ has every name
    def __getattr__(name: str) -> typing.Any:
        """Imports a package on first use."""
        if name in _LATER:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_LATER = ("bench", "envs", "mjx", "optimize", "parallel", "torch", "viewer", "viz")


def __dir__() -> list[str]:
    names = {*globals(), *_LATER}
    # torch is listed only where it is installed: `help` and other tools import every name in this list
    return sorted(names if importlib.util.find_spec("torch") else names - {"torch"})
