"""The solve with rows for the contacts that act alone, where a large contact buffer is nearly empty."""

import dataclasses
from collections.abc import Callable

from diffsim.base.enums import Solver
from diffsim.constraint import Sources, make_constraints
from diffsim.constraint.acting_contacts import acting_contacts, force_of_all_rows, is_large
from diffsim.types.constraints import Constraints
from diffsim.types.data import Solution
from diffsim.xla.barriers import for_cpu
from diffsim.xla.select import if_everywhere


def solve_acting(sources: Sources, constraints: Constraints, solved: Callable[[Constraints], Solution]) -> Solution:
    """`solved(constraints)`; on a CPU with fewer rows, if in all worlds of a batch few contacts act.

    The whole rows are then never built, unless something else reads them. Values and derivatives are the same.

    Args:
      sources: from which the rows are made.
      constraints: the rows of all slots.
      solved: solves with some rows.
    """
    opt = sources.model.opt
    # sweeps by rows, and rows that only derivatives or a fixed active set have, are for the whole buffer
    by_rows = opt.solver == Solver.PGS or opt.noslip_iterations or opt.contact_reach or sources.active_set is not None
    if not for_cpu() or by_rows or sources.slots.flexes or not constraints.contacts or not is_large(sources.slots):
        return solved(constraints)
    acting = acting_contacts(sources.contacts, sources.slots)

    def quick() -> Solution:
        rows = make_constraints(sources._replace(contacts=acting.contacts, slots=acting.slots))
        solution = solved(rows)
        return dataclasses.replace(solution, row_force=force_of_all_rows(acting, rows, solution.row_force))

    return if_everywhere(acting.fits, quick, lambda: solved(make_constraints(sources)))
