"""Skins: surfaces that move with bodies (their bones) and that only pictures use.

The position of a vertex is the weighted mean over its bones; weights are normalized. Vertices, triangles and bones are
given in the XML or in a file. The file has four counts (vertices, texture coordinates, triangles, bones), these arrays,
and for each bone its name (40 bytes), its pose, the number of its vertices, their indices and their weights.
Source: MuJoCo "XML reference", skin; mjCSkin::Compile and LoadSKN (3.8.1).
"""

from typing import NamedTuple

import numpy as np

from diffsim.base.enums import MINVAL
from diffsim.compiler.draft import Draft, Node, addresses, or_minus_one
from diffsim.mjcf.elements.asset import Bone
from diffsim.mjcf.resources import MOST_FACES, MOST_VERTICES, AssetError, check_count

Array = np.ndarray

# bytes of a bone's name in a file
NAME_BYTES = 40


class _Bone(NamedTuple):
    """The name of a body, its pose when the skin was made, and its vertices (n,) with their weights."""

    body: str
    bindpos: Array
    bindquat: Array
    vertid: Array
    vertweight: Array


class _Skin(NamedTuple):
    """Vertices (n, 3) m, texture coordinates (n, 2) or (0, 2), triangles (m, 3), and bones."""

    vertex: Array
    texcoord: Array
    face: Array
    bones: list[_Bone]


def skin_rows(draft: Draft) -> None:
    """Rows of all skins, and the arrays that hold their vertices, triangles and bones."""
    skins = list[_Skin]()
    for node in draft.nodes["skin"]:
        try:
            skin = _from_file(draft, node) if node.e.file_ else _from_numbers(node)
            skins.append(_checked(skin))
            bodies = [draft.find(node.source, "body", bone.body) for bone in skin.bones]
        except AssetError as error:
            draft.refuse(node, error)
            continue
        node.row = {
            "skin_matid": draft.optional(node, "material", node.e.material),
            "skin_group": node.e.group,
            "skin_rgba": node.e.rgba.astype(np.float32),
            "skin_inflate": np.float32(node.e.inflate),
        }
        node.row["skin_bonebodyid"] = np.array([body.id if body else 0 for body in bodies])
    draft.problems.raise_if_any()
    if not skins:
        return
    owners = [node.row.pop("skin_bonebodyid") for node in draft.nodes["skin"]]
    draft.columns("skin")
    bones = [bone for skin in skins for bone in skin.bones]
    counts = {name: np.array([len(getattr(skin, name)) for skin in skins]) for name in _Skin._fields}
    of_bones = np.array([len(bone.vertid) for bone in bones])
    draft.fields.update(
        nskinvert=int(counts["vertex"].sum()),
        nskintexvert=int(counts["texcoord"].sum()),
        nskinface=int(counts["face"].sum()),
        nskinbone=len(bones),
        nskinbonevert=int(of_bones.sum()),
        skin_vertadr=addresses(counts["vertex"]),
        skin_vertnum=counts["vertex"],
        skin_texcoordadr=or_minus_one(addresses(counts["texcoord"]), counts["texcoord"]),
        skin_faceadr=addresses(counts["face"]),
        skin_facenum=counts["face"],
        skin_boneadr=addresses(counts["bones"]),
        skin_bonenum=counts["bones"],
        skin_vert=np.concatenate([skin.vertex for skin in skins]),
        skin_texcoord=np.concatenate([skin.texcoord for skin in skins]),
        skin_face=np.concatenate([skin.face for skin in skins]),
        skin_bonevertadr=addresses(of_bones),
        skin_bonevertnum=of_bones,
        skin_bonebodyid=np.concatenate(owners),
        skin_bonebindpos=np.array([bone.bindpos for bone in bones]),
        skin_bonebindquat=np.array([bone.bindquat for bone in bones]),
        skin_bonevertid=np.concatenate([bone.vertid for bone in bones]),
        skin_bonevertweight=np.concatenate([bone.vertweight for bone in bones]),
    )


