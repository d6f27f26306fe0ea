# ruff: noqa: E402
"""CPU seconds per load, by part: `python tests/compiler/times.py [model ...]`. Parts are CPU time of this process."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import jax
from corpus import CORPUS
from oracle import package_path

from diffsim import mjcf
from diffsim.compiler import passes, sizes_and_defaults
from diffsim.compiler.draft import Draft
from diffsim.compiler.elements import settings
from diffsim.compiler.host.interpret import interpret
from diffsim.compiler.pack import pack
from diffsim.simulate.constants import constants


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """(CPU seconds, result)."""
    start = time.process_time()
    result = function(*arguments)
    return time.process_time() - start, result


def main(paths: list[str]) -> None:
    """Print one line per model."""
    print("read  passes  pack  trace  interpret  model")
    for path in paths:
        read, spec = timed(mjcf.read, package_path(path))
        draft = Draft(spec)
        compiled, _ = timed(passes.run_passes, draft)
        names, texts = sizes_and_defaults.names(draft), settings.texts(draft)
        with jax.enable_x64(True):
            packed, model = timed(lambda fields, n=names, t=texts: pack(fields, n, t), draft.fields)
            traced, _ = timed(jax.make_jaxpr(constants), model)
            evaluated, _ = timed(interpret, constants, model)
        print(f"{read:.3f}  {compiled:.3f}  {packed:.3f}  {traced:.3f}  {evaluated:.3f}  {path}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or CORPUS)
