"""Settings of `fit`."""

from diffsim.optimize.identify.residuals import MODES
from diffsim.types.record import Record, one_word, record, static, whole_number


@record
class Fit(Record):
    """Settings of `fit`. The first six are what a user may want to set; the others have defaults that rarely matter.

    Attributes:
      window: rows of each window; 0 to choose automatically: whole recordings, and where things touch, more and more of
        them, points nearby, and short windows that are then chained.
      held_out: number of windows, the last ones, that only test the result.
      known_start: initial states are taken from the recordings, and are not unknowns.
      iterations: of one search, at most.
      mode: of differentiation: "steps", "forward", "reverse" (residuals.py), or "auto", the cheapest of them.
      starts: number of starts to search from, if the first one does not lead to a minimum that explains the data.
      short_window: rows of the short windows.
      tightness: how far chained windows may fail to meet (m, rad), one value after the other.
      start_candidates: number of points that are evaluated to choose further starts from.
      start_range: how far these points are from the model's parameters where there are no bounds, in sizes of the
        parameters.
      stages: number of stages in which a search sees more and more of a motion with contacts.
      stage_iterations: iterations of each of these searches.
      first_rows: without contacts, far from the solution, this number of rows is fitted first, then three times as
        many.
      far: a start is far if the mean square of the residuals is above this (1 is noise).
      near: points nearby are tried if the mean square is below this.
      close: no further starts are tried if the mean square is below this: they would lead no closer.
      nearby_points: number of points nearby in a round.
      nearby_rounds: most rounds about the best point so far.
      nearby_searches: most searches that continue from a point nearby.
      nearby_reach: distances of these points, in standard deviations, in turn.
      nearby_gain: a further round needs a fall of the cost by this part.
      unknown_start: points nearby do not change a coordinate of a first state whose standard deviation is above this
        (m, rad, and per second).
      remaining_step: where motions jump, a search may end although a step of at most this part of a parameter's size
        remains; this step widens the intervals.
      jump_widening: intervals are at least this factor wider where a motion jumps.
      profile_reach: distances at which the profile likelihood is evaluated, in standard deviations.
      same_minimum: two minima are one if their costs differ by less than this part.
      noise_rounds: how often the noise is estimated anew from the residuals, if the user gives none.
      noise_change: the estimate has converged if no standard deviation changes by more than this factor.
    """

    window: int = static(whole_number, default=0)
    held_out: int = static(whole_number, default=0)
    known_start: bool = static(default=False)
    iterations: int = static(whole_number, default=60)
    mode: str = static(one_word(MODES), default="auto")
    starts: int = static(whole_number, default=4)
    short_window: int = static(whole_number, default=30)
    tightness: tuple[float, ...] = static(default=(1e-2, 1e-4, 1e-6))
    start_candidates: int = static(whole_number, default=32)
    start_range: float = static(default=3.0)
    stages: int = static(whole_number, default=24)
    stage_iterations: int = static(whole_number, default=6)
    first_rows: int = static(whole_number, default=40)
    far: float = static(default=1e4)
    near: float = static(default=10.0)
    close: float = static(default=1.5)
    nearby_points: int = static(whole_number, default=40)
    nearby_rounds: int = static(whole_number, default=12)
    nearby_searches: int = static(whole_number, default=3)
    nearby_reach: tuple[float, ...] = static(default=(0.1, 0.3, 1.0, 3.0))
    nearby_gain: float = static(default=1e-3)
    unknown_start: float = static(default=0.3)
    remaining_step: float = static(default=0.05)
    jump_widening: float = static(default=3.0)
    profile_reach: tuple[float, ...] = static(default=(4.0, 12.0, 36.0))
    same_minimum: float = static(default=1e-4)
    noise_rounds: int = static(whole_number, default=4)
    noise_change: float = static(default=1.1)
