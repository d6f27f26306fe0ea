"""Assets: meshes, height fields, textures, materials, skins and whole models.

Source: MuJoCo XML reference, "asset"; defaults of user_init.c.
"""

from dataclasses import dataclass
from pathlib import PurePosixPath

from diffsim.base.enums import ColorSpace, TextureRole, TextureType
from diffsim.base.errors import Problems
from diffsim.mjcf.attributes import (
    GRAY,
    Class,
    File,
    Flag,
    Integer,
    Integers,
    IntVector,
    Keyword,
    Name,
    Real,
    Reals,
    Reference,
    Text,
    Vector,
)
from diffsim.mjcf.schema import Element, allow

MESH_INERTIAS = {"convex": "convex", "legacy": "legacy", "exact": "exact", "shell": "shell"}
MESH_BUILTINS = {
    word: word for word in ("none", "sphere", "hemisphere", "cone", "supertorus", "supersphere", "wedge", "plate")
}
TEXTURE_TYPES = {"2d": TextureType.TWO_D, "cube": TextureType.CUBE, "skybox": TextureType.SKYBOX}
COLOR_SPACES = {"auto": ColorSpace.AUTO, "linear": ColorSpace.LINEAR, "sRGB": ColorSpace.SRGB}
TEXTURE_BUILTINS = {word: word for word in ("none", "gradient", "checker", "flat")}
TEXTURE_MARKS = {word: word for word in ("none", "edge", "cross", "random")}
LAYER_ROLES = {role.name.lower(): role for role in TextureRole if role is not TextureRole.USER}

# largest number of characters in gridlayout, one for each cell (MuJoCo's limit)
LONGEST_GRIDLAYOUT = 12


@dataclass(eq=False)
class FileAsset(Element):
    """An asset that may come from a file; if it has no name, it takes the name of the file without extension."""

    name: str | None = None
    file_: str | None = None

    @property
    def known_as(self) -> str | None:
        """The name by which other elements refer to it."""
        if self.name or not self.file_:
            return self.name
        return PurePosixPath(self.file_.replace("\\", "/")).stem


@dataclass(eq=False)
class Mesh(FileAsset):
    """A triangle mesh from a file, from numbers in the XML, or a builtin shape."""

    default_key = "mesh"
    default_omits = frozenset(
        {
            "vertex",
            "normal",
            "texcoord",
            "face",
            "refpos",
            "refquat",
            "smoothnormal",
            "builtin",
            "params",
            "material",
            "content_type",
        }
    )

    name: str | None = Name("mesh")
    class_: str | None = Class()
    content_type: str | None = Text()
    file_: str | None = File("meshdir")
    vertex: Vector | None = Reals(None)
    normal: Vector | None = Reals(None)
    texcoord: Vector | None = Reals(None)
    face: IntVector | None = Integers(None)
    refpos: Vector = Reals(3, (0, 0, 0))
    refquat: Vector = Reals(4, (1, 0, 0, 0))
    scale: Vector = Reals(3, (1, 1, 1))
    smoothnormal: bool = Flag(False)
    maxhullvert: int = Integer(-1)
    inertia: str = Keyword(MESH_INERTIAS, "legacy")
    builtin: str = Keyword(MESH_BUILTINS, "none")
    params: Vector | None = Reals(None)
    material: str | None = Reference("material")

    def check(self, problems: Problems) -> None:
        if self.maxhullvert is not None and self.maxhullvert != -1 and self.maxhullvert < 4:
            problems.add(self, f"attribute 'maxhullvert': must be -1 or at least 4, not {self.maxhullvert}")
        if self.builtin is not None:
            if self.params is None:
                problems.add(self, "a builtin mesh needs attribute 'params'")
            for source, value in (("file", self.file_), ("vertex", self.vertex)):
                if value is not None:
                    problems.add(self, f"attributes 'builtin' and '{source}' cannot both be given")


@dataclass(eq=False)
class HField(FileAsset):
    """A height field."""

    name: str | None = Name("hfield")
    content_type: str | None = Text()
    file_: str | None = File("meshdir")
    nrow: int = Integer(0)
    ncol: int = Integer(0)
    size: Vector = Reals(4, required=True)
    elevation: Vector | None = Reals(None)

    def check(self, problems: Problems) -> None:
        rows, columns = self.nrow or 0, self.ncol or 0
        if self.elevation is not None and self.file_ is None and len(self.elevation) != rows * columns:
            count = len(self.elevation)
            problems.add(self, f"attribute 'elevation': needs nrow * ncol = {rows * columns} numbers, {count} given")


