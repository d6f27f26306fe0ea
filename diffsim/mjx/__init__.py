"""mjx: MJX's interface on top of diffsim; code written for MJX runs with one import changed.

    from diffsim import mjx                 # instead of: from mujoco import mjx
    model = mjx.put_model(mj_model)
    data = mjx.make_data(model)
    data = jax.jit(mjx.step)(model, data)

If the import is inside a package (Brax, MuJoCo Playground), `diffsim.mjx.install()` redirects it to this module. Model
is a `diffsim.Model`, and Data is a `diffsim.Data` that also has the fields of State and Inputs. So all functions of
diffsim take them, and forward and reverse derivatives work.
"""

import typing

from diffsim.base import errors
from diffsim.base.enums import BiasType as BiasType
from diffsim.base.enums import ConstraintType as ConstraintType
from diffsim.base.enums import DisableBit as DisableBit
from diffsim.base.enums import DynType as DynType
from diffsim.base.enums import EnableBit as EnableBit
from diffsim.base.enums import EqType as EqType
from diffsim.base.enums import GainType as GainType
from diffsim.base.enums import GeomType as GeomType
from diffsim.base.enums import JointType as JointType
from diffsim.base.enums import ObjType as ObjType
from diffsim.base.enums import SensorType as SensorType
from diffsim.base.enums import TrnType as TrnType
from diffsim.base.enums import WrapType as WrapType
from diffsim.mjx import math as math
from diffsim.mjx.installation import install as install
from diffsim.mjx.io import get_data as get_data
from diffsim.mjx.io import get_data_into as get_data_into
from diffsim.mjx.io import get_state as get_state
from diffsim.mjx.io import make_data as make_data
from diffsim.mjx.io import put_data as put_data
from diffsim.mjx.io import put_model as put_model
from diffsim.mjx.io import set_state as set_state
from diffsim.mjx.io import state_size as state_size
from diffsim.mjx.pytree import PyTreeNode as PyTreeNode
from diffsim.mjx.stages import camlight as camlight
from diffsim.mjx.stages import collision as collision
from diffsim.mjx.stages import com_pos as com_pos
from diffsim.mjx.stages import com_vel as com_vel
from diffsim.mjx.stages import crb as crb
from diffsim.mjx.stages import deriv_smooth_vel as deriv_smooth_vel
from diffsim.mjx.stages import euler as euler
from diffsim.mjx.stages import factor_m as factor_m
from diffsim.mjx.stages import forward as forward
from diffsim.mjx.stages import fwd_acceleration as fwd_acceleration
from diffsim.mjx.stages import fwd_actuation as fwd_actuation
from diffsim.mjx.stages import fwd_position as fwd_position
from diffsim.mjx.stages import fwd_velocity as fwd_velocity
from diffsim.mjx.stages import implicit as implicit
from diffsim.mjx.stages import inverse as inverse
from diffsim.mjx.stages import kinematics as kinematics
from diffsim.mjx.stages import make_constraint as make_constraint
from diffsim.mjx.stages import passive as passive
from diffsim.mjx.stages import rne as rne
from diffsim.mjx.stages import rne_postconstraint as rne_postconstraint
from diffsim.mjx.stages import rungekutta4 as rungekutta4
from diffsim.mjx.stages import sensor_acc as sensor_acc
from diffsim.mjx.stages import sensor_pos as sensor_pos
from diffsim.mjx.stages import sensor_vel as sensor_vel
from diffsim.mjx.stages import solve as solve
from diffsim.mjx.stages import step as step
from diffsim.mjx.stages import subtree_vel as subtree_vel
from diffsim.mjx.stages import tendon as tendon
from diffsim.mjx.stages import tendon_armature as tendon_armature
from diffsim.mjx.stages import tendon_bias as tendon_bias
from diffsim.mjx.stages import transmission as transmission
from diffsim.mjx.support import apply_ft as apply_ft
from diffsim.mjx.support import full_m as full_m
from diffsim.mjx.support import id2name as id2name
from diffsim.mjx.support import is_sparse as is_sparse
from diffsim.mjx.support import jac as jac
from diffsim.mjx.support import mul_m as mul_m
from diffsim.mjx.support import name2id as name2id
from diffsim.mjx.support import ray as ray
from diffsim.mjx.support import xfrc_accumulate as xfrc_accumulate
from diffsim.mjx.types import CamLightType as CamLightType
from diffsim.mjx.types import ConeType as ConeType
from diffsim.mjx.types import Contact as Contact
from diffsim.mjx.types import Data as Data
from diffsim.mjx.types import Impl as Impl
from diffsim.mjx.types import IntegratorType as IntegratorType
from diffsim.mjx.types import JacobianType as JacobianType
from diffsim.mjx.types import Model as Model
from diffsim.mjx.types import SolverType as SolverType
from diffsim.types.model import Option as Option
from diffsim.types.model import Statistic as Statistic

# functions of MJX that only MuJoCo Warp implements
_OF_WARP = (
    "create_render_context",
    "get_depth",
    "get_rgb",
    "get_segmentation",
    "refit_bvh",
    "render",
    "render_with_segmentation",
)


if not typing.TYPE_CHECKING:
    # hidden from type checkers, which assume that a module with __getattr__ has every name
    def __getattr__(name: str) -> typing.Any:
        """Raises UnsupportedError for functions of Warp, AttributeError for other names."""
        if name in _OF_WARP:
            reason = f"mjx.{name} belongs to MuJoCo Warp; diffsim.viz.render draws a state on any device"
            raise errors.UnsupportedError([errors.Problem("", 0, f"mjx.{name}", reason, unsupported=True)])
        raise AttributeError(f"module 'diffsim.mjx' has no attribute {name!r}")
