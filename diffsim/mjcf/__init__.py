"""MJCF: reads XML into a typed, checked Spec and writes it back. `diffsim.mjcf.read("humanoid.xml")`.

kinds.py defines the kinds of attributes, elements/ a class for each element, reader.py the passes that read a file, and
spec.py the Spec that they make.
"""

from diffsim.mjcf.attributes import Tristate as Tristate
from diffsim.mjcf.reader import check as check
from diffsim.mjcf.reader import new as new
from diffsim.mjcf.reader import read as read
from diffsim.mjcf.resources import ResourceError as ResourceError
from diffsim.mjcf.schema import Element as Element
from diffsim.mjcf.spec import Spec as Spec
from diffsim.mjcf.writer import write as write
