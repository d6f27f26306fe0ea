"""Two boxes as MuJoCo collides them since 3.12: contacts that C MuJoCo 4.0.0 gives, and their derivatives.

tests/newer/test_contacts.py compares random poses, where MuJoCo 4.0.0 is there to be asked.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from derivatives import slopes_in_worlds
from geometry.scenes import moved
from uncompiled import uncompiled

from diffsim.geometry.primitive.boxes import boxes
from diffsim.geometry.shapes import Shape
from diffsim.math.rotation import quat_to_mat


class Pose(NamedTuple):
    """Two boxes, the first at the origin, and the contacts of MuJoCo 4.0.0.

    Attributes:
      size1, size2: half sizes, m.
      margin: m, of both geoms together.
      pos, quat: the second box.
      contacts: distance, m, position, m, and normal (n, 7), to 15 digits.
    """

    size1: list[float]
    size2: list[float]
    margin: float
    pos: list[float]
    quat: list[float]
    contacts: list[list[float]]


# the normal of the thin boxes
TILTED = (0.000999999833333342, -0.00199999766666768, 0.999997500001709)
POSES = {
    # four corners of the overlap of two faces
    "stacked": Pose(
        size1=[0.1, 0.2, 0.3],
        size2=[0.2, 0.1, 0.15],
        margin=0.01,
        pos=[0.02, 0.03, 0.44],
        quat=[0.9887710779360422, 0.0, 0.0, 0.14943813247359922],
        contacts=[
            [-0.00999999999999995, 0.1, 0.159422060122578, 0.295, 0.0, 0.0, 1.0],
            [-0.00999999999999995, -0.1, 0.0975548102006538, 0.295, 0.0, 0.0, 1.0],
            [-0.00999999999999995, -0.1, -0.111795510106963, 0.295, 0.0, 0.0, 1.0],
            [-0.00999999999999995, 0.1, -0.0499282601850387, 0.295, 0.0, 0.0, 1.0],
        ],
    ),
    # thin boxes within the margin: 3.8.1 lets points through that are far below the faces
    "thin": Pose(
        size1=[0.3, 0.2, 0.002],
        size2=[0.2, 0.3, 0.002],
        margin=0.005,
        pos=[0.15, -0.1, 0.005],
        quat=[0.9689116924385308, 0.0010926140517332496, 0.00023705206134652928, 0.24740428908318476],
        contacts=[
            [0.0015359837345565, 0.214008844108686, 0.199998464018057, 0.00276798994729989, *TILTED],
            [0.00167661008311545, 0.073382542425171, 0.199998323391873, 0.00283830294579655, *TILTED],
            [0.0016541317158767, -0.169346841352649, 0.0673943415043648, 0.00282706379027512, *TILTED],
            [0.000973260959016341, -0.0232677679256268, -0.200000973259824, 0.0024866292629328, *TILTED],
            [0.000649992758338355, 0.300000324996325, -0.200000649992, 0.00232499556667878, *TILTED],
            [0.00113517855092325, 0.300000567589181, 0.0425920441404748, 0.00256758785648941, *TILTED],
        ],
    ),
    "edges": Pose(
        size1=[0.1, 0.1, 0.1],
        size2=[0.1, 0.1, 0.1],
        margin=0.0,
        pos=[0.2, 0.01, 0.16],
        quat=[0.9003589720820279, 0.39686320462281954, 0.0985135827564837, 0.1488233591220875],
        contacts=[
            [
                -0.0226181320534027,
                0.0890419112666792,
                0.0396425534387518,
                0.097204420326845,
                0.96896496204445,
                0.0,
                0.247198103411408,
            ],
        ],
    ),
    # sunk by more than the half of their thickness: 3.8.1 sees no contact
    "sunk": Pose(
        size1=[0.1, 0.2, 0.3],
        size2=[0.2, 0.1, 0.15],
        margin=0.0,
        pos=[0.03, 0.02, 0.1],
        quat=[0.9996237870295452, 0.010121563799931788, 0.004748200167506828, 0.025045816938637912],
        contacts=[
            [-0.273237756692797, -0.0366188783463986, 0.106820620749422, 0.253807002659711, 1.0, 0.0, 0.0],
            [-0.263242422626189, -0.0316212113130946, -0.0928874836506258, 0.249712331264298, 1.0, 0.0, 0.0],
            [-0.266242372626439, -0.0331211863132196, -0.0868881836201265, -0.0502126738605498, 1.0, 0.0, 0.0],
            [-0.276237706693047, -0.0381188533465236, 0.112819920779922, -0.0461180024651368, 1.0, 0.0, 0.0],
        ],
    ),
}


def shapes_of(pose: Pose) -> tuple[Shape, Shape, jax.Array]:
    """The two boxes and their margin."""
    quat = jnp.asarray(pose.quat)
    first = Shape(pos=jnp.zeros(3), mat=jnp.eye(3), size=jnp.asarray(pose.size1))
    second = Shape(pos=jnp.asarray(pose.pos), mat=quat_to_mat(quat), size=jnp.asarray(pose.size2))
    return first, second, jnp.asarray(pose.margin)


def rows_of(first: Shape, second: Shape, margin: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Distance, position and normal (8, 7) of all rows, zero where none counts; which of them count (8,)."""
    found = boxes(first, second, margin)
    columns = jnp.concatenate([found.dist[:, None], found.pos, found.normal], axis=1)
    return jnp.where(found.valid[:, None], columns, 0), found.valid


@pytest.mark.parametrize("name", POSES)
def test_contacts_are_those_of_mujoco_4(name: str) -> None:
    rows, valid = uncompiled(rows_of)(*shapes_of(POSES[name]))
    ours, theirs = np.asarray(rows)[np.asarray(valid)], np.array(POSES[name].contacts)
    assert ours.shape == theirs.shape
    # both in the order of their positions; digits beyond the eighth do not decide it
    ours, theirs = (listed[np.lexsort(np.round(listed[:, 1:4], 8).T)] for listed in (ours, theirs))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13)


def test_boxes_that_are_apart_do_not_touch() -> None:
    first, second, margin = shapes_of(POSES["stacked"])
    apart = second._replace(pos=second.pos + jnp.array([0, 0, 0.03]))
    assert not np.asarray(uncompiled(rows_of)(first, apart, margin)[1]).any()


def test_derivatives_agree_with_differences() -> None:
    rng = np.random.default_rng(0)
    change = rng.normal(size=9)
    # the stacked boxes lie on each other exactly: any turn decides anew whose face is the reference face
    poses = [pose for name, pose in POSES.items() if name != "stacked"]
    worlds: Any = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(shapes_of, poses))

    def outputs(change: Any, world: Any) -> jax.Array:
        first, second, margin = world
        return rows_of(first, moved(second, change), margin)[0]

    slopes = slopes_in_worlds(outputs, change, worlds)
    assert np.abs(slopes.tangent).max(axis=(1, 2)).min() > 0.1
    np.testing.assert_allclose(slopes.tangent, slopes.numeric, rtol=0, atol=1e-8)
