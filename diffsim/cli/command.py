"""Command: a row of the table of commands."""

import argparse
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """What a command is for, in a line; how it declares its arguments; what it does with them."""

    about: str
    declare: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
