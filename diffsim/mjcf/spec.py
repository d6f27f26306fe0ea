"""Spec: a model as written in its files, typed and checked; the input of the compiler.

Elements are as written: attributes that the files do not give are None, and `resolve` fills them. Settings (compiler,
option, size, visual, statistic) are already merged over all their sections and filled.

A program changes a Spec through its elements:

    spec = diffsim.mjcf.read("arm.xml")
    spec.option.timestep = 0.001
    hand = spec.body("hand")
    hand.pos = [0, 0, 0.2]
    tip = hand.add("site", name="tip", size=0.01)
    spec.sensor.add("framepos", objtype="site", objname=tip)
    spec.delete(spec.joint("wrist"), cascade=True)
    model = diffsim.compile(spec)

Values are checked when they are assigned. References between elements are checked by `diffsim.compile` (or
`diffsim.mjcf.check`).
Numbers are in the units of the file: angles are in degrees unless `spec.compiler.angle` is "radian".
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, overload

from diffsim.base import changes
from diffsim.base.errors import MjcfError, Problem, Problems, absent, near_match
from diffsim.mjcf.defaults import Defaults
from diffsim.mjcf.elements.actuator import Actuator
from diffsim.mjcf.elements.asset import HField, Material, Mesh, Skin, Texture
from diffsim.mjcf.elements.body import Body, Camera, FreeJoint, Geom, Joint, Light, Site
from diffsim.mjcf.elements.constraints import Equality, Exclude, Pair
from diffsim.mjcf.elements.deformable import Flex
from diffsim.mjcf.elements.sections import REFERRING, Default, Mujoco, Section
from diffsim.mjcf.elements.sensor import Sensor
from diffsim.mjcf.elements.settings import Compiler, CustomText, Flags, Key, Numeric, Option, Size, Statistic, Tuple
from diffsim.mjcf.elements.tendon import Tendon
from diffsim.mjcf.elements.visual import Visual
from diffsim.mjcf.kinds import FileKind
from diffsim.mjcf.resources import Resources
from diffsim.mjcf.schema import AnyElement, Element, own_names, references, xml_name

# kinds of elements that `Spec.find` can find
FINDABLE = (
    "body",
    "frame",
    "joint",
    "geom",
    "site",
    "camera",
    "light",
    "default",
    "mesh",
    "hfield",
    "texture",
    "material",
    "pair",
    "exclude",
    "equality",
    "tendon",
    "actuator",
    "sensor",
    "numeric",
    "text",
    "tuple",
    "key",
    "flex",
    "skin",
    "model",
    "plugin",
)


class _Every(Generic[AnyElement]):
    """A property of a Spec: all elements of one class, in file order."""

    def __init__(self, cls: type[AnyElement]) -> None:
        self.cls = cls

    def __get__(self, spec: "Spec", owner: type) -> list[AnyElement]:
        return spec.all(self.cls)


class _Section:
    """A property of a Spec: the section with the property's name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.tag = name

    def __get__(self, spec: "Spec", owner: type) -> Any:
        return spec.section(self.tag)


