"""Flexes and skins as we compile them beside MuJoCo: `make measure WHAT=flex`, one line of counts.

A table of small models, type x dim x dof x material; and, where MODELS names a folder with MuJoCo's model/ and test/
trees at 3.8.1, every file there that has flexes or skins.
"""

import os
import sys
from pathlib import Path

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))

import oracle
from flex.table import cases, flex_differences, verdict

from diffsim import mjcf
from diffsim.base.errors import MjcfError
from diffsim.compiler.passes import compile_all

WORDS = ("<flex", "<skin", "<composite")


def files() -> list[Path]:
    """MuJoCo's own files with flexes and skins, if they are there."""
    root = os.environ.get("MODELS")
    found = [path for part in ("model", "test") for path in sorted(Path(root, part).rglob("*.xml"))] if root else []
    return [path for path in found if any(word in path.read_text(errors="replace") for word in WORDS)]


def of_file(path: Path) -> list[str] | None:
    """What differs in one file; None where both compilers refuse it."""
    try:
        theirs = oracle.mujoco.MjModel.from_xml_path(str(path))
    except ValueError:
        theirs = None
    try:
        ours = compile_all(mjcf.read(path, allow_outside=True), refuse=False)
    except MjcfError as error:
        return None if theirs is None else [str(error)]
    return ["is only refused by MuJoCo"] if theirs is None else flex_differences(ours, theirs)


def main() -> None:
    """Prints what differs, and the counts."""
    jax.config.update("jax_enable_x64", True)
    equal = refused = 0
    table = list(cases())
    for case in table:
        found = verdict(case.xml)
        equal += not found
        if found:
            print(case.name, *found, sep="\n    ")
    paths = files()
    wrong = list[Path]()
    for path in paths:
        found = of_file(path)
        refused += found is None
        if found:
            wrong.append(path)
            print(path, *found, sep="\n    ")
    print(
        f"flex: {equal} of {len(table)} models of the table as MuJoCo compiles or refuses them; of {len(paths)} of its "
        f"files {len(paths) - refused - len(wrong)} equal in all fields, {refused} refused by both, {len(wrong)} differ"
    )


if __name__ == "__main__":
    main()