@dataclass(eq=False)
class Texture(FileAsset):
    """An image, or the six faces of a cube; only pictures use it."""

    name: str | None = Name("texture")
    type: TextureType = Keyword(TEXTURE_TYPES, "cube")
    colorspace: ColorSpace = Keyword(COLOR_SPACES, "auto")
    content_type: str | None = Text()
    file_: str | None = File("texturedir")
    gridsize: IntVector = Integers(2, (1, 1))
    gridlayout: str = Text("............")
    fileright: str | None = File("texturedir")
    fileleft: str | None = File("texturedir")
    fileup: str | None = File("texturedir")
    filedown: str | None = File("texturedir")
    filefront: str | None = File("texturedir")
    fileback: str | None = File("texturedir")
    builtin: str = Keyword(TEXTURE_BUILTINS, "none")
    rgb1: Vector = Reals(3, (0.8, 0.8, 0.8))
    rgb2: Vector = Reals(3, (0.5, 0.5, 0.5))
    mark: str = Keyword(TEXTURE_MARKS, "none")
    markrgb: Vector = Reals(3, (0, 0, 0))
    random: float = Real(0.01)
    width: int = Integer(0)
    height: int = Integer(0)
    hflip: bool = Flag(False)
    vflip: bool = Flag(False)
    nchannel: int = Integer(3)

    def check(self, problems: Problems) -> None:
        # the faces of a cube are square
        sides = (self.width or 0, self.height or 0) if self.type is TextureType.TWO_D else (self.width or 0,)
        if self.builtin not in (None, "none") and min(sides) < 1:
            problems.add(self, "a builtin texture needs a positive width and height")
        if self.gridlayout is None:
            return
        cells = int(self.gridsize.prod()) if self.gridsize is not None else 1
        if len(self.gridlayout) > LONGEST_GRIDLAYOUT:
            problems.add(self, f"attribute 'gridlayout': has more than {LONGEST_GRIDLAYOUT} characters")
        elif len(self.gridlayout) != cells:
            problems.add(self, f"attribute 'gridlayout': needs one character for each of the {cells} cells of gridsize")


@dataclass(eq=False)
class Material(Element):
    """Appearance of a surface; geoms whose material has alpha 0 are also invisible to rays."""

    default_key = "material"

    name: str | None = Name("material")
    class_: str | None = Class()
    texture: str | None = Reference("texture")
    texrepeat: Vector = Reals(2, (1, 1))
    texuniform: bool = Flag(False)
    emission: float = Real(0)
    specular: float = Real(0.5)
    shininess: float = Real(0.5)
    reflectance: float = Real(0)
    metallic: float = Real(-1)
    roughness: float = Real(-1)
    rgba: Vector = Reals(4, (1, 1, 1, 1))

    def check(self, problems: Problems) -> None:
        if not self.name and (self.parent is None or self.parent.tag != "default"):
            problems.add(self, "a material needs attribute 'name'")
        if self.texture is not None and self.children:
            problems.add(self.children[0], "a material with attribute 'texture' cannot have layers")

    def resolved(self, inherited: Element, problems: Problems) -> Element:
        """The layers of the default class come first; the material's own layers and its texture override them."""
        result = self.over(inherited)
        layers = inherited.each(Layer)
        if self.texture is not None:
            layers = [layer for layer in layers if layer.role != TextureRole.RGB]
        result.children = [*layers, *self.children]
        return result


@dataclass(eq=False)
class Layer(Element):
    """The texture of a material in one role."""

    texture: str = Reference("texture", required=True)
    role: TextureRole = Keyword(LAYER_ROLES, required=True)


@dataclass(eq=False)
class Skin(Element):
    """A deformable surface that follows bodies; only pictures use it."""

    name: str | None = Name("skin")
    file_: str | None = File("meshdir")
    material: str | None = Reference("material")
    rgba: Vector = Reals(4, GRAY)
    inflate: float = Real(0)
    vertex: Vector | None = Reals(None)
    texcoord: Vector | None = Reals(None)
    face: IntVector | None = Integers(None)
    group: int = Integer(0, least=0, most=5)


@dataclass(eq=False)
class Bone(Element):
    """A body that moves part of a skin."""

    body: str = Reference("body", required=True)
    bindpos: Vector = Reals(3, required=True)
    bindquat: Vector = Reals(4, required=True)
    vertid: IntVector = Integers(None, required=True)
    vertweight: Vector = Reals(None, required=True)


@dataclass(eq=False)
class ModelAsset(FileAsset):
    """Another model, to be attached to this one; without `name` it is known by the name in its file."""

    name: str | None = Name("model")
    file_: str | None = File(required=True)
    content_type: str | None = Text()


allow(Material, {"layer": Layer})
allow(Skin, {"bone": Bone})
