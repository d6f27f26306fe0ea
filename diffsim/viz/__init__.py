"""Renders models by ray casting on JAX, without OpenGL: one light with its shadow, materials and textures.

`render` returns an image array, `video` writes a film of a trajectory, `save` writes PNG, animated GIF or mp4, and
`pixels` is a pure function for use inside jit, vmap and grad.
"""

from diffsim.viz.film import frames as frames
from diffsim.viz.film import save as save
from diffsim.viz.film import video as video
from diffsim.viz.material import HIDDEN_GROUPS as HIDDEN_GROUPS
from diffsim.viz.render import Pixels as Pixels
from diffsim.viz.render import pixels as pixels
from diffsim.viz.render import render as render
from diffsim.viz.view import Pose as Pose
from diffsim.viz.view import View as View
from diffsim.viz.view import poses_of as poses_of
