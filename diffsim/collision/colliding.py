"""Frames of the geoms that can collide: all that contact detection reads of a pose."""

import numpy as np

from diffsim.collision.layout import layout_of
from diffsim.geometry.frames import GeomFrames, Poses
from diffsim.kinematics.poses import geom_frames
from diffsim.types.data import Kinematics
from diffsim.types.model import Model
from diffsim.xla.barriers import for_cpu


def colliding_frames(model: Model, kinematics: Kinematics) -> Poses:
    """Those of the geoms of all candidate pairs on a CPU, where they are fewer than all; else all."""
    pairs = layout_of(model).pairs
    geoms = np.union1d(pairs.geom1, pairs.geom2)
    if not for_cpu() or len(geoms) == model.ngeom:
        return kinematics
    place = np.zeros(model.ngeom, np.int32)
    place[geoms] = np.arange(len(geoms))
    return GeomFrames(*geom_frames(model, kinematics, geoms), place)
