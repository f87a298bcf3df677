"""A private virtual desktop: X server, window manager, message bus and home, all ended together.

    with Desk(folder) as desk:
        program = desk.start(["mousepad"])
        desk.wait(lambda: "mousepad" in desk.titles())
        desk.screenshot().save("now.png")

pytest: `desk` is one desktop for the whole run, emptied of programs after each test.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from PIL import Image, ImageGrab

T = TypeVar("T")
PRIVATE = ("WAYLAND_DISPLAY", "XDG_SESSION_TYPE", "XAUTHORITY", "WINDOWID", "GTK_MODULES", "QT_QPA_PLATFORM")


def end(process: subprocess.Popen[bytes]) -> None:
    """End a program and all that it started: TERM, two seconds, KILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            pipe.close()


def connect(display: str) -> Any:
    """A connection of the test's own. Xlib 0.15 wants a file of cookies, even an empty one."""
    from Xlib.display import Display

    before = os.environ.get("XAUTHORITY")
    os.environ["XAUTHORITY"] = os.devnull
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            return Display(display)
    finally:
        del os.environ["XAUTHORITY"]
        if before is not None:
            os.environ["XAUTHORITY"] = before


class Desk:
    """A desktop of its own. `env` is the environment for whatever should live on it."""

    def __init__(
        self,
        folder: Path,
        *,
        width: int = 1280,
        height: int = 800,
        manager: str = "openbox",
        bus: bool = True,
    ) -> None:
        self.home = folder / "home"
        runtime = folder / "runtime"
        self.home.mkdir(parents=True)
        runtime.mkdir(mode=0o700)
        self.env = {name: value for name, value in os.environ.items() if name not in PRIVATE}
        self.env |= {
            "HOME": str(self.home),
            "AGENT_SOLO_HOME": str(self.home / ".agent_solo"),
            "XDG_RUNTIME_DIR": str(runtime),
            "LANG": "C.UTF-8",
            "GDK_BACKEND": "x11",
            "GSK_RENDERER": "cairo",  # GTK 4: its animations must not starve its accessibility
            "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1",
            "PYTHONUTF8": "1",
        }
        self._servers: list[subprocess.Popen[bytes]] = []
        self._programs: list[subprocess.Popen[bytes]] = []
        self._screen: Any = None
        try:
            self._open(f"{width}x{height}x24", manager=manager, bus=bus)
        except BaseException:
            self.close()
            raise

    def _open(self, size: str, *, manager: str, bus: bool) -> None:
        number = self._serve(
            ["Xvfb", "-displayfd", "{}", "-screen", "0", size, "-nolisten", "tcp", "-noreset"]
        )
        self.display = self.env["DISPLAY"] = f":{number}"
        self._screen = connect(self.display)
        if bus:
            address = self._serve(["dbus-daemon", "--session", "--nofork", "--print-address={}"])
            self.env["DBUS_SESSION_BUS_ADDRESS"] = address
        if manager:
            self._servers.append(self._spawn([manager]))
            self.wait(lambda: self._property("_NET_SUPPORTING_WM_CHECK"))

    def _spawn(self, argv: Sequence[str], **more: Any) -> subprocess.Popen[bytes]:
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        return subprocess.Popen(list(argv), start_new_session=True, **{"env": self.env, **quiet, **more})

    def _serve(self, argv: Sequence[str]) -> str:
        """Start a server that says one line on the pipe named {} as soon as it is ready; return that line."""
        read, write = os.pipe()
        with os.fdopen(read, "rb") as answer:
            self._servers.append(self._spawn([word.format(write) for word in argv], pass_fds=(write,)))
            os.close(write)
            line = answer.readline().decode().strip()
        assert line, f"{argv[0]} did not start"
        return line

    def _property(self, name: str) -> Any:
        found = self._screen.screen().root.get_full_property(self._screen.intern_atom(name), 0)
        return found.value if found else None

    def start(
        self, argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, **more: Any
    ) -> subprocess.Popen[bytes]:
        """Start a program on this desktop, in a process group of its own; `env` is added to the desk's."""
        words = [str(word) for word in argv]
        process = self._spawn(words, **{"env": {**self.env, **(env or {})}, **more})
        self._programs.append(process)
        return process

    def run(self, *argv: str | Path) -> str:
        """Run a short command on this desktop; returns what it printed."""
        words = [str(word) for word in argv]
        return subprocess.run(
            words, env=self.env, check=True, capture_output=True, timeout=20
        ).stdout.decode()

    def titles(self) -> list[str]:
        """The titles of the windows that can be seen, lowest first."""
        titles = []
        for number in self._clients():
            window = self._screen.create_resource_object("window", number)
            with contextlib.suppress(Exception):  # a window may vanish at any moment
                name = window.get_full_property(self._screen.intern_atom("_NET_WM_NAME"), 0)
                value = name.value if name else window.get_wm_name() or b""
                if window.get_attributes().map_state == 2:  # viewable: so is its frame
                    titles.append(value.decode() if isinstance(value, bytes) else value)
        return titles

    def wait(self, true: Callable[[], T], limit: float = 15) -> T:
        """Ask until the answer is true; returns it."""
        end_of_patience = time.monotonic() + limit
        while not (answer := true()):
            assert time.monotonic() < end_of_patience, "waited in vain"
            time.sleep(0.02)
        return answer

    def screenshot(self, box: tuple[int, int, int, int] | None = None) -> Image.Image:
        """The screen now, or its part (left, top, right, bottom)."""
        return ImageGrab.grab(bbox=box, xdisplay=self.display)

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """End one program started here, and all that it started."""
        end(process)
        self._programs.remove(process)

    def clear(self) -> None:
        """End every program started here, or by what was started here; the desktop itself stays."""
        for process in reversed(self._programs):
            end(process)
        self._programs = []
        for number in self._clients():
            self._screen.create_resource_object("window", number).kill_client()
        self.wait(lambda: not self._clients())

    def _clients(self) -> list[int]:
        """The windows the window manager knows, lowest first."""
        return list(self._property("_NET_CLIENT_LIST_STACKING") or ()) if self._screen else []

    @property
    def server(self) -> subprocess.Popen[bytes]:
        """The X server."""
        return self._servers[0]

    def close(self) -> None:
        """End everything, also when the X server has ended before."""
        if self._screen and self.server.poll() is None:
            self.clear()
            self._screen.close()
        for process in reversed(self._programs):
            end(process)
        for process in reversed(self._servers):
            end(process)
        self._servers = []

    def __enter__(self) -> Desk:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture(scope="session")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One desktop for the whole run. This process moves onto it: pyautogui knows one display a process."""
    before = dict(os.environ)
    with Desk(tmp_path_factory.mktemp("desk")) as made:
        os.environ.update(made.env)
        for name in PRIVATE:
            os.environ.pop(name, None)
        try:
            yield made
        finally:
            os.environ.clear()
            os.environ.update(before)


@pytest.fixture
def desk(screen: Desk) -> Iterator[Desk]:
    """The desktop, with nothing on it; what a test starts is ended after it."""
    yield screen
    screen.clear()
