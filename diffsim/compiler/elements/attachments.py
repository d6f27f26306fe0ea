"""Sites, cameras and lights: objects on bodies that do not affect the dynamics.

Source: MuJoCo "Modeling", site, camera, light.
"""

from math import atan2, pi
from typing import Any

import numpy as np

from diffsim.base.enums import GeomType, LightType
from diffsim.compiler.draft import Draft, Node
from diffsim.compiler.elements.geoms import check_size, orientation, shaped_pose
from diffsim.mjcf.elements.visual import Map
from diffsim.mjcf.orientation import IDENTITY, compose, rotate, unit

# the geom types that a site can have
SITE_SHAPES = (GeomType.SPHERE, GeomType.CAPSULE, GeomType.ELLIPSOID, GeomType.CYLINDER, GeomType.BOX)

# attributes of a light that are copied
LIGHT = ("attenuation", "cutoff", "exponent", "ambient", "diffuse", "specular")


def attachment_rows(draft: Draft) -> None:
    """Fills the rows of all sites, cameras and lights."""
    for kind, make in (("site", _site_row), ("camera", _camera_row), ("light", _light_row)):
        for node in draft.nodes[kind]:
            node.row = make(draft, node)
    draft.problems.raise_if_any()


def _site_row(draft: Draft, node: Node) -> dict:
    """The fields of a site."""
    e = node.e
    kind = GeomType(node.e.type)
    if kind not in SITE_SHAPES:
        draft.problems.add(node.source, f"attribute 'type': a site cannot be a {kind.name.lower()}")
        return {}
    pos, quat, size = shaped_pose(draft, node, kind)
    check_size(draft, node, kind, size)
    return {
        "site_type": kind,
        "site_bodyid": node.body.id if node.body else 0,
        "site_matid": draft.optional(node, "material", e.material),
        "site_group": e.group,
        "site_size": size,
        "site_pos": pos,
        "site_quat": unit(quat)[0],
        "site_rgba": e.rgba,
    }


def _camera_row(draft: Draft, node: Node) -> dict:
    """The fields of a camera; with a sensor size, its intrinsics give `fovy`."""
    e = node.e
    pos, quat = compose(*node.frame, e.pos, orientation(draft, node))
    intrinsics = (e.focal, e.focalpixel, e.principal, e.principalpixel)
    sized = e.sensorsize is not None and (e.sensorsize > 0).all()
    if not sized and any(value is not None and value.any() for value in intrinsics):
        draft.problems.add(node.source, "attributes 'focal' and 'principal' need attribute 'sensorsize'")
    if sized and (e.resolution <= 0).any():
        draft.problems.add(node.source, "attribute 'sensorsize' needs a positive resolution")
    fovy = e.fovy
    # without a sensor size, MuJoCo stores znear as both focal lengths
    znear = (draft.spec.visual.first(Map) or Map()).filled().znear
    intrinsic = np.array([znear, znear, 0.0, 0.0])
    if sized and e.sensorsize is not None:
        focal = _lengths(e, "focal", "focalpixel")
        fovy = atan2(e.sensorsize[1] / 2, focal[1]) * 360.0 / pi
        intrinsic = np.concatenate([focal, _lengths(e, "principal", "principalpixel")])
    if fovy >= 180:
        draft.problems.add(node.source, f"attribute 'fovy': must be less than 180 degrees, not {fovy:g}")
    return {
        "cam_mode": e.mode,
        "cam_bodyid": node.body.id if node.body else 0,
        "cam_targetbodyid": draft.optional(node, "body", e.target),
        "cam_pos": pos,
        "cam_quat": unit(quat)[0],
        "cam_projection": e.projection,
        "cam_fovy": fovy,
        "cam_ipd": e.ipd,
        "cam_resolution": e.resolution,
        "cam_output": sum(set(e.output)),
        "cam_sensorsize": e.sensorsize if e.sensorsize is not None else np.zeros(2),
        "cam_intrinsic": intrinsic,
    }


def _lengths(e: Any, length: str, pixel: str) -> np.ndarray:
    """(2,) m, the focal length or principal point, from attribute `pixel` if it is given, else from `length`."""
    value = np.zeros(2) if getattr(e, length) is None else np.array(getattr(e, length), float)
    pixels = getattr(e, pixel)
    if pixels is None:
        return value
    return np.where(pixels != 0, pixels * e.sensorsize / e.resolution, value)


def _light_row(draft: Draft, node: Node) -> dict:
    """The fields of a light."""
    e = node.e
    direction, length = unit(rotate(node.frame[1], e.dir))
    if not length:
        draft.problems.add(node.source, "attribute 'dir': cannot be zero")
    kind = e.type if e.directional is None else LightType.DIRECTIONAL if e.directional else LightType.SPOT
    return {
        "light_mode": e.mode,
        "light_bodyid": node.body.id if node.body else 0,
        "light_targetbodyid": draft.optional(node, "body", e.target),
        "light_type": kind,
        "light_castshadow": e.castshadow,
        "light_active": e.active,
        "light_pos": compose(*node.frame, e.pos, IDENTITY)[0],
        "light_dir": direction,
        **{f"light_{name}": getattr(e, name) for name in LIGHT},
    }
