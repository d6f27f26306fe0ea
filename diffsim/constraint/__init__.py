"""Constraints: rows of all families, their laws, and the forces that they exert."""

from diffsim.constraint.acting_contacts import solve_acting as solve_acting
from diffsim.constraint.families import constraint_wrenches as constraint_wrenches
from diffsim.constraint.families import contact_forces as contact_forces
from diffsim.constraint.families import family_force as family_force
from diffsim.constraint.families import make_constraints as make_constraints
from diffsim.constraint.families import tendon_tensions as tendon_tensions
from diffsim.constraint.flex_rows import add_contact_springs as add_contact_springs
from diffsim.constraint.rows import Sources as Sources
