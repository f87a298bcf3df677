"""Tree, on real applications: what it names is there; what it presses was pressed, says the application."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import Desk

from agent_solo import (
    Action,
    Element,
    Numbers,
    Permit,
    Pixels,
    Receipt,
    Snapshot,
    SystemClock,
    TellModel,
    Tree,
    this_host,
)

FIXTURES = Path(__file__).parent / "fixtures"


class Work:
    """A tree and real hands on the desk; every window on it is allowed."""

    def __init__(self, desk: Desk) -> None:
        self.desk, self.clock = desk, SystemClock()
        self.host = this_host(desk.home, self.clock, os.environ)
        self.host.open()
        self.pixels = Pixels(self.host, self.clock)
        self.tree = Tree(
            self.host, self.clock, touch=self.pixels.act, allowed=lambda window: True, environ=os.environ
        )
        self.numbers = Numbers()

    def close(self) -> None:
        self.tree.close()
        self.pixels.close()
        self.host.close()

    def see(self) -> Snapshot:
        sight, windows = self.tree.look(acted=False), self.host.windows()
        elements = self.numbers.number(sight.elements)
        return Snapshot(
            id="s1", time=0, windows=windows, elements=elements, notes=sight.notes, complete=sight.complete
        )

    def find(self, name: str, role: str = "") -> Element | None:
        return next((e for e in self.see().elements if e.name == name and role in ("", e.role)), None)

    def wait(self, name: str, role: str = "") -> Element:
        """The element, once it is there."""
        return self.desk.wait(lambda: self.find(name, role))

    def gone(self, name: str) -> None:
        self.desk.wait(lambda: self.find(name) is None)

    def act(
        self, verb: str, name: str, parameter: str = "", *, role: str = "", headed: bool = True
    ) -> Receipt:
        element, seen = self.wait(name, role), self.see()
        window = next(window for window in seen.windows if window.id == element.window)
        action = Action(verb=verb, ref=element.ref, parameter=parameter)
        aim = element.box.centre if element.box else None
        return self.tree.act(Permit(action=action, aim=aim, window=window, headed=headed), seen)

    def press(self, key: str) -> None:
        for down in (True, False):
            self.host.key(key, down=down)


@pytest.fixture
def work(desk: Desk) -> Iterator[Work]:
    made = Work(desk)
    yield made
    made.close()


def held(desk: Desk, path: Path, **wanted: Any) -> None:
    """The application itself says that it holds this."""

    def true() -> bool:
        told = json.loads(path.read_text(encoding="utf-8") or "{}") if path.exists() else {}
        return {name: told.get(name) for name in wanted} == wanted

    try:
        desk.wait(true, 5)
    except AssertionError:
        raise AssertionError(path.read_text(encoding="utf-8")) from None


def refused(call: Callable[[], object]) -> TellModel:
    with pytest.raises(TellModel) as told:
        call()
    return told.value


def test_a_calculator_is_worked_by_refs(desk: Desk, work: Work) -> None:
    desk.start(["galculator"])
    work.wait("7")
    for name in ("7", "*", "8", "="):
        assert work.act("click", name).mechanism == "physical"
    desk.wait(lambda: any(e.role == "text field" and e.value == "56" for e in work.see().elements))


@pytest.mark.parametrize("version", ["3.0", "4.0"])
def test_a_gtk_form(desk: Desk, work: Work, tmp_path: Path, version: str) -> None:
    out = tmp_path / "held.json"
    desk.start(["/usr/bin/python3", FIXTURES / "tree_gtk.py", version, out])
    name = work.wait("Name", "text field")
    assert "hunter2" not in str(work.see().elements)
    assert work.act("input", "Name", "Zoë 订单 🙂", role="text field").delivery == "delivered_verified"
    held(desk, out, name="Zoë 订单 🙂")
    assert work.act("set_value", "Name", "abc", role="text field").delivery == "delivered_verified"
    held(desk, out, name="abc")
    assert work.act("check", "Express").delivery == "delivered_verified"
    held(desk, out, express=True)
    assert work.act("uncheck", "Express").delivery == "delivered_verified"
    held(desk, out, express=False)
    slider = next(e for e in work.see().elements if e.role == "slider")
    assert work.act("set_value", slider.name, "40", role="slider").delivery == "delivered_verified"
    held(desk, out, weight=40.0)
    box = next(e for e in work.see().elements if e.role == "combo box")
    work.act("click", box.name, role="combo box")
    work.act("click", "blue")
    held(desk, out, colour="blue")
    work.act("click", "Save")
    held(desk, out, saved=1)
    assert refused(lambda: work.act("click", "Locked")).code == "ACTION_FAILED"
    assert work.wait("Name", "text field").ref == name.ref


def test_a_qt_form(desk: Desk, work: Work, tmp_path: Path) -> None:
    out = tmp_path / "held.json"
    desk.start([sys.executable, FIXTURES / "tree_qt.py", out])
    work.wait("Name", "text field")
    assert "hunter2" not in str(work.see().elements)
    assert work.act("input", "Name", "Zoë 订单 🙂", role="text field").delivery == "delivered_verified"
    assert work.act("set_value", "Notes", "two\nlines 🙂", role="text field").delivery == "delivered_verified"
    assert work.act("set_value", "Age", "41", role="spin button").delivery == "delivered_verified"
    assert work.act("check", "Express").delivery == "delivered_verified"
    assert work.act("select", "2:1", role="cell").delivery == "delivered_verified"
    assert work.act("set_value", "PIN", "0000", role="password field").delivery == "delivered_unverified"
    work.act("click", "Save")
    held(
        desk,
        out,
        name="Zoë 订单 🙂",
        notes="two\nlines 🙂",
        age=41,
        express=True,
        cell="2:1",
        secret="0000",
        saved=1,
    )
    colour = work.wait("Colour", "combo box")
    assert (colour.value, "collapsed" in colour.states) == ("red", True)
    assert work.see().complete


def test_a_modal_dialog_of_gtk3_is_opened_and_closed_by_refs(desk: Desk, work: Work) -> None:
    desk.start(["mousepad"])
    work.wait("File", "menu")
    work.act("click", "File", role="menu")
    save_as = work.wait("Save As...", "menu item")
    assert next(w for w in work.host.windows() if w.id == save_as.window).popup
    work.act("click", "Save As...", role="menu item")
    work.act("click", "Cancel", role="button")
    work.gone("Cancel")
    field = work.wait("", "text field")
    receipt = work.act("input", "", "  still alive", role="text field")
    assert (receipt.delivery, work.wait("", "text field").value) == ("delivered_verified", "  still alive")
    assert work.wait("", "text field").ref == field.ref


def test_a_database_is_opened_at_its_table(desk: Desk, work: Work, tmp_path: Path) -> None:
    path = tmp_path / "demo.db"
    with sqlite3.connect(path) as base:
        base.execute("create table users(id integer primary key, name text)")
        base.executemany("insert into users(name) values(?)", [(f"user {number}",) for number in range(500)])
    desk.start(["sqlitebrowser", path])
    work.act("click", "Browse Data", role="tab")
    work.wait("user 0", "cell")
    work.wait("user 3", "cell")
    assert len(work.see().elements) < 200


def test_a_hung_application_costs_its_limit_and_hides_no_other(
    desk: Desk, work: Work, tmp_path: Path
) -> None:
    hung = desk.start(["galculator"])
    work.wait("7")
    desk.start(["/usr/bin/python3", FIXTURES / "tree_gtk.py", "3.0", tmp_path / "held.json"])
    work.wait("Express")
    seen = work.see()
    seven = next(e for e in seen.elements if e.name == "7")
    os.kill(hung.pid, signal.SIGSTOP)
    try:
        before = work.clock.now()
        late = work.see()
        assert work.clock.now() - before < Tree.LIMIT + 1
        assert any("Galculator" in note for note in late.notes)
        assert any(e.name == "Express" for e in late.elements)
        permit = Permit(action=Action(verb="click", ref=seven.ref))
        assert refused(lambda: work.tree.act(permit, seen)).code == "APP_UNRESPONSIVE"
    finally:
        os.kill(hung.pid, signal.SIGCONT)
    work.wait("7")


def test_what_another_window_covers_is_said_and_not_clicked(desk: Desk, work: Work, tmp_path: Path) -> None:
    out = tmp_path / "held.json"
    desk.start(["/usr/bin/python3", FIXTURES / "tree_gtk.py", "3.0", out])
    save = work.wait("Save")
    box = next(window.box for window in work.host.windows() if window.id == save.window)
    desk.start(["xterm", "-geometry", f"80x24+{box.x}+{box.y}"])
    desk.wait(lambda: "covered" in work.wait("Save").states)
    assert refused(lambda: work.act("click", "Save")).code == "ACTION_FAILED"
    assert json.loads(out.read_text())["saved"] == 0


def test_a_ref_to_a_closed_window_is_stale(desk: Desk, work: Work) -> None:
    program = desk.start(["galculator"])
    seven, seen = work.wait("7"), work.see()
    desk.end(program)
    permit = Permit(action=Action(verb="click", ref=seven.ref))
    assert refused(lambda: work.tree.act(permit, seen)).code == "STALE_REF"


def untouched(work: Work) -> tuple[object, object]:
    """Where the pointer is, and which window has the keyboard."""
    return work.host.pointer(), next((w.id for w in work.host.windows() if w.focused), None)


@pytest.mark.parametrize("kind", ["3.0", "4.0", "qt"])
def test_without_the_pointer_nothing_but_the_element_is_touched(
    desk: Desk, work: Work, tmp_path: Path, kind: str
) -> None:
    out = tmp_path / "held.json"
    form = [sys.executable, FIXTURES / "tree_qt.py", out]
    desk.start(form if kind == "qt" else ["/usr/bin/python3", FIXTURES / "tree_gtk.py", kind, out])
    work.wait("Name", "text field")
    desk.start(["xterm", "-geometry", "200x60+0+0"])  # lies over all of it, and takes the keyboard
    desk.wait(lambda: any("covered" in e.states for e in work.see().elements))
    before = untouched(work)
    assert (
        work.act("input", "Name", "Zoë 订单", role="text field", headed=False).delivery
        == "delivered_verified"
    )
    if kind == "4.0":  # GTK 4.8 gives a check box no action of its own
        assert refused(lambda: work.act("check", "Express", headed=False)).code == "ACTION_NOT_SUPPORTED"
    else:
        assert work.act("check", "Express", headed=False).delivery == "delivered_verified"
    assert work.act("click", "Save", headed=False).mechanism in ("sent events", "semantic")
    held(desk, out, name="Zoë 订单", express=kind != "4.0", saved=1)
    assert refused(lambda: work.act("scroll", "Name", "down 3", headed=False)).code == "POLICY_DENIED"
    assert untouched(work) == before


def test_a_modal_dialog_opened_without_the_pointer_does_not_hang_gtk3(
    desk: Desk, work: Work, tmp_path: Path
) -> None:
    out = tmp_path / "asked.json"
    desk.start(["/usr/bin/python3", FIXTURES / "ask_gtk3.py", out])
    for times in (1, 2):
        work.act("click", "Ask me", headed=False)
        work.wait("OK", "button")
        held(desk, out, asked=times, answers=times - 1)
        work.act("click", "OK", headed=False)
        work.gone("OK")
        held(desk, out, asked=times, answers=times)
