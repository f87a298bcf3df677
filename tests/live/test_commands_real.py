"""The commands on elements and windows, each a process of its own, on a real application that says what it holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from desk import Desk

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).parent / "fixtures"


class Shell:
    """What another program would do: run a command, read its one JSON object."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, *words: str, status: int = 0) -> Any:
        env = {**os.environ, "AGENT_SOLO_HOME": str(self.home)}
        command = [sys.executable, str(ROOT / "agent_solo.py"), *words]
        done = subprocess.run(
            command,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        answer = json.loads(done.stdout)
        assert done.returncode == status, done.stdout + done.stderr
        return answer["data"] if answer["ok"] else answer["error"]

    def ref(self, name: str, role: str = "") -> str:
        words = ["find", "--app", "tree_gtk", "--name", name, "--first"]
        match = self(*words, *(["--role", role] if role else []))["match"]
        return str(match["ref_id"])


@pytest.fixture
def shell(desk: Desk, tmp_path: Path) -> Shell:
    """A GTK 3 form on the desk, and a shell."""
    desk.start(["/usr/bin/python3", FIXTURES / "tree_gtk.py", "3.0", tmp_path / "held.json"])
    made = Shell(tmp_path / "home")
    desk.wait(lambda: any("tree_gtk" in one["app_name"].lower() for one in made("list-windows")))
    made("wait", "--text", "Name", "--timeout", "10000")
    return made


def held(desk: Desk, tmp_path: Path, **wanted: Any) -> None:
    """The application itself says that it holds this."""

    def true() -> bool:
        path = tmp_path / "held.json"
        told = json.loads(path.read_text(encoding="utf-8") or "{}") if path.exists() else {}
        return {name: told.get(name) for name in wanted} == wanted

    desk.wait(true, 5)


def test_a_form_is_filled_one_command_at_a_time(desk: Desk, shell: Shell, tmp_path: Path) -> None:
    field = shell.ref("Name", "text field")
    done = shell("set-value", field, "Zoë 订单 🙂")
    assert done["disposition"] == {"delivery": "delivered_verified", "retry": "unsafe"}
    held(desk, tmp_path, name="Zoë 订单 🙂")
    assert shell("get", field, "--property", "value")["value"] == "Zoë 订单 🙂"
    assert shell("clear", field)["disposition"]["delivery"] == "delivered_verified"
    assert shell("get", field, "--property", "value")["value"] == ""
    assert shell("hover", field, status=1)["code"] == "POLICY_DENIED"
    assert shell("type", field, "abc")["disposition"]["delivery"] == "delivered_verified"
    held(desk, tmp_path, name="abc")


def test_a_box_is_ticked_and_asked_about(desk: Desk, shell: Shell) -> None:
    snapshot = shell("snapshot", "--app", "tree_gtk", "-i", "--include-bounds")
    assert snapshot["complete"]
    box = json.dumps(snapshot["tree"])
    assert "hunter2" not in box
    ticked = next(one for one in shell("find", "--app", "tree_gtk", "--role", "checkbox")["matches"])
    ref = ticked["ref_id"]
    before = shell("is", ref, "--property", "checked")["result"]
    assert shell("toggle", ref)["disposition"]["delivery"] == "delivered_verified"
    assert shell("is", ref, "--property", "checked")["result"] is not before
    verb = "uncheck" if before else "check"
    assert shell(verb, ref)["disposition"]["delivery"] == "not_delivered"  # it is so already


def test_two_terminals_at_once_and_a_closed_application(desk: Desk, shell: Shell) -> None:
    with ThreadPoolExecutor() as pool:
        taken = list(pool.map(lambda _: shell("snapshot", "--app", "tree_gtk"), range(4)))
    assert len({one["snapshot_id"] for one in taken}) == 4
    ref = shell.ref("Name", "text field")
    desk.clear()
    assert shell("set-value", ref, "x", status=1)["code"] == "STALE_REF"


def test_wrong_words_are_one_object_and_status_2(shell: Shell) -> None:
    for words in (
        ["get"],
        ["click", "e5"],
        ["snapshot", "--ap", "x"],
        ["scroll", "@sabc:e1", "--amount", "many"],
    ):
        error = shell(*words, status=2 if words != ["click", "e5"] else 1)
        assert (error["code"], error["disposition"]["retry"]) == ("INVALID_ARGS", "safe")


def test_windows_are_moved_put_away_brought_back_and_closed(desk: Desk, shell: Shell) -> None:
    def seen() -> Any:
        return next(one for one in shell("list-windows", "--app", "tree_gtk"))

    assert shell("move-window", "--app", "tree_gtk", "--x", "60", "--y", "70")["moved"]
    assert shell("resize-window", "--app", "tree_gtk", "--width", "640", "--height", "480")["resized"]
    assert seen()["bounds"] == {"x": 60, "y": 70, "width": 640, "height": 480}
    geometry = desk.run("xdotool", "search", "--onlyvisible", "--name", "GTK form", "getwindowgeometry")
    assert "640" in geometry or "638" in geometry
    assert shell("maximize", "--app", "tree_gtk")["maximized"]
    assert seen()["bounds"]["width"] > 640
    assert shell("restore", "--app", "tree_gtk")["restored"]
    assert shell("minimize", "--app", "tree_gtk")["minimized"]
    assert seen()["hidden"] is True
    assert shell("restore", "--app", "tree_gtk")["restored"]
    closed = shell("close-app", "tree_gtk")
    assert (closed["closed"], closed["method"], closed["disposition"]["delivery"]) == (
        True,
        "graceful",
        "delivered_verified",
    )
    assert shell("snapshot", "--app", "tree_gtk", status=1)["code"] == "APP_NOT_FOUND"
