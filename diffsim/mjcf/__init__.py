"""MJCF: XML text to a typed, checked Spec. `diffsim.mjcf.read("humanoid.xml")`.

kinds.py has the kinds of attributes, elements/ one class per element, reader.py the passes, spec.py what they make.
"""

from diffsim.mjcf.attributes import Tristate as Tristate
from diffsim.mjcf.reader import check as check
from diffsim.mjcf.reader import new as new
from diffsim.mjcf.reader import read as read
from diffsim.mjcf.resources import ResourceError as ResourceError
from diffsim.mjcf.schema import Element as Element
from diffsim.mjcf.spec import Spec as Spec
from diffsim.mjcf.writer import write as write
