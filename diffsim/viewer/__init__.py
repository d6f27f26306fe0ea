"""Shows simulations in a browser: `to_html` writes a file, `play` shows one in a notebook, `launch` is a live view."""

from diffsim.viewer.html import Player as Player
from diffsim.viewer.html import play as play
from diffsim.viewer.html import to_html as to_html
from diffsim.viewer.server import Live as Live
from diffsim.viewer.server import launch as launch
from diffsim.viewer.server import launch_passive as launch_passive
