"""Demo: the virtual screen comes and goes whole, and the order desk keeps what was typed and clicked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import agent_solo
from agent_solo import ORDERS, TWICE, as_file, end_program, start_program, virtual_screen

SOLO = Path(agent_solo.__file__)


def there(display: str) -> bool:
    """True if an X server answers on this display."""
    shown = subprocess.run(
        ["xdpyinfo"], env={**os.environ, "DISPLAY": display}, capture_output=True, check=False
    )
    return shown.returncode == 0


def wait(true: Callable[[], Any]) -> None:
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "HOME": str(folder), "DISPLAY": "", "PYTHONUTF8": "1"}


def test_the_virtual_screen_ends_with_its_block(tmp_path: Path) -> None:
    with virtual_screen(tmp_path, environment(tmp_path)) as inside:
        assert there(inside["DISPLAY"])
        root = ["xprop", "-root", "_NET_SUPPORTING_WM_CHECK"]
        assert (
            "window id" in subprocess.run(root, env=inside, capture_output=True, text=True, check=True).stdout
        )
        assert inside["DBUS_SESSION_BUS_ADDRESS"].startswith("unix:")
    assert not there(inside["DISPLAY"])


def test_the_virtual_screen_ends_when_its_program_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, time, agent_solo\n"
        "with agent_solo.virtual_screen(pathlib.Path.home(), os.environ) as inside:\n"
        "    print(inside['DISPLAY'], flush=True)\n"
        "    time.sleep(60)\n"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(
        words, cwd=SOLO.parent, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout
        display = run.stdout.readline().strip()
        assert there(display)
        os.kill(run.pid, signal.SIGKILL)
        wait(lambda: not there(display))


class Hands:
    """Works the order desk with xdotool, by what the desk says of itself."""

    def __init__(self, folder: Path, inside: Mapping[str, str]) -> None:
        self.folder, self.inside = folder, inside

    def desk(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.folder / "desk.json").read_text("utf-8"))
        return told

    def numbers(self) -> list[int]:
        return [order["number"] for order in json.loads((self.folder / "orders.json").read_text("utf-8"))]

    def do(self, *words: str) -> None:
        subprocess.run(["xdotool", *words], env=self.inside, check=True)

    def click(self, part: str, button: str = "1") -> None:
        left, top, width, height = self.desk()["boxes"][part]
        self.do("mousemove", str(left + width // 2), str(top + height // 2), "click", button)


@pytest.fixture
def hands(tmp_path: Path) -> Iterator[Hands]:
    (tmp_path / "orders.json").write_text(as_file(ORDERS), "utf-8")
    code = f"import agent_solo, pathlib; agent_solo.OrderDesk(pathlib.Path({str(tmp_path)!r})).open(print)"
    with virtual_screen(tmp_path, environment(tmp_path)) as inside:
        desk = start_program([sys.executable, "-uc", code], env=inside, cwd=SOLO.parent, pipes=True)
        try:
            assert desk.stdout
            assert desk.stdout.readline() == b"ready\n"
            yield Hands(tmp_path, inside)
        finally:
            desk.terminate()
            end_program(desk)


def test_the_desk_adds_what_was_typed(hands: Hands) -> None:
    hands.click("customer")
    wait(lambda: hands.desk()["focus"] == "customer")
    hands.do("type", "Ada")
    wait(lambda: hands.desk()["typed"]["customer"] == "Ada")
    hands.click("save")
    wait(lambda: hands.desk()["typed"]["customer"] == "")
    saved = json.loads((hands.folder / "orders.json").read_text("utf-8"))
    assert saved == [*ORDERS, {"number": 25, "customer": "Ada", "note": ""}]


def test_the_desk_is_scrolled_to_an_order_that_is_then_removed(hands: Hands) -> None:
    assert "row" not in hands.desk()["boxes"]
    for _ in range(3):
        hands.click("list", button="5")
    wait(lambda: "row" in hands.desk()["boxes"])
    hands.click("row")
    wait(lambda: hands.desk()["selected"] == [str(TWICE)])
    hands.click("delete")
    wait(lambda: TWICE not in hands.desk()["numbers"])
    assert hands.numbers() == [order["number"] for order in ORDERS if order["number"] != TWICE]


def test_delete_without_a_selection_removes_nothing(hands: Hands) -> None:
    hands.click("delete")
    hands.click("customer")
    wait(lambda: hands.desk()["focus"] == "customer")
    assert hands.numbers() == [order["number"] for order in ORDERS]
