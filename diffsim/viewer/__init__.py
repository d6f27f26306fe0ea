"""Looking at trajectories in a browser: `to_html` writes one offline file, `play` shows it in a notebook."""

from diffsim.viewer.html import Player as Player
from diffsim.viewer.html import play as play
from diffsim.viewer.html import to_html as to_html
