"""A tree of motions: many that grow from one another, a piece at a time, from where few went on.

Where the way to the goal leads away from it first, as around a wall, what is nearest to it never finds that way. Here
all places are remembered: areas of the coordinates that the goal depends on, and in each of them cells of all others.
A cell keeps the motion that came to it soonest. A tenth of what grows next goes on from what costs least, and the rest
from areas, and from cells in them, that seldom were gone on from: a pusher walks around a box while the box stays in
its area, and what has just begun to move is in an area of its own. What is much further from the goal than the start
does not go on. Source: Ecoffet et al. 2021, "First return, then explore".
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from diffsim.optimize.tangent import difference
from diffsim.optimize.trajectory.search import Attempt, soon
from diffsim.optimize.trajectory.task import Task
from diffsim.types import State

# pieces; batches of samples that grow; the shares of them that go on as their parent did, and that rest
LAYERS, BATCHES, ONWARD, RESTING = 16, 128, 0.5, 0.1
# sides of areas as shares of the goal's distance; how many times the final cost of the start is too much to go on from
AREA, BEYOND = 0.125, 2.5
# by this share of an area something has moved; the shares of what grows that go on from the best motions, and of these
STIRRED, GREEDY, LEAST = 0.02, 0.1, 0.05


def grow(
    task: Task,
    state: State,
    steps: int,
    samples: int,
    seed: int,
    goal: tuple[float, float, np.ndarray],
    tried: Callable[[State, np.ndarray, int], Attempt],
    more: int = 1,
) -> np.ndarray:
    """Controls (T, nu) of a motion that ends near the goal. The tree spreads until one is there; then the best go on.

    Args:
      goal: the final cost at the start, and below which it is reached; how much its residuals change with each tangent
        coordinate (nx,).
      tried: (states of all samples, their controls (samples, T, nu), length) -> what they did.
      more: how many times more motions grow than BATCHES.
    """
    rng, lower, upper = np.random.default_rng(seed), np.asarray(task.lower), np.asarray(task.upper)
    begin, enough, slope = goal[0], goal[1], goal[2][: task.model.nv]
    depends, layers = slope > 1e-6 * np.max(slope, initial=0), min(LAYERS, steps)
    leaves, form = jax.tree.flatten(state)
    spreading, length, side, sizes, depth = more * BATCHES, steps // layers, AREA * np.sqrt(2 * begin), slope, 0
    room = 1 + samples * (spreading + layers)
    # of motions, of which the first is the start
    ends = [np.repeat(np.asarray(leaf)[None], room, axis=0) for leaf in leaves]
    knots, spent, final = np.zeros((room, len(lower)), lower.dtype), np.zeros(room), np.full(room, begin)
    parent, layer = np.zeros((2, room), int)
    # of cells: a motion, the area, how often it was gone on from; and this of areas
    here = np.zeros(len(slope), int)
    cells, areas, motion = {here.tobytes(): 0}, {here[depends].tobytes(): 0}, np.full(room, -1)
    motion[0], (area, seen, visits) = 0, np.zeros((3, room), int)
    for turn in range(spreading + layers):
        fresh = slice(1 + turn * samples, 1 + (turn + 1) * samples)
        if turn < spreading and not np.any(final < enough):
            known = slice(0, len(cells))
            past = motion[_seldom(rng, area[known], seen[known], visits, (spent + final)[motion[known]], samples)]
        else:
            among = np.flatnonzero(layer[: fresh.start] == depth)
            nearest = among[np.lexsort((spent[among], np.maximum(final, enough)[among]))]
            past, depth = np.resize(nearest[: int(LEAST * samples)], samples), depth + 1
        way, drawn = rng.uniform(size=(samples, 1)), rng.uniform(lower, upper, (samples, len(lower)))
        drawn = np.where(way > 1 - RESTING, np.clip(0, lower, upper), drawn)
        knots[fresh] = np.where((way < ONWARD) & (past > 0)[:, None], knots[past], drawn)
        there = jax.tree.unflatten(form, [jnp.asarray(end[past]) for end in ends])
        did = tried(there, np.repeat(knots[fresh, None], steps, axis=1), length)
        for end, states in zip(ends, jax.tree.leaves(did.states), strict=True):
            end[fresh] = np.asarray(states)[:, length]
        there = jax.tree.unflatten(form, [jnp.asarray(end[fresh]) for end in ends])
        moved = np.asarray(_moved(task, there, state))[:, : task.model.nv]
        finite = np.isfinite(np.asarray(did.cost)) & np.all(np.isfinite(moved), axis=1)
        parent[fresh], layer[fresh], final[fresh] = past, layer[past] + 1, np.where(finite, did.final, np.inf)
        spent[fresh] = np.where(finite, spent[past] + np.asarray(did.cost) - np.asarray(did.final), np.inf)
        if turn == 0:
            sizes = np.where(depends, side / np.where(depends, slope, 1), np.std(moved[finite], axis=0))
        away = np.where(finite[:, None], moved, 0) / np.where(sizes > 0, sizes, np.inf)
        places = (np.sign(away) * np.ceil(np.abs(away) - STIRRED)).astype(int)
        for i in np.flatnonzero((final[fresh] < BEYOND * begin) & (layer[fresh] < layers)):
            node, cell = fresh.start + i, cells.setdefault(places[i].tobytes(), len(cells))
            old = motion[cell]
            if old < 0 or (layer[node], spent[node] + final[node]) < (layer[old], spent[old] + final[old]):
                motion[cell], area[cell] = node, areas.setdefault(places[i, depends].tobytes(), len(areas))
        if depth == layers:
            break
    # what reaches the goal and costs least, or else comes nearest
    chain = [int(np.lexsort((spent, np.maximum(final, enough), layer != layers))[0])]
    while parent[chain[-1]]:
        chain.append(parent[chain[-1]])
    return knots[chain[::-1]][np.minimum(np.arange(steps) // length, len(chain) - 1)]


def _seldom(
    rng: np.random.Generator, area: np.ndarray, seen: np.ndarray, visits: np.ndarray, cost: np.ndarray, samples: int
) -> np.ndarray:
    """The cells that samples go on from, which is noted in how often they and their areas were gone on from."""
    rare = 1 / (1 + seen)
    chance = rare / np.bincount(area, rare)[area] / (1 + visits[area])
    pick = rng.choice(len(area), samples, p=chance / np.sum(chance))
    pick[: int(GREEDY * samples)] = np.resize(np.argsort(cost)[: int(LEAST * samples)], int(GREEDY * samples))
    np.add.at(seen, pick, 1)
    np.add.at(visits, area[pick], 1)
    return pick


# (N, nx) how far many states are from one
_moved = soon(lambda task, there, here: jax.vmap(lambda state: difference(task.model, state, here))(there))
