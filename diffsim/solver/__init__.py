"""The solver: constrained accelerations as the minimum of a convex problem, differentiable at the optimum."""

from diffsim.solver.solve import smooth_acceleration as smooth_acceleration
from diffsim.solver.solve import solve as solve
