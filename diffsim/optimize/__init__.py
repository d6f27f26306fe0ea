"""Tools on top of the simulator's derivatives: tangent space, linearization, trajectory optimization.

from diffsim import optimize
system = optimize.linearize(model, state)
task = optimize.make_task(model, running=lambda state, data, ctrl: ..., final=lambda state, data: ...)
plan = optimize.ilqr(task, state, controls)
"""

from diffsim.optimize.ilqr import Ilqr as Ilqr
from diffsim.optimize.ilqr import Plan as Plan
from diffsim.optimize.ilqr import ilqr as ilqr
from diffsim.optimize.linearize import Linearization as Linearization
from diffsim.optimize.linearize import linearize as linearize
from diffsim.optimize.lqr import Regulator as Regulator
from diffsim.optimize.lqr import lqr as lqr
from diffsim.optimize.manifold import project as project
from diffsim.optimize.manifold import unit_quaternions as unit_quaternions
from diffsim.optimize.mpc import mpc as mpc
from diffsim.optimize.shooting import Shots as Shots
from diffsim.optimize.shooting import shooting as shooting
from diffsim.optimize.tangent import difference as difference
from diffsim.optimize.tangent import integrate as integrate
from diffsim.optimize.tangent import tangent_gradient as tangent_gradient
from diffsim.optimize.task import Task as Task
from diffsim.optimize.task import Trajectory as Trajectory
from diffsim.optimize.task import evaluate as evaluate
from diffsim.optimize.task import make_task as make_task
