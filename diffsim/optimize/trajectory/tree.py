"""A tree of motions that spreads through the states: a kinodynamic planner for tasks in which the way leads around.

If the way to the goal first leads away from it, as around a wall, then a search that keeps only the nearest states
never finds the way. Here all visited states are kept. The tree grows as kinodynamic RRT and EST do: a node is selected,
constant controls are drawn, the simulator extends the node by one piece of the horizon, and the new state is inserted.
Nodes are selected by how seldom their neighbourhood was selected before (as in EST), in two levels of a grid:

    region    a cell of the coordinates that the goal depends on, such as the pose of a box
    cell      within a region, a cell of all other coordinates, such as the place of the pusher

A cell keeps the node that reached it in the fewest pieces, at the least cost. So a pusher walks around a box while the
box stays in its region, and as soon as the box moves, a new region opens. A few of the selections are greedy, and nodes
that are much further from the goal than the start are not selected. When a node reaches the goal, or after a number of
batches, the best nodes of each depth are extended to the full horizon.

Sources: LaValle and Kuffner 2001, "Randomized kinodynamic planning" (RRT); Hsu, Latombe and Motwani 1997, "Path
planning in expansive configuration spaces" (EST); Sucan and Kavraki 2009 (KPIECE: cells of a projection); Ecoffet et
al. 2021, "First return, then explore" (cells that keep their best node).
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.tangent import difference
from diffsim.optimize.trajectory.sampling import Attempt, quick_jit
from diffsim.optimize.trajectory.task import Task
from diffsim.types import State

# (states of all samples, their controls (samples, T, nu), number of steps) -> the motions
Simulate = Callable[[State, np.ndarray, int], Attempt]

# a coordinate belongs to the goal if its derivative is above this fraction of the largest: below it is rounding
GOAL_DEPENDS = 1e-6


@dataclasses.dataclass(frozen=True)
class TreeSettings:
    """Settings of the tree.

    Attributes:
      depth: number of pieces of constant control in the horizon.
      batches: batches of samples that the tree grows by, at most, before the best nodes go on to the end.
      onward: share of the extensions that repeat the controls of their parent: motions go on straight.
      resting: share of the extensions with zero controls: bodies come to rest.
      region: side of a region, as a share of the distance to the goal.
      moved: share of a cell's side by which a coordinate must differ from the start to count as moved: a first touch
        opens a new cell.
      pruned: nodes with a final cost above this multiple of the start's are not selected.
      greedy: share of the selections that go to the best cells.
      best: the best cells or nodes are this share of the samples.
    """

    depth: int = 16
    batches: int = 128
    onward: float = 0.5
    resting: float = 0.1
    region: float = 0.125
    moved: float = 0.02
    pruned: float = 2.5
    greedy: float = 0.1
    best: float = 0.05


class Goal(NamedTuple):
    """What the tree grows towards.

    Attributes:
      start: the final cost at the start.
      reached: the final cost below which the goal is reached.
      slope: (nx,) norm of the derivatives of the final residuals with respect to each tangent coordinate.
    """

    start: float
    reached: float
    slope: np.ndarray


class Tree:
    """Nodes with their states, and the grid that they are selected from. Node 0 is the start.

    Attributes:
      states: leaves of the nodes' states, (nodes, ...).
      ctrl: (nodes, nu) constant controls of the piece that leads to a node.
      spent: (nodes,) cost of the way to a node without the final cost; inf if it diverged.
      final: (nodes,) final cost at a node; inf if it diverged.
      moved: (nodes, nv) how far the position is from the start, in tangent coordinates.
      parent: (nodes,) the node before; 0 for nodes that follow the start.
      depth: (nodes,) number of pieces from the start.
      count: number of nodes.
      cells: the index of a cell, by the coordinates in the grid; regions: the same for regions.
      cell_node: (cells,) the best node in a cell; -1 for none.
      cell_region: (cells,) the region of a cell.
      cell_visits: (cells,) how often a cell was selected; region_visits: (regions,) the same for regions.
    """

    def __init__(self, task: Task, state: State, goal: Goal, samples: int, most: int, settings: TreeSettings) -> None:
        room = 1 + samples * most
        self.task = task
        self.start = state
        self.goal = goal
        self.samples = samples
        self.settings = settings
        self.lower = np.asarray(task.lower)
        self.upper = np.asarray(task.upper)
        leaves, self.form = jax.tree.flatten(state)
        self.states = [np.repeat(np.asarray(leaf)[None], room, axis=0) for leaf in leaves]
        self.ctrl = np.zeros((room, len(self.lower)), self.lower.dtype)
        self.spent = np.zeros(room)
        self.final = np.full(room, goal.start)
        self.moved = np.zeros((room, task.model.nv))
        self.parent = np.zeros(room, int)
        self.depth = np.zeros(room, int)
        self.count = 1
        # coordinates of position alone make the grid; those that the goal depends on make the regions
        self.slope = goal.slope[: task.model.nv]
        self.of_goal = self.slope > GOAL_DEPENDS * np.max(self.slope, initial=0)
        self.sides: np.ndarray | None = None
        here = np.zeros(len(self.slope), int)
        self.cells = {here.tobytes(): 0}
        self.regions = {here[self.of_goal].tobytes(): 0}
        self.cell_node = np.full(room, -1)
        self.cell_node[0] = 0
        self.cell_region = np.zeros(room, int)
        self.cell_visits = np.zeros(room, int)
        self.region_visits = np.zeros(room, int)

    @property
    def reached(self) -> bool:
        """Whether a node is at the goal."""
        return bool(np.any(self.final < self.goal.reached))

    def select(self, rng: np.random.Generator) -> np.ndarray:
        """(samples,) nodes to extend: in regions and cells that were seldom selected, and a few of least cost.

        The probability of a cell is proportional to 1 / (1 + its visits), scaled so that a region as a whole has a
        probability proportional to 1 / (1 + its visits). A region with many cells is therefore no more likely.
        """
        known = slice(0, len(self.cells))
        region, nodes = self.cell_region[known], self.cell_node[known]
        rare = 1 / (1 + self.cell_visits[known])
        chance = rare / np.bincount(region, rare)[region] / (1 + self.region_visits[region])
        picked = rng.choice(len(region), self.samples, p=chance / np.sum(chance))
        greedy, best = int(self.settings.greedy * self.samples), int(self.settings.best * self.samples)
        cost = (self.spent + self.final)[nodes]
        picked[:greedy] = np.resize(np.argsort(cost)[:best], greedy)
        np.add.at(self.cell_visits, picked, 1)
        np.add.at(self.region_visits, region[picked], 1)
        return nodes[picked]

    def select_best(self, depth: int) -> np.ndarray:
        """(samples,) the best nodes of one depth: at the goal with least cost, or else nearest to it."""
        among = np.flatnonzero(self.depth[: self.count] == depth)
        ordered = among[np.lexsort((self.spent[among], np.maximum(self.final, self.goal.reached)[among]))]
        return np.resize(ordered[: int(self.settings.best * self.samples)], self.samples)

    def extend(self, rng: np.random.Generator, nodes: np.ndarray, simulate: Simulate, steps: int, length: int) -> slice:
        """Simulates one more piece from each node, and appends the new nodes.

        Args:
          nodes: (samples,) the parents.
          simulate: the simulator, for controls of `steps` rows.
          length: number of steps of the piece.

        Returns:
          The new nodes.
        """
        settings = self.settings
        fresh = slice(self.count, self.count + self.samples)
        # controls: as the parent's, zero, or drawn uniformly within the bounds
        kind = rng.uniform(size=(self.samples, 1))
        drawn = rng.uniform(self.lower, self.upper, (self.samples, len(self.lower)))
        drawn = np.where(kind > 1 - settings.resting, np.clip(0, self.lower, self.upper), drawn)
        onward = (kind < settings.onward) & (nodes > 0)[:, None]
        self.ctrl[fresh] = np.where(onward, self.ctrl[nodes], drawn)
        did = simulate(self.state(nodes), np.repeat(self.ctrl[fresh, None], steps, axis=1), length)
        for known, states in zip(self.states, jax.tree.leaves(did.states), strict=True):
            known[fresh] = np.asarray(states)[:, length]
        far = _differences(self.task, self.state(fresh), self.start)
        self.moved[fresh] = np.asarray(far)[:, : self.task.model.nv]
        finite = np.isfinite(np.asarray(did.cost)) & np.all(np.isfinite(self.moved[fresh]), axis=1)
        self.parent[fresh] = nodes
        self.depth[fresh] = self.depth[nodes] + 1
        self.final[fresh] = np.where(finite, did.final, np.inf)
        self.spent[fresh] = np.where(finite, self.spent[nodes] + np.asarray(did.cost) - np.asarray(did.final), np.inf)
        self.count += self.samples
        return fresh

    def insert(self, fresh: slice, deepest: int) -> None:
        """Puts new nodes into the grid: a cell keeps its shallowest node, and of equal depth the one of least cost."""
        moved = self.moved[fresh]
        finite = np.isfinite(self.final[fresh])
        if self.sides is None:
            self.sides = self._sides(moved[finite])
        # a coordinate is in cell 0 until it has moved by a small fraction of a side, and then in cell 1 or -1
        away = np.where(finite[:, None], moved, 0) / np.where(self.sides > 0, self.sides, np.inf)
        places = (np.sign(away) * np.ceil(np.abs(away) - self.settings.moved)).astype(int)
        near = self.final[fresh] < self.settings.pruned * self.goal.start
        for i in np.flatnonzero(near & (self.depth[fresh] < deepest)):
            node = fresh.start + i
            cell = self.cells.setdefault(places[i].tobytes(), len(self.cells))
            old = self.cell_node[cell]
            if old < 0 or self._order(node) < self._order(old):
                self.cell_node[cell] = node
                region = places[i, self.of_goal].tobytes()
                self.cell_region[cell] = self.regions.setdefault(region, len(self.regions))

    def way_to_best(self, deepest: int) -> list[int]:
        """The nodes from the start to the best node, preferably of full depth."""
        order = np.lexsort((self.spent, np.maximum(self.final, self.goal.reached), self.depth != deepest))
        chain = [int(order[0])]
        while self.parent[chain[-1]]:
            chain.append(self.parent[chain[-1]])
        return chain[::-1]

    def state(self, nodes: np.ndarray | slice) -> State:
        """The states of some nodes, stacked."""
        return jax.tree.unflatten(self.form, [jnp.asarray(leaf[nodes]) for leaf in self.states])

    def _sides(self, moved: np.ndarray) -> np.ndarray:
        """(nv,) sides of the grid: for the goal's coordinates from its distance, for others from one piece's motions.

        The final cost is 1/2 |slope dq|^2 to first order, so that sqrt(2 cost) / slope is the distance to the goal.
        """
        side = self.settings.region * np.sqrt(2 * self.goal.start)
        return np.where(self.of_goal, side / np.where(self.of_goal, self.slope, 1), np.std(moved, axis=0))

    def _order(self, node: int) -> tuple[int, float]:
        """Orders the nodes of a cell; the best node has the least."""
        return self.depth[node], self.spent[node] + self.final[node]


def search_tree(
    task: Task,
    state: State,
    steps: int,
    samples: int,
    seed: int,
    goal: Goal,
    simulate: Simulate,
    settings: TreeSettings | None = None,
    more: int = 1,
    late: Callable[[], bool] = lambda: False,
) -> np.ndarray:
    """Finds controls (T, nu) of a motion that ends near the goal.

    Args:
      task: the task; controls need bounds.
      state: where the motion begins.
      steps: T.
      samples: nodes that are added at once.
      seed: of the draws.
      goal: what to reach.
      simulate: runs the simulator for all samples.
      settings: None for `TreeSettings()`.
      more: multiplies the number of batches.
      late: whether to end with what was found so far.
    """
    settings = settings or TreeSettings()
    rng = np.random.default_rng(seed)
    deepest = min(settings.depth, steps)
    spreading = more * settings.batches
    length = steps // deepest
    depth = 0
    tree = Tree(task, state, goal, samples, spreading + deepest, settings)
    for batch in range(spreading + deepest):
        # spread until the goal is reached or the batches are used up; then go on from the best of each depth
        if batch < spreading and not tree.reached:
            nodes = tree.select(rng)
        else:
            nodes = tree.select_best(depth)
            depth += 1
        tree.insert(tree.extend(rng, nodes, simulate, steps, length), deepest)
        if depth == deepest or late():
            break
    way = tree.way_to_best(deepest)
    return tree.ctrl[way][np.minimum(np.arange(steps) // length, len(way) - 1)]


# (N, nx) how far many states are from one, in tangent coordinates
_differences = quick_jit(lambda task, there, here: jax.vmap(lambda state: difference(task.model, state, here))(there))
