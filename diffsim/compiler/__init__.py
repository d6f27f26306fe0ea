"""The compiler, from Spec to Model: a list of passes in numpy, then the derived constants, then pack.

Each pass reads elements and the results of earlier passes, and writes rows under mjModel's names (draft.py). All errors
of a pass are raised together. Only pack.py converts numpy arrays to JAX arrays.
"""

from diffsim.compiler.convert import from_mujoco as from_mujoco
from diffsim.compiler.passes import compile as compile
