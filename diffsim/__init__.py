"""diffsim: differentiable, batched rigid-body simulation on JAX, with MuJoCo's semantics.

    import diffsim, jax
    model = diffsim.load("robot.xml")
    state = diffsim.make_state(model)
    state = jax.jit(diffsim.step)(model, state)

Importing configures nothing; names below are the public interface.
"""

from diffsim import mjcf as mjcf
from diffsim import support as support
from diffsim.batch import model_axes as model_axes
from diffsim.batch import rollout as rollout
from diffsim.compiler import compile as compile
from diffsim.compiler.convert import from_mujoco as from_mujoco
from diffsim.errors import DiffsimError as DiffsimError
from diffsim.errors import MjcfError as MjcfError
from diffsim.errors import UnsupportedError as UnsupportedError
from diffsim.load import load as load
from diffsim.pipeline import forward as forward
from diffsim.pipeline import inverse as inverse
from diffsim.reference import set_const as set_const
from diffsim.status import check as check
from diffsim.stepping import integrate as integrate
from diffsim.stepping import step as step
from diffsim.types import Data as Data
from diffsim.types import Inputs as Inputs
from diffsim.types import Model as Model
from diffsim.types import State as State
from diffsim.types.hooks import Hooks as Hooks
from diffsim.types.state import make_inputs as make_inputs
from diffsim.types.state import make_state as make_state

__version__ = "0.1.0"
