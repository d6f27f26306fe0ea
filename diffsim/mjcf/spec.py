"""Spec: a model as its files say it, typed and checked; what the compiler reads.

Elements are as written: fields that the files do not set are None. `resolve` fills them. Settings (compiler, option,
size, visual, statistic) are already merged over their sections and filled.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from diffsim.errors import Problems
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.actuator import Actuator
from diffsim.mjcf.elements.asset import HField, Material, Mesh, Texture
from diffsim.mjcf.elements.body import Body
from diffsim.mjcf.elements.contact import Exclude, Pair
from diffsim.mjcf.elements.custom import CustomText, Key, Numeric, Tuple
from diffsim.mjcf.elements.equality import Equality
from diffsim.mjcf.elements.sections import Default, Mujoco
from diffsim.mjcf.elements.sensor import Sensor
from diffsim.mjcf.elements.settings import Compiler, Flags, Option, Size, Statistic
from diffsim.mjcf.elements.tendon import Tendon
from diffsim.mjcf.elements.visual import Visual
from diffsim.mjcf.kinds import FileKind
from diffsim.mjcf.resources import Resources
from diffsim.mjcf.schema import AnyElement, Element


@dataclass(eq=False)
class Spec:
    """A model: `root` holds every element as written, the other fields are views of it.

    names: elements by kind ("body", "joint", ...) and name.
    models: the models that `<asset><model/></asset>` lets this one attach, by name.
    """

    root: Mujoco
    compiler: Compiler
    option: Option
    size: Size
    visual: Visual
    statistic: Statistic
    worldbody: Body
    defaults: Defaults
    resources: Resources
    names: dict[str, dict[str, Element]] = field(default_factory=dict)
    models: "dict[str, Spec]" = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model's name."""
        return self.root.filled().model

    @property
    def flags(self) -> Flags:
        """The merged `<flag>` elements."""
        return self.option.first(Flags) or Flags().filled()

    def all(self, kind: type[AnyElement]) -> list[AnyElement]:
        """Every element of class `kind` outside of default classes, in file order."""
        return [element for element in self.walk() if isinstance(element, kind)]

    def walk(self) -> Iterator[Element]:
        """Every element outside of default classes, in file order."""
        for section in self.root.children:
            if not isinstance(section, Default):
                yield from section.walk()

    def resolve(self, element: AnyElement) -> AnyElement:
        """A copy of `element` in which every attribute is filled.

        Its own value, else the value of its default class, else MJCF's default; None remains only where MJCF has none.
        Short vectors are completed. An actuator shortcut comes back as the general `Actuator` that it stands for.
        """
        return element.resolved(self.defaults.inherited(element), Problems())  # type: ignore[return-value]

    def compiler_of(self, element: Element) -> Compiler:
        """The compiler settings that hold for an element: its own model's, if it was attached from another one."""
        return element.settings if isinstance(element.settings, Compiler) else self.compiler

    def read_file(self, element: Element, attribute: str = "file_") -> bytes:
        """The contents of the file that an attribute of `element` names. Raises ResourceError if it cannot be had."""
        name = getattr(element, attribute)
        kind = element.attributes()[attribute]
        compiler = self.compiler_of(element)
        folder = compiler.folder(kind.folder) if isinstance(kind, FileKind) and kind.folder else ""
        return self.resources.asset(name, folder, element.file, compiler.strippath)

    @property
    def meshes(self) -> list[Mesh]:
        return self.all(Mesh)

    @property
    def hfields(self) -> list[HField]:
        return self.all(HField)

    @property
    def textures(self) -> list[Texture]:
        return self.all(Texture)

    @property
    def materials(self) -> list[Material]:
        return self.all(Material)

    @property
    def pairs(self) -> list[Pair]:
        return self.all(Pair)

    @property
    def excludes(self) -> list[Exclude]:
        return self.all(Exclude)

    @property
    def equalities(self) -> list[Equality]:
        return self.all(Equality)

    @property
    def tendons(self) -> list[Tendon]:
        return self.all(Tendon)

    @property
    def actuators(self) -> list[Actuator]:
        return self.all(Actuator)

    @property
    def sensors(self) -> list[Sensor]:
        return self.all(Sensor)

    @property
    def keys(self) -> list[Key]:
        return self.all(Key)

    @property
    def numerics(self) -> list[Numeric]:
        return self.all(Numeric)

    @property
    def texts(self) -> list[CustomText]:
        return self.all(CustomText)

    @property
    def tuples(self) -> list[Tuple]:
        return self.all(Tuple)
