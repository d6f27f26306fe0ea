"""plan: finds a motion through contact, in one call: by a search, then by derivatives, tried under perturbations.

If a pusher must first go around a box, every derivative points away from the way. A search over controls (sampling.py)
finds such ways. Where the goal depends on an object that a robot must push or carry under gravity, motions are first
proposed from geometry (contact_search.py). Then there are three kinds of search, and each one fails where another does
not:

    whole horizon  few pieces of control over the whole horizon, then twice as many, and again: detours
    receding       a plan over a quarter of the horizon drives a few steps, then the next plan: long sequences
    tree           a tree of motions that spreads where few motions went (tree.py): around walls

The best motion is refined by more pieces that vary less. Near the goal, but not at it, the goal counts ten times for a
while. A fragile motion, or every motion if `robust` is given, is refined in perturbed worlds: with noise on the
controls and other friction, masses and start. Of the motions that reach the goal, the one of least cost in perturbed
worlds is polished by steps of iLQR that keep the goal and cost no more in perturbed worlds. What runs on the host
between the programs is numpy, which has nothing to compile.
"""

import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import Array

from diffsim.base.checked import checked
from diffsim.base.errors import ArgumentError
from diffsim.optimize.linearize import refuse_delays
from diffsim.optimize.progress import OutOfTime, Progress
from diffsim.optimize.trajectory.perturbation import Perturbation
from diffsim.optimize.trajectory.planner import Planner
from diffsim.optimize.trajectory.sampling import SHARES, Sampling, need_bounds
from diffsim.optimize.trajectory.settings import PlanSettings
from diffsim.optimize.trajectory.solution import Solution
from diffsim.optimize.trajectory.task import Task, controls_of
from diffsim.optimize.trajectory.trials import Robust
from diffsim.types import State


@checked
def plan(
    task: Task,
    state: State,
    steps: int,
    *,
    ctrl: Array | None = None,
    key: Array | int = 0,
    seconds: float | None = None,
    settings: PlanSettings | Sampling | None = None,
    perturbation: Perturbation | None = None,
    robust: Robust | None = None,
    vmap: Callable = jax.vmap,
    show: Callable[[str], Any] | None = None,
    doubt: Perturbation | None = None,
) -> Solution:
    """Finds a motion of low cost through contact.

    Runs on the host, for seconds to minutes; interrupted by Ctrl-C, it returns the best motion so far. Equal keys give
    equal plans, unless time runs out.

    Args:
      task: costs and bounds; all controls need bounds.
      state: where the motion begins.
      steps: number of steps T.
      ctrl: (T, nu) a guess to begin from; None for none.
      key: from `jax.random.key`, or an integer.
      seconds: budget of time, compilation included; None to search as long as it gains. The searches get shares of it,
        and the last part is for the polish. A program that is being compiled is not interrupted.
      settings: None for `PlanSettings()`; a `Sampling` replaces only the settings of the rounds of sampling.
      perturbation: how the world may differ from the model; None for `Perturbation()`.
      robust: "mean" or "worst quarter" also refines the motion in 8 perturbed worlds at once, for the least mean of
        their costs or the least mean of the worst quarter. Worth its time if a plan says that it is fragile.
      vmap: `parallel.vmap` to share the worlds out over devices.
      show: called with a line of progress now and then; None writes to stderr on a terminal and in a
        notebook, which the environment variable DIFFSIM_PROGRESS turns off (0) or on for other outputs (1).
      doubt: the old name of `perturbation`, deprecated.

    Returns:
      The motion; `print(solution.advice)` tells how far to trust it.

    Raises:
      ArgumentError: controls without bounds, fewer than one step, another word for `robust`, or a number of samples
        that does not fit.
      ValueError: a guess of the wrong shape.
      UnsupportedError: a model with delays.
    """
    if doubt is not None:
        warnings.warn("plan(doubt=...) is now plan(perturbation=...)", DeprecationWarning, stacklevel=3)
        perturbation = doubt
    settings = settings or PlanSettings()
    if isinstance(settings, Sampling):
        settings = PlanSettings(sampling=settings)
    samples, elites = settings.sampling.samples, settings.sampling.elites
    for share in (SHARES, settings.robust_worlds):
        if samples % share or elites > samples // share:
            reason = f"expected a multiple of {share}, and at least {share} times the {elites} elites"
            raise ArgumentError(f"plan: settings have {samples} samples, {reason}")
    if steps < 1 or robust not in (None, "mean", "worst quarter"):
        expected = "1 or more, and 'mean' or 'worst quarter'"
        raise ArgumentError(f"plan: steps is {steps}, robust {robust!r}; expected {expected}")
    need_bounds(task)
    refuse_delays(task.model)
    planner = Planner(
        task=task,
        state=state,
        steps=steps,
        settings=settings,
        perturbation=perturbation or Perturbation(),
        robust=robust,
        vmap=vmap,
        progress=Progress("plan", seconds, show),
        key=jax.random.key(key) if isinstance(key, int) else key,
    )
    if ctrl is not None:
        planner.add_guess(np.asarray(controls_of(task, ctrl)))
    try:
        planner.explore()
    except (KeyboardInterrupt, OutOfTime):
        planner.report("stopped: the best so far")
    return planner.solution()
