"""Custom fields and keyframes.

Source: MuJoCo XML reference, "custom" and "keyframe".
"""

from dataclasses import dataclass

from diffsim.base.enums import ObjType
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import Integer, Keyword, Name, Real, Reals, Reference, Text, Vector
from diffsim.mjcf.schema import Element, allow

# the object types that can be named in a file
OBJECTS = {
    kind.name.lower(): kind
    for kind in ObjType
    if kind not in (ObjType.UNKNOWN, ObjType.FRAME, ObjType.DEFAULT, ObjType.MODEL)
}

MOST_NUMERIC = 500


@dataclass(eq=False)
class Numeric(Element):
    """Numbers for the user; `size` beyond the data means zeros."""

    name: str = Name("numeric", required=True)
    size: int | None = Integer(least=1, most=MOST_NUMERIC)
    data: Vector | None = Reals(None)

    def check(self, problems: Problems) -> None:
        count = 0 if self.data is None else len(self.data)
        if self.size is None and not 1 <= count <= MOST_NUMERIC:
            problems.add(self, f"needs 1 to {MOST_NUMERIC} numbers as 'data', or attribute 'size'")
        elif self.size is not None and count > self.size:
            problems.add(self, f"attribute 'data': takes at most size = {self.size} numbers, {count} given")


@dataclass(eq=False)
class CustomText(Element):
    """Text for the user."""

    name: str = Name("text", required=True)
    data: str = Text(required=True)

    def check(self, problems: Problems) -> None:
        if self.data == "":
            problems.add(self, "attribute 'data': cannot be empty")


@dataclass(eq=False)
class Tuple(Element):
    """A list of objects for the user."""

    name: str = Name("tuple", required=True)


@dataclass(eq=False)
class TupleElement(Element):
    """One object of a tuple."""

    objtype: ObjType = Keyword(OBJECTS, required=True)
    objname: str = Reference(by="objtype", required=True)
    prm: float = Real(0)


@dataclass(eq=False)
class Key(Element):
    """A state to start from; what is not given has the initial value."""

    name: str | None = Name("key")
    time: float = Real(0)
    qpos: Vector | None = Reals(None)
    qvel: Vector | None = Reals(None)
    act: Vector | None = Reals(None)
    mpos: Vector | None = Reals(None)
    mquat: Vector | None = Reals(None)
    ctrl: Vector | None = Reals(None)


allow(Tuple, {"element": TupleElement})
