"""Two geoms with random poses, as shapes for the pair functions and as models for the oracle."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

from diffsim.base.enums import GeomType
from diffsim.geometry.shapes import Shape
from diffsim.math.rotation import quat_exp, quat_to_mat
from diffsim.math.vector import mul_mat

SIZES = {
    GeomType.PLANE: (1.0, 1.0, 1.0),
    GeomType.SPHERE: (0.13, 0.0, 0.0),
    GeomType.CAPSULE: (0.07, 0.2, 0.0),
    GeomType.ELLIPSOID: (0.1, 0.15, 0.22),
    GeomType.CYLINDER: (0.12, 0.17, 0.0),
    GeomType.BOX: (0.11, 0.16, 0.2),
}
PLANE, SPHERE, CAPSULE, ELLIPSOID, CYLINDER, BOX = SIZES
CLOSED_FORM = [
    (PLANE, SPHERE),
    (PLANE, CAPSULE),
    (PLANE, ELLIPSOID),
    (PLANE, CYLINDER),
    (PLANE, BOX),
    (SPHERE, SPHERE),
    (SPHERE, CAPSULE),
    (SPHERE, CYLINDER),
    (SPHERE, BOX),
    (CAPSULE, CAPSULE),
    (CAPSULE, BOX),
    (BOX, BOX),
]
CONVEX = [(SPHERE, ELLIPSOID), (CAPSULE, CYLINDER), (ELLIPSOID, BOX)]


def name_of(types: tuple[GeomType, GeomType]) -> str:
    """Label of a parametrized test."""
    return "-".join(kind.name.lower() for kind in types)


def scene(types: tuple[GeomType, GeomType]) -> str:
    """A model of two free geoms with different parameters; a plane is fixed."""
    joints = ["" if kind == PLANE else "<freejoint/>" for kind in types]
    size = [" ".join(str(x) for x in SIZES[kind]) for kind in types]
    names = [kind.name.lower() for kind in types]
    first = f'type="{names[0]}" size="{size[0]}" margin="0.03" friction=".7 .01 .002" solmix="2"'
    second = f'type="{names[1]}" size="{size[1]}" margin="0.02" gap="0.01" condim="4" solref="0.03 0.9"'
    return f"""<mujoco><worldbody><body>{joints[0]}<geom {first}/></body>
    <body>{joints[1]}<geom {second}/></body></worldbody></mujoco>"""


def random_qpos(number: int, rng: np.random.Generator, spread: float = 0.15) -> np.ndarray:
    """Coordinates of some free bodies near each other."""
    poses = [np.concatenate([spread * rng.normal(size=3), rng.normal(size=4)]) for _ in range(number)]
    return np.concatenate(poses)


def random_shape(kind: GeomType, rng: np.random.Generator, spread: float = 0.15) -> Shape:
    """A shape with a random pose."""
    mat = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    return Shape(jnp.asarray(spread * rng.normal(size=3)), jnp.asarray(mat), jnp.asarray(SIZES[kind], float))


def moved(shape: Shape, twist: jax.Array) -> Shape:
    """The shape after a translation, a rotation and a change of size, all in one vector (9,)."""
    turn = quat_to_mat(quat_exp(twist[3:6]))
    return Shape(shape.pos + twist[:3], mul_mat(turn, shape.mat), shape.size + twist[6:])
