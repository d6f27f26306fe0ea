"""Pictures of models, without a graphics library: rays through pixels, shaded with one light and its shadow.

For README figures and for a look at a rollout; `render` returns an image array, `save` writes PNG or animated GIF.
"""

from diffsim.viz.render import render as render
from diffsim.viz.render import save as save
from diffsim.viz.view import View as View
