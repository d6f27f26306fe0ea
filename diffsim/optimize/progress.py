"""Progress and time budget of a long call.

`plan` and `fit` run on the host for seconds to minutes. Both report their progress through a `Progress`, and stop when
it says that their time is up.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

from diffsim.xla.progress import watched


class OutOfTime(Exception):
    """The budget of time is used up."""


class Progress:
    """Reports how a call goes, and watches its budget of time.

    Args:
      name: what runs, such as "plan"; each line begins with it.
      seconds: the budget, compilation included; None for no limit.
      show: called with each line; None writes to stderr on a terminal and in a notebook (see DIFFSIM_PROGRESS).
    """

    def __init__(self, name: str, seconds: float | None, show: Callable[[str], Any] | None) -> None:
        self.name = name
        self.seconds = seconds
        self.show = show
        self.began = time.monotonic()
        self.reported = float("-inf")
        self.closed = False

    @property
    def elapsed(self) -> float:
        """Seconds since the call began."""
        return time.monotonic() - self.began

    @property
    def out_of_time(self) -> bool:
        """Whether the budget is used up."""
        return not self.closed and self.seconds is not None and self.elapsed > self.seconds

    def due(self, interval: float) -> bool:
        """Whether the last line is more than `interval` seconds old."""
        return not self.closed and time.monotonic() - self.reported > interval

    def report(self, text: str) -> None:
        """Shows one line, with the time that has passed."""
        self.reported = time.monotonic()
        line = f"{self.name}: {text}, {self.reported - self.began:.1f} s"
        if self.show is not None:
            self.show(line)
        elif watched():
            print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Ends the budget and the regular lines: what the caller computes afterwards has no time limit."""
        self.closed = True