class _Named:
    """A property of a Spec: the function that finds an element of the property's kind by name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.kind = name

    def __get__(self, spec: "Spec", owner: type) -> Callable[[str], Any]:
        return functools.partial(spec.find, self.kind)


@dataclass(eq=False)
class Spec:
    """A model: `root` contains all elements as written; the other fields are views of it.

    Attributes:
      root: the `<mujoco>` element.
      compiler, option, size, visual, statistic: settings, merged and filled.
      worldbody: the world body.
      defaults: default classes.
      resources: where the model's files are.
      names: elements by kind ("body", "joint", ...) and name.
      models: the models that `<asset><model/></asset>` makes available for attachment, by name.
      homes: where the files of attached models are, by the id() of the compiler settings that came with them.
      mujoco: the version of MuJoCo whose semantics the model gets (base/changes.py).
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
    homes: dict[int, Resources] = field(default_factory=dict)
    mujoco: str = changes.DEFAULT

    # all elements of a class; the first body is the world
    bodies = _Every(Body)
    geoms = _Every(Geom)
    sites = _Every(Site)
    cameras = _Every(Camera)
    lights = _Every(Light)
    meshes = _Every(Mesh)
    flexes = _Every(Flex)
    skins = _Every(Skin)
    hfields = _Every(HField)
    textures = _Every(Texture)
    materials = _Every(Material)
    pairs = _Every(Pair)
    excludes = _Every(Exclude)
    equalities = _Every(Equality)
    tendons = _Every(Tendon)
    actuators = _Every(Actuator)
    sensors = _Every(Sensor)
    keys = _Every(Key)
    numerics = _Every(Numeric)
    texts = _Every(CustomText)
    tuples = _Every(Tuple)

    # elements by name, as in MjSpec: `spec.body("torso")` is `spec.find("body", "torso")`
    body = _Named()
    frame = _Named()
    joint = _Named()
    geom = _Named()
    site = _Named()
    camera = _Named()
    light = _Named()
    mesh = _Named()
    hfield = _Named()
    texture = _Named()
    material = _Named()
    pair = _Named()
    exclude = _Named()
    numeric = _Named()
    text = _Named()
    key = _Named()
    flex = _Named()
    skin = _Named()

    # Sections, which are created if they do not exist: `spec.asset.add("mesh", ...)`. `default` is the default class
    # `main`; `spec.find("default", name)` finds nested classes. A section that is called with a name returns its
    # element of that name: `spec.actuator("knee")`.
    default = _Section()
    asset = _Section()
    contact = _Section()
    equality = _Section()
    tendon = _Section()
    actuator = _Section()
    sensor = _Section()
    keyframe = _Section()
    custom = _Section()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError with a hint, such as `spec.find("model", name)`, for names that a Spec lacks."""
            kind = name.removesuffix("s")
            if name.startswith("_"):
                hint = ""
            elif kind in FINDABLE:
                hint = f'; use spec.find("{kind}", name)'
            else:
                hint = near_match(name, [known for known in dir(type(self)) if known[0] != "_"])
                hint = f"; {hint}" if hint else ""
            raise AttributeError(f"a Spec has no attribute '{name}'{hint}", name=name, obj=self)

    def __repr__(self) -> str:
        counts = {
            kind: len(self.all(cls)) for kind, cls in (("bodies", Body), ("actuators", Actuator), ("sensors", Sensor))
        }
        return f"<Spec {self.model!r}: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()) + ">"

    @property
    def model(self) -> str:
        """The model's name."""
        return self.root.filled().model

    @property
    def flags(self) -> Flags:
        """The merged `<flag>` elements."""
        return self.option.first(Flags) or Flags().filled()

    def follows(self, change: str) -> bool:
        """Whether the model follows a change that MuJoCo made after 3.8.1, a name of `base.changes.CHANGES`."""
        return changes.follows(changes.version_of(self.mujoco), change)

    def all(self, kind: type[AnyElement]) -> list[AnyElement]:
        """All elements of class `kind` outside default classes, in file order."""
        return [element for element in self.walk() if isinstance(element, kind)]

    def walk(self) -> Iterator[Element]:
        """All elements outside default classes, in file order."""
        for section in self.root.children:
            if not isinstance(section, Default):
                yield from section.walk()

    @overload
    def find(self, kind: type[AnyElement], name: str) -> AnyElement: ...

    @overload
    def find(self, kind: str, name: str) -> Any: ...

    def find(self, kind: str | type[Element], name: str) -> Any:
        """The element of a kind with a name: `spec.find("body", "torso")` or `spec.find(Body, "torso")`.

        Kinds: body, frame, joint, geom, site, camera, light, default, mesh, hfield, texture, material, pair, exclude,
        equality, tendon, actuator, sensor, numeric, text, tuple, key, or a class of `diffsim.mjcf.elements`.

        Args:
          kind: a word or a class.
          name: of the element.

        Returns:
          The element itself, which can be changed.

        Raises:
          KeyError: there is no such element; the message has the nearest name.
        """
        known: dict[str, dict[str, Element]] = {}
        for element in self.root.walk():
            for space, of_element in own_names(element):
                if isinstance(kind, str) or isinstance(element, kind):
                    known.setdefault(space if isinstance(kind, str) else "", {}).setdefault(of_element, element)
        named = known.get(kind if isinstance(kind, str) else "", {})
        if name in named:
            return named[name]
        what = kind if isinstance(kind, str) else kind.__name__.lower()
        message, hint = absent(what, name, named)
        if isinstance(kind, str) and kind not in FINDABLE:
            hint = near_match(kind, FINDABLE, listed=len(FINDABLE))
        raise KeyError(f"{message}; {hint}" if hint else message)

    def section(self, tag: str) -> Any:
        """The last section with a tag, which is created if there is none: `spec.section("asset").add("mesh", ...)`."""
        sections = [section for section in self.root.children if section.tag == tag]
        return sections[-1] if sections else self.root.add(tag)

    def delete(self, element: Element, cascade: bool = False) -> None:
        """Deletes an element and everything in it.

        Args:
          element: of this model.
          cascade: whether to also delete the pairs, tendons, equalities, actuators, sensors and tuples that refer to
            it, and everything that refers to these. Other elements lose the reference, as a geom loses its material.

        Raises:
          MjcfError: other elements refer to it, and `cascade` is False; the message lists them.
        """
        if element.parent is None or element is self.worldbody:
            raise MjcfError([Problem(element.file, element.line, element.label, "cannot be deleted")])
        inside = {name for part in element.walk() for name in own_names(part)}
        users = self._users(element, inside)
        if users and not cascade:
            hint = "delete that element first, or pass cascade=True"
            raise MjcfError(
                [Problem(user.file, user.line, user.label, f"attribute '{attribute}' refers to {what}", hint)
                 for user, attribute, what in users]
            )  # fmt: skip
        element.parent.children = [child for child in element.parent.children if child is not element]
        for user, attribute, _ in users:
            self._forget(user, attribute)

    def attach(
        self, model: "Spec", to: Element | None = None, body: str = "", prefix: str = "", frame: str = ""
    ) -> None:
        """Attaches a copy of another model's body or frame, or of everything in its world, to this model.

        The copy includes the assets, default classes, actuators, sensors and keyframes that belong to it. All its names
        get `prefix`, and it keeps the compiler settings of its own model. `diffsim.compile` makes the copy;
        `diffsim.mjcf.check(spec)` makes it at once, after which `spec.find` finds it.

        Args:
          model: the other model; changes to it affect copies that have not been made yet.
          to: the body or frame of this model to which it is attached; the world by default.
          body: the name of a body of `model`; everything in its world if empty.
          prefix: added before all names of the copy.
          frame: the name of a frame of `model`, instead of a body.
        """
        name = next(
            name for count in range(len(self.models) + 1) if (name := f"{model.model} {count}") not in self.models
        )
        self.models[name] = model
        part = {kind: what for kind, what in (("body", body), ("frame", frame)) if what}
        (to or self.worldbody).add("attach", model=name, prefix=prefix, **part)

    def _users(self, element: Element, names: set[tuple[str, str]]) -> list[tuple[Element, str, str]]:
        """References to `names` from outside `element`: (element, attribute, description of the target)."""
        within = {id(part) for part in element.walk()}
        return [
            (user, xml_name(attribute), f"{space} '{name}'")
            for user in self.root.walk()
            if id(user) not in within
            for attribute, space, name in references(user)
            if (space, name) in names
        ]

    def _forget(self, user: Element, attribute: str) -> None:
        """Deletes `user` if it makes no sense without the object that `attribute` names; else clears the attribute."""
        around = user
        while around.parent is not None and not (isinstance(around.parent, Section) and around.parent.tag in REFERRING):
            around = around.parent
        if around.parent is None:
            setattr(user, attribute if attribute in user.attributes() else f"{attribute}_", None)
        elif any(child is around for child in around.parent.children):
            self.delete(around, cascade=True)

    def resolve(self, element: AnyElement) -> AnyElement:
        """A copy of `element` with all attributes filled.

        An attribute has the element's value, or the value of its default class, or MJCF's default; None remains only if
        MJCF has no default. Short vectors are completed. An actuator shortcut becomes a general `Actuator`.
        """
        return self.defaults.resolved(element, Problems())  # type: ignore[return-value]

    def compiler_of(self, element: Element) -> Compiler:
        """The compiler settings for an element; for an element of an attached model, the settings of that model."""
        return element.settings if isinstance(element.settings, Compiler) else self.compiler

    def read_file(self, element: Element, attribute: str = "file_") -> bytes:
        """The contents of the file that an attribute of an element names.

        Raises:
          ResourceError: the file cannot be read.
        """
        name = getattr(element, attribute)
        kind = element.attributes()[attribute]
        compiler = self.compiler_of(element)
        folder = compiler.folder(kind.folder) if isinstance(kind, FileKind) and kind.folder else ""
        return self.home_of(element).asset(name, folder, element.file, compiler.strippath)

    def home_of(self, element: Element) -> Resources:
        """Where the files of an element are; for an element of an attached model, where that model's files are."""
        return self.homes.get(id(element.settings), self.resources)

    @property
    def joints(self) -> list[Joint | FreeJoint]:
        """All joints, including free joints."""
        return [element for element in self.walk() if isinstance(element, Joint | FreeJoint)]