def _from_numbers(node: Node) -> _Skin:
    """A skin from the XML."""

    def rows(name: str, width: int, kind: type) -> Array:
        values = getattr(node.e, name)
        if values is not None and len(values) % width:
            raise AssetError(
                f"attribute '{name}': the number of values must be a multiple of {width}, {len(values)} given"
            )
        return np.zeros((0, width), kind) if values is None else np.array(values, kind).reshape(-1, width)

    bones = [
        _Bone(e.body, e.bindpos.astype(np.float32), e.bindquat.astype(np.float32), np.array(e.vertid), e.vertweight)
        for e in (bone.filled() for bone in node.source.each(Bone))
    ]
    return _Skin(rows("vertex", 3, np.float32), rows("texcoord", 2, np.float32), rows("face", 3, int), bones)


def _from_file(draft: Draft, node: Node) -> _Skin:
    """A skin from an SKN file. Raises AssetError if the file is damaged."""
    inline = [name for name in ("vertex", "texcoord", "face") if getattr(node.e, name) is not None]
    if inline or node.source.each(Bone):
        raise AssetError("a skin cannot have both a file and vertices or bones")
    if not node.e.file_.lower().endswith(".skn"):
        raise AssetError("is not a supported kind of skin file", "use SKN")
    words = np.frombuffer(data := draft.contents(node), "<i4", len(data) // 4)
    if len(words) < 4 or words[:4].min(initial=0) < 0:
        raise AssetError("is not a skin file: its counts are missing or negative")
    nvert, ntexcoord, nface, nbone = (int(count) for count in words[:4])
    check_count(max(nvert, ntexcoord), MOST_VERTICES, "vertices")
    check_count(nface, MOST_FACES, "triangles")
    place = 4

    def take(count: int, kind: str = "<f4") -> Array:
        """The next `count` numbers of the file."""
        nonlocal place
        if count < 0 or place + count > len(words):
            raise AssetError("is damaged: its counts need more bytes than it has")
        place += count
        return words[place - count : place].view(kind)

    vertex = take(3 * nvert)
    texcoord = take(2 * ntexcoord)
    face = take(3 * nface, "<i4")
    bones = list[_Bone]()
    for _ in range(nbone):
        name = take(NAME_BYTES // 4, "<i4").tobytes()[:-1].split(b"\0")[0].decode(errors="replace")
        bindpos, bindquat = take(3), take(4)
        count = int(take(1, "<i4")[0])
        bones.append(_Bone(name, bindpos, bindquat, take(count, "<i4"), take(count)))
    if place * 4 != len(data):
        raise AssetError(f"is damaged: it has {len(data)} bytes, but its counts need {4 * place}")
    return _Skin(vertex.reshape(-1, 3), texcoord.reshape(-1, 2), face.reshape(-1, 3), bones)


def _checked(skin: _Skin) -> _Skin:
    """The skin with normalized weights and quaternions. Raises AssetError if it is not complete."""
    nvert = len(skin.vertex)
    if not nvert or not len(skin.face) or not skin.bones:
        raise AssetError("a skin needs vertices, triangles and bones")
    if len(skin.texcoord) not in (0, nvert):
        raise AssetError(f"{len(skin.texcoord)} texture coordinates for {nvert} vertices")
    if skin.face.min() < 0 or skin.face.max() >= nvert:
        raise AssetError(f"a triangle uses a vertex that does not exist, there are {nvert}")
    total = np.zeros(nvert, np.float32)
    for bone in skin.bones:
        if not len(bone.vertid) or len(bone.vertid) != len(bone.vertweight):
            raise AssetError(f"bone '{bone.body}' needs at least one vertex, and one weight for each vertex")
        if bone.vertid.min() < 0 or bone.vertid.max() >= nvert:
            raise AssetError(f"bone '{bone.body}' uses a vertex that does not exist, there are {nvert}")
        np.add.at(total, bone.vertid, bone.vertweight.astype(np.float32))
    if not (total > MINVAL).all():
        raise AssetError(f"the weights of vertex {int(np.argmin(total > MINVAL))} must sum to more than zero")
    bones = [
        bone._replace(
            vertweight=bone.vertweight.astype(np.float32) / total[bone.vertid],
            bindquat=bone.bindquat / max(float(np.linalg.norm(bone.bindquat.astype(float))), MINVAL),
        )
        for bone in skin.bones
    ]
    return skin._replace(bones=bones)
