"""Long measurements in parts: what was measured stands in a file, one line of JSON each, and is not measured again."""

import json
import pathlib
import time
from collections.abc import Callable, Iterable
from typing import Any

Line = dict[str, Any]


def resumed(
    log: pathlib.Path,
    names: Iterable[str],
    measure: Callable[[str], Line],
    seconds: float = float("inf"),
    stale: Callable[[Line], bool] = lambda line: False,
) -> list[Line]:
    """The lines of all names that have been measured, in the order of the names.

    Args:
      log: where lines are kept; each has its name under "path".
      names: what to measure.
      measure: what a name comes to.
      seconds: after so many none is begun.
      stale: lines that are measured anew.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    texts = log.read_text().splitlines() if log.exists() else []
    lines = {line["path"]: line for line in map(json.loads, texts)}
    begun, names = time.perf_counter(), list(names)
    with log.open("a") as file:
        for name in names:
            if name in lines and not stale(lines[name]):
                continue
            if time.perf_counter() - begun > seconds:
                break
            lines[name] = {"path": name, **measure(name)}
            file.write(json.dumps(lines[name]) + "\n")
            file.flush()
    return [lines[name] for name in names if name in lines]
