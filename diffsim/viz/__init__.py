"""Pictures of models, without a graphics library: rays through pixels, shaded with one light and its shadow.

For README figures and for a look at a rollout: `render` returns an image array, `video` films a trajectory, `save`
writes PNG, animated GIF or mp4.
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
