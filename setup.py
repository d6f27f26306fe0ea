"""Puts llms.txt and api.md (docs/llms.py) into the package when a wheel is built; all else is in pyproject.toml."""

import pathlib
import sys

from setuptools import setup
from setuptools.command.build_py import build_py

sys.path.append(str(pathlib.Path(__file__).parent / "docs"))


class BuildWithTexts(build_py):
    """Builds the package, and writes the texts into it."""

    def run(self) -> None:
        """Builds."""
        super().run()
        if not self.editable_mode:
            import llms  # type: ignore

            llms.write(pathlib.Path(self.build_lib) / "diffsim")


setup(cmdclass={"build_py": BuildWithTexts})
