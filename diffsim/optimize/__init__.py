"""Tools on top of the simulator's derivatives: linearization, inverse kinematics, planning, system identification.

from diffsim import optimize

system = optimize.linearize(model, state)
pose = optimize.ik(model, state, [optimize.Target(model.site("tip"), pos, quat)])
task = optimize.make_task(model, running=lambda state, data, ctrl: ..., final=lambda state, data: ...)
plan = optimize.ilqr(task, state, controls)        # a local minimum near a guess
plan = optimize.plan(task, state, steps=100)       # by a search first, for motions through contact
result = optimize.fit(model, recording, unknowns)  # parameters of the model from recordings
"""

import typing
import warnings

from diffsim.optimize import costs as costs
from diffsim.optimize.coordinates.log_cholesky import INERTIAL as INERTIAL
from diffsim.optimize.coordinates.log_cholesky import in_log_cholesky as in_log_cholesky
from diffsim.optimize.coordinates.transforms import bounds as bounds
from diffsim.optimize.coordinates.transforms import in_coordinates as in_coordinates
from diffsim.optimize.coordinates.transforms import in_logs as in_logs
from diffsim.optimize.coordinates.transforms import masked as masked
from diffsim.optimize.coordinates.transforms import project as project
from diffsim.optimize.coordinates.transforms import unit_quaternions as unit_quaternions
from diffsim.optimize.estimate.diagnose import Diagnosis as Diagnosis
from diffsim.optimize.estimate.diagnose import diagnose as diagnose
from diffsim.optimize.estimate.smoothed import smoothed as smoothed
from diffsim.optimize.identify.excite import Excitation as Excitation
from diffsim.optimize.identify.excite import excite as excite
from diffsim.optimize.identify.fit import FitResult as FitResult
from diffsim.optimize.identify.fit import fit as fit
from diffsim.optimize.identify.information import Information as Information
from diffsim.optimize.identify.information import information as information
from diffsim.optimize.identify.recording import Recording as Recording
from diffsim.optimize.identify.recording import make_recording as make_recording
from diffsim.optimize.identify.recording import read_csv as read_csv
from diffsim.optimize.identify.recording import resample as resample
from diffsim.optimize.identify.settings import Fit as Fit
from diffsim.optimize.identify.unknowns import Unknown as Unknown
from diffsim.optimize.identify.unknowns import UnknownInertia as UnknownInertia
from diffsim.optimize.identify.unknowns import UnknownPayload as UnknownPayload
from diffsim.optimize.identify.unknowns import Unknowns as Unknowns
from diffsim.optimize.inverse_kinematics import Ik as Ik
from diffsim.optimize.inverse_kinematics import IkResult as IkResult
from diffsim.optimize.inverse_kinematics import Target as Target
from diffsim.optimize.inverse_kinematics import ik as ik
from diffsim.optimize.linearize import Linearization as Linearization
from diffsim.optimize.linearize import Regulator as Regulator
from diffsim.optimize.linearize import linearize as linearize
from diffsim.optimize.linearize import lqr as lqr
from diffsim.optimize.tangent import difference as difference
from diffsim.optimize.tangent import integrate as integrate
from diffsim.optimize.tangent import tangent_gradient as tangent_gradient
from diffsim.optimize.trajectory.constrained import Constrained as Constrained
from diffsim.optimize.trajectory.constrained import constrained as constrained
from diffsim.optimize.trajectory.ilqr import Ilqr as Ilqr
from diffsim.optimize.trajectory.ilqr import Plan as Plan
from diffsim.optimize.trajectory.ilqr import ilqr as ilqr
from diffsim.optimize.trajectory.mpc import mpc as mpc
from diffsim.optimize.trajectory.perturbation import Perturbation as Perturbation
from diffsim.optimize.trajectory.plan import plan as plan
from diffsim.optimize.trajectory.sampling import Sampling as Sampling
from diffsim.optimize.trajectory.settings import Level as Level
from diffsim.optimize.trajectory.settings import PlanSettings as PlanSettings
from diffsim.optimize.trajectory.shooting import Shots as Shots
from diffsim.optimize.trajectory.shooting import shooting as shooting
from diffsim.optimize.trajectory.solution import Solution as Solution
from diffsim.optimize.trajectory.task import Task as Task
from diffsim.optimize.trajectory.task import Trajectory as Trajectory
from diffsim.optimize.trajectory.task import evaluate as evaluate
from diffsim.optimize.trajectory.task import make_task as make_task
from diffsim.optimize.trajectory.tree import TreeSettings as TreeSettings

# old public names and what they are called now; version 0.4 removes them
_RENAMED = {"Doubt": "Perturbation"}

if not typing.TYPE_CHECKING:
    # hidden from type checkers, which assume that a module with __getattr__ has every name
    def __getattr__(name: str) -> typing.Any:
        if name not in _RENAMED:
            raise AttributeError(f"module 'diffsim.optimize' has no attribute {name!r}")
        new = _RENAMED[name]
        warnings.warn(f"diffsim.optimize.{name} is now {new}", DeprecationWarning, stacklevel=2)
        return globals()[new]
