# ruff: noqa: E501
"""Scenes of `make measure WHAT=scenes`: a hand with a stone, a quadruped on terrain, boxes in a stack, stones in a bowl, a nut on a bolt."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import oracle
from geometry.field_scenes import extension, field_geom
from geometry.hulls import BOX
from oracle import mujoco
from scipy.spatial.transform import Rotation

DATA = "mujoco/mjx/test_data"


class Scene(NamedTuple):
    """A model, where it starts, and what its actuators are told."""

    mjmodel: Any
    qpos: np.ndarray
    ctrl: np.ndarray
    contacts: int


def vertices(name: str, points: np.ndarray) -> str:
    """A mesh of points."""
    return f"<mesh name='{name}' vertex='{' '.join(map(str, points.ravel().round(6)))}'/>"


def stone(count: int, rng: np.random.Generator, radius: float) -> np.ndarray:
    """Points on a stretched sphere: all are vertices of the hull."""
    points = rng.normal(size=(count, 3))
    return radius * points / np.linalg.norm(points, axis=1, keepdims=True) * rng.uniform(0.6, 1, size=3)


def from_text(text: str, contacts: int, **options: Any) -> Scene:
    """A scene that starts as it is written."""
    mjmodel = prepared(mujoco.MjModel.from_xml_string(text), **options)
    return Scene(mjmodel, mjmodel.qpos0.copy(), np.zeros(mjmodel.nu), contacts)


def prepared(mjmodel: Any, **options: Any) -> Any:
    """Energy is computed, and the solver gets to its optimum."""
    mjmodel.opt.enableflags |= mujoco.mjtEnableBit.mjENBL_ENERGY
    for name, value in {"iterations": 100, "ls_iterations": 50, **options}.items():
        setattr(mjmodel.opt, name, value)
    return mjmodel


def hand() -> Scene:
    """The palm looks up; fingers close around a stone that falls onto it."""
    spec = mujoco.MjSpec.from_file(str(oracle.package_path(f"{DATA}/shadow_hand/scene_right.xml")))
    points = stone(24, np.random.default_rng(5), 0.035)
    spec.add_mesh(name="stone", uservert=points.ravel())
    ball = spec.body("object").geoms[0]
    ball.type, ball.meshname = mujoco.mjtGeom.mjGEOM_MESH, "stone"
    spec.body("object").pos = [0.33, 0, 0.07]
    mjmodel = prepared(spec.compile())
    upper = mjmodel.actuator_ctrlrange[:, 1]
    closing = [name[-4:-1] in ("FFJ", "MFJ", "RFJ", "LFJ") and name[-1] in "23" for name in names(mjmodel)]
    return Scene(mjmodel, mjmodel.qpos0.copy(), np.where(closing, 0.7 * upper, 0), 80)


def names(mjmodel: Any) -> list[str]:
    """Of the actuators."""
    return [mjmodel.actuator(k).name for k in range(mjmodel.nu)]


def barkour() -> Scene:
    """From its standing pose, a little above the ground."""
    mjmodel = prepared(
        oracle.mujoco.MjModel.from_xml_path(str(oracle.package_path(f"{DATA}/barkour_v0/assets/barkour_v0_mjx.xml")))
    )
    key = mjmodel.key_qpos[0].copy()
    key[2] += 0.03
    return Scene(mjmodel, key, mjmodel.key_ctrl[0].copy(), 60)


def bowl() -> Scene:
    """Sixteen slabs around a floor; boxes, wedges, columns and stones fall in from a grid above."""
    rng, meshes, bodies = np.random.default_rng(0), [], []
    for k in range(30):
        points = BOX * rng.uniform(0.04, 0.08, size=3) if k % 3 == 0 else stone((8, 12, 20)[k % 3], rng, 0.08)
        meshes.append(vertices(f"m{k}", points))
        place = [0.17 * (k % 3 - 1), 0.17 * (k // 3 % 3 - 1), 0.25 + 0.18 * (k // 9)]
        turn = " ".join(map(str, Rotation.random(random_state=k).as_quat().round(6)))
        bodies.append(
            f"<body pos='{place[0]} {place[1]} {place[2]}' quat='{turn}'><freejoint/><geom type='mesh' mesh='m{k}' condim='3'/></body>"
        )
    slabs = "".join(
        f"<body euler='0 0 {22.5 * k}'><geom type='box' size='.03 .14 .35' pos='.5 0 .25' euler='0 25 0'/></body>"
        for k in range(16)
    )
    return from_text(
        f"<mujoco><option timestep='.004'/><asset>{''.join(meshes)}</asset><worldbody><geom type='plane' size='2 2 .1'/>{slabs}{''.join(bodies)}</worldbody></mujoco>",
        300,
    )


def stack() -> Scene:
    """Boxes that are meshes of eight vertices."""
    mesh = vertices("crate", 0.1 * BOX)
    body = "<body pos='0 0 .1'><freejoint/><geom type='mesh' mesh='crate'/></body>"
    text = f"<mujoco><asset>{mesh}</asset><worldbody><geom type='plane' size='5 5 .1'/><replicate count='10' offset='.01 0 .2'>{body}</replicate></worldbody></mujoco>"
    return from_text(text, 60)


def bolt() -> Scene:
    """As in MuJoCo's nutbolt.xml: the nut turns down the thread, damped."""
    default = "<default><geom solref='.01 1' solimp='.95 .99 .0001' friction='.01'/></default>"
    nut = f"<body pos='-.0012496 .00329058 .830362' quat='-.000212626 .999996 -.00200453 .00185878'><joint type='free' damping='30'/>{field_geom('nut')}</body>"
    text = f"""<mujoco>{extension("nut", "bolt")}{default}<option sdf_iterations='10' sdf_initpoints='20'/><worldbody>
      {nut}<body euler='180 0 0'>{field_geom("bolt")}</body></worldbody></mujoco>"""
    return from_text(text, 20)


SCENES: dict[str, Callable[[], Scene]] = {f.__name__: f for f in (stack, hand, barkour, bolt, bowl)}
