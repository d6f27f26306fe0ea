"""Chromium without a window, told what to do by the DevTools protocol on two pipes, so that a test has a mouse."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Any

CHROMIUM = next((path for name in ("chromium", "google-chrome", "chrome") if (path := shutil.which(name))), None)
FLAGS = ("--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--mute-audio")
CTRL = 2


class Page:
    """A page of a browser: `evaluate` JavaScript there, and move the `mouse`."""

    def __init__(self, orders: int, answers: int) -> None:
        self._orders, self._answers, self._count, self._rest = orders, answers, 0, b""
        self._session: str | None = None

    def tell(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a command of the protocol; events in between are dropped."""
        self._count += 1
        order = {"id": self._count, "method": method, "params": params}
        order |= {"sessionId": self._session} if self._session else {}
        os.write(self._orders, json.dumps(order).encode() + b"\0")
        while True:
            while b"\0" not in self._rest:
                self._rest += os.read(self._answers, 1 << 16)
            line, self._rest = self._rest.split(b"\0", 1)
            answer = json.loads(line)
            if answer.get("id") == self._count:
                assert "result" in answer, answer
                return answer["result"]

    def attach(self) -> None:
        """Waits for the page that the browser began with; what follows is told to it."""
        found: list[str] = []
        while not found:
            targets = self.tell("Target.getTargets")["targetInfos"]
            found = [each["targetId"] for each in targets if each["type"] == "page"]
        self._session = self.tell("Target.attachToTarget", targetId=found[0], flatten=True)["sessionId"]

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        return self.tell("Runtime.evaluate", expression=expression, returnByValue=True)["result"].get("value")

    def wait(self, expression: str, seconds: float = 60) -> None:
        """Until an expression is true."""
        end = time.monotonic() + seconds
        while not self.evaluate(expression):
            assert time.monotonic() < end, f"{expression} did not come true in {seconds} s"
            time.sleep(0.1)

    def mouse(self, what: str, x: float, y: float, keys: int = CTRL) -> None:
        """The left button "Pressed", "Moved" or "Released" at pixels of the page, while keys are held."""
        settings = {"button": "left", "buttons": 1, "clickCount": 1, "modifiers": keys}
        self.tell("Input.dispatchMouseEvent", type=f"mouse{what}", x=x, y=y, **settings)


@contextlib.contextmanager
def browse(url: str) -> Iterator[Page]:
    """A browser at an address, until the end of the block."""
    (read_order, orders), (answers, write_answer) = os.pipe(), os.pipe()
    # Chromium reads its orders from 3 and answers on 4
    pipes = f'exec "$0" "$@" 3<&{read_order} 4>&{write_answer}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        own = ["--remote-debugging-pipe", f"--user-data-dir={pathlib.Path(folder)}", "--window-size=640,400", url]
        command = ["bash", "-c", pipes, str(CHROMIUM), *FLAGS, *own]
        process = subprocess.Popen(command, pass_fds=(read_order, write_answer), stderr=subprocess.DEVNULL)
        try:
            page = Page(orders, answers)
            page.attach()
            yield page
        finally:
            process.kill()
            process.wait()
            for end in (read_order, orders, answers, write_answer):
                os.close(end)
