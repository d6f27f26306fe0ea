"""PlanSettings: every number that a plan depends on, in one record."""

import dataclasses
from typing import NamedTuple

from diffsim.optimize.trajectory.contact_search import ContactSettings
from diffsim.optimize.trajectory.sampling import Sampling
from diffsim.optimize.trajectory.tree import TreeSettings


class Level(NamedTuple):
    """One level of a search from coarse to fine.

    Attributes:
      pieces: number of constant pieces of control in the horizon.
      rounds: rounds of sampling, at most.
      deviation: standard deviation of the first round, in half ranges of the controls.
    """

    pieces: int
    rounds: int
    deviation: float


@dataclasses.dataclass(frozen=True)
class PlanSettings:
    """Settings of `plan`. The defaults were chosen on eight tasks of pushing and turning (`make measure WHAT=plan`).

    The goal's part of the cost is compared with its value at the start: a share of 0.01 is a tenth of the distance,
    since costs are squares.

    Attributes:
      sampling: settings of the rounds of sampling.
      tree: settings of the tree of motions.
      contacts: settings of the search among pushes and grips that geometry proposes; None for no proposals.
      max_pieces: most pieces of control; it sets the size of the compiled programs.
      long_horizon: motions of at least this number of steps are first planned by receding horizons.
      levels: levels of a search over the whole horizon. Few pieces find detours, more pieces adjust them.
      refinement: levels about the best motion.
      robust_refinement: levels in perturbed worlds, if `robust` is given.
      fragile_refinement: levels in perturbed worlds for a fragile motion, if `robust` is not given.
      patience: number of rounds over which a level judges its progress: it ends when these rounds lowered the cost by
        less than `least_gain` and the deviation is below `narrow`.
      least_gain: share of the cost.
      narrow: deviation, in half ranges.
      goal_reached: share of the goal's cost at which the goal is reached in the model.
      goal_kept: share at which it is reached in half of the perturbed worlds.
      goal_close: share at which the goal is nearly reached: a worse motion is ranked behind one that gets so far.
      press_below: if the goal's cost is below this share of its value at the start, and above `press_above`, the goal
        is pressed: its cost counts more, as long as that helps.
      press_above: see `press_below`.
      goal_weight: how many times more the goal counts while it is pressed.
      press_gain: pressing goes on while the goal's cost falls to less than this share of the last one.
      tree_growth: the second tree has this many times more nodes than the first.
      robust_worlds: number of perturbed worlds in which each sample is tried while refining in perturbed worlds.
      polish_iterations: iterations of iLQR at the end, at most.
      brief_polish_iterations: the same in the middle of a search.
      regularization: of the first Newton step of a polish (mu in ilqr.py).
      polish_tolerance: the polish ends when a step lowers the cost by less than this share.
      polish_slack: a step may raise the cost in perturbed worlds above the least so far by this share.
    """

    sampling: Sampling = dataclasses.field(default_factory=Sampling)
    tree: TreeSettings = dataclasses.field(default_factory=TreeSettings)
    contacts: ContactSettings | None = dataclasses.field(default_factory=ContactSettings)
    max_pieces: int = 64
    long_horizon: int = 200
    levels: tuple[Level, ...] = (Level(4, 16, 1.0), Level(8, 12, 0.4), Level(16, 12, 0.3))
    refinement: tuple[Level, ...] = (Level(32, 12, 0.2), Level(64, 12, 0.12))
    robust_refinement: tuple[Level, ...] = (Level(8, 10, 0.3), Level(16, 10, 0.2), Level(32, 10, 0.1))
    fragile_refinement: tuple[Level, ...] = (Level(16, 8, 0.2), Level(32, 8, 0.1))
    patience: int = 5
    least_gain: float = 0.01
    narrow: float = 0.15
    goal_reached: float = 7e-3
    goal_kept: float = 1e-2
    goal_close: float = 5e-2
    press_below: float = 0.2
    press_above: float = 3e-3
    goal_weight: float = 9.0
    press_gain: float = 0.8
    tree_growth: int = 4
    robust_worlds: int = 8
    polish_iterations: int = 20
    brief_polish_iterations: int = 6
    regularization: float = 1e-2
    polish_tolerance: float = 1e-5
    polish_slack: float = 0.01
