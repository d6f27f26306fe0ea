"""Spec -> Model: a list of passes in numpy, then the derived constants, then pack.

Each pass reads the elements and what earlier passes found, and writes rows under mjModel's names (draft.py). Everything
that is wrong in a pass is raised at once. The only place where numpy becomes jax is pack.py.
"""

from diffsim.compiler.convert import from_mujoco as from_mujoco
from diffsim.compiler.passes import compile as compile
