"""launch and launch_passive: a live view in a browser, by an HTTP server that only this machine can reach."""

import json
import threading
import time
import webbrowser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jax
import jax.numpy as jnp

from diffsim.base.checked import checked
from diffsim.types import Inputs, Model, State
from diffsim.types.state import make_inputs, make_state
from diffsim.viewer.html import live_page
from diffsim.viewer.session import Session
from diffsim.viz.view import View

# time between updates of the simulation, s: a frame of most displays
PERIOD = 1 / 60
# the longest command that the server reads, in bytes
MOST_BYTES = 1_000_000


class Live:
    """A live view. `url` is its page, and `sync` shows states of your own loop; `close`, or leaving `with`, ends it."""

    def __init__(self, session: Session, camera: View | None, port: int, title: str) -> None:
        self.session = session
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(session, live_page(session, camera, title)))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._open = True
        for work in (self._server.serve_forever, self._live):
            threading.Thread(target=work, daemon=True).start()

    def _live(self) -> None:
        """Advances the session by the real time that has passed, until the view is closed."""
        before = time.perf_counter()
        while self._open:
            now = time.perf_counter()
            if self.session.running:
                self.session.tick(now - before)
            before = now
            time.sleep(max(0.0, PERIOD - (time.perf_counter() - now)))

    def sync(self, states: State, inputs: Inputs | None = None) -> None:
        """Shows new states; the number of worlds must stay the same."""
        self.session.show(states, inputs)

    def wait(self) -> None:
        """Blocks until the view is closed, or Ctrl-C closes it."""
        try:
            while self._open:
                time.sleep(0.2)
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Ends the view."""
        if self._open:
            self._open = False
            self._server.shutdown()
            self._server.server_close()

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _handler(session: Session, page: str) -> type[BaseHTTPRequestHandler]:
    """The HTTP interface of a session.

    GET / returns the page. GET /frame returns the buffer of the current frame, with the status as JSON in the header
    X-News. POST takes a JSON list [command, value], see `Session.tell`.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/":
                self._answer(200, page.encode(), "text/html; charset=utf-8")
            elif self.path.startswith("/frame"):
                news, numbers = session.frame()
                self._answer(200, numbers, "application/octet-stream", json.dumps(news))
            else:
                self._answer(404, b"no such page", "text/plain")

        def do_POST(self) -> None:
            try:
                size = int(self.headers.get("Content-Length", 0))
                if not self._is_ours() or size > MOST_BYTES:
                    raise ValueError("refused")
                command, value = json.loads(self.rfile.read(size))
                session.tell(command, value)
                self._answer(200, b"{}", "application/json")
            except (KeyError, IndexError, TypeError, ValueError) as error:
                self._answer(400, repr(error).encode(), "text/plain")

        def _is_ours(self) -> bool:
            """Whether our page sent the request: the browser does not let pages of other origins set this header."""
            return self.headers.get("X-Diffsim") == "1"

        def _answer(self, status: int, body: bytes, kind: str, news: str = "{}") -> None:
            self.send_response(status)
            for name, value in (("Content-Type", kind), ("Content-Length", str(len(body))), ("X-News", news)):
                self.send_header(name, value)
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Logs nothing: the page requests 60 frames per second."""

    return Handler


@checked
def launch(
    model: Model,
    state: State | None = None,
    inputs: Inputs | None = None,
    camera: View | None = None,
    port: int = 0,
    browser: bool = True,
) -> None:
    """Simulates a model in a live page until Ctrl-C: pause, step, drag bodies (Ctrl and the mouse), set controls.

    Args:
      model: the model.
      state: initial state, of one world or of several (worlds, ...); None for qpos0.
      inputs: controls and forces, one for all worlds or with the same leading axis; None for zeros.
      camera: the initial camera.
      port: TCP port of the page on this machine; 0 for any free port.
      browser: whether to open the page in a browser.
    """
    print("compiling ...", flush=True)
    live = launch_passive(model, state, inputs, camera, port, browser)
    live.session.running = True
    print(f"{live.url}  (Ctrl-C ends)", flush=True)
    live.wait()


@checked
def launch_passive(
    model: Model,
    state: State | None = None,
    inputs: Inputs | None = None,
    camera: View | None = None,
    port: int = 0,
    browser: bool = True,
) -> Live:
    """Shows a simulation that your own loop runs: call `sync(state)` on the result.

    Args:
      model, state, inputs, camera, port, browser: as in `launch`.

    Returns:
      The view; `close`, or leaving `with`, ends it.
    """
    state = make_state(model) if state is None else state
    of_worlds = make_inputs(model) if inputs is None else inputs
    if of_worlds.ctrl.ndim < state.qpos.ndim:
        worlds = state.qpos.shape[:-1]
        of_worlds = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*worlds, *jnp.shape(leaf))), of_worlds)
    session = Session(model, state, of_worlds)
    session.running = False
    live = Live(session, camera, port, "diffsim")
    if browser:
        webbrowser.open(live.url)
    return live
