"""Pages, on a real Chromium: what it lists is on the page, and what it does is what the page then holds."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desk import Desk

from agent_solo import Action, Element, Numbers, Pages, Permit, Receipt, Snapshot, SystemClock, TellModel

PAGE = Path(__file__).parent / "fixtures" / "pages.html"


class Work:
    """The pages of one browser."""

    def __init__(self, desk: Desk, port: str, pid: int) -> None:
        self.desk, self.pid, self.numbers = desk, pid, Numbers()
        self.pages = Pages(SystemClock(), port)

    def see(self) -> Snapshot:
        sight = self.pages.look(acted=False)
        elements = self.numbers.number(sight.elements)
        return Snapshot(id="s1", time=0, elements=elements, notes=sight.notes, complete=sight.complete)

    def find(self, name: str) -> Element | None:
        return next((element for element in self.see().elements if element.name == name), None)

    def act(self, verb: str, name: str, parameter: str = "", *, seen: Snapshot | None = None) -> Receipt:
        seen = seen or self.see()
        ref = next(element.ref for element in seen.elements if element.name == name)
        return self.pages.act(Permit(action=Action(verb=verb, ref=ref, parameter=parameter)), seen)

    def titled(self, title: str) -> None:
        """The page has this title by now."""
        self.desk.wait(lambda: self.see().elements[0].name == title, 5)


@pytest.fixture
def work(desk: Desk, tmp_path: Path) -> Iterator[Work]:
    profile = tmp_path / "profile"
    # --no-sandbox: containers run this as root; the page is ours
    words = ["--no-sandbox", "--no-first-run", "--remote-debugging-port=0", f"--user-data-dir={profile}"]
    program = desk.start(["chromium", *words, f"--app=file://{PAGE}"])
    ports = profile / "DevToolsActivePort"
    desk.wait(lambda: ports.exists() and ports.read_text())
    made = Work(desk, ports.read_text().split("\n")[0], program.pid)
    desk.wait(lambda: made.find("Save"))
    yield made
    made.pages.close()


def refused(call: Callable[[], object]) -> TellModel:
    with pytest.raises(TellModel) as told:
        call()
    return told.value


def test_a_form_is_filled_and_every_field_read_back(work: Work) -> None:
    assert "hunter2" not in str(work.see().elements)
    first = work.find("Name")
    for verb, name, text in (
        ("input", "Name", 'Zoë "订单" 🙂\\'),
        ("set_value", "PIN", "0000"),
        ("check", "Express", ""),
        ("select", "Colour", "blue"),
        ("set_value", "Day", "2030-01-02"),
        ("set_value", "Weight", "70"),
        ("input", "Notes", "two\nlines"),
        ("set_value", "Rich", "poor"),
    ):
        assert work.act(verb, name, text).delivery == "delivered_verified", name
    held = {
        e.name: e.value or " ".join(e.states) for e in work.see().elements if e.role not in ("page", "button")
    }
    assert held == {
        "Name": 'Zoë "订单" 🙂\\',
        "PIN": "",
        "Express": "checked",
        "Colour": "blue",
        "Day": "2030-01-02",
        "Weight": "70",
        "Notes": "two\nlines",
        "Rich": "poor",
        "A link": "",
        "Cookies": "",
    }
    assert work.act("clear", "Notes").delivery == "delivered_verified"
    assert work.find("Notes").value == ""
    work.act("click", "Save")
    work.titled('saved Zoë "订单" 🙂\\')
    assert work.find("Name").ref == first.ref


def test_what_cannot_be_done_is_refused_and_nothing_is_sent(work: Work) -> None:
    told = refused(lambda: work.act("click", "Under"))
    assert (told.code, "Cookies" in told.sentence) == ("ACTION_FAILED", True)
    assert refused(lambda: work.act("select", "Colour", "pink")).code == "ACTION_NOT_SUPPORTED"
    assert refused(lambda: work.act("set_value", "Save", "x")).code == "ACTION_NOT_SUPPORTED"
    assert work.act("uncheck", "Express").delivery == "not_delivered"
    seen = work.see()
    work.act("click", "Vanish")
    work.desk.wait(lambda: work.find("Vanish") is None)
    told = refused(lambda: work.act("click", "Vanish", seen=seen))
    assert (told.code, told.delivery) == ("STALE_REF", "not_delivered")


def test_what_lies_below_comes_into_sight_by_scrolling(work: Work) -> None:
    assert work.find("Far") is None
    work.act("scroll", "Orders", "down 40")
    work.desk.wait(lambda: work.find("Far"))
    work.act("click", "Far")
    work.titled("far")


def test_a_dialog_of_the_page_is_seen_and_answered(work: Work) -> None:
    receipt = work.act("click", "Ask")
    assert "Really?" in receipt.message
    assert [(e.role, e.name) for e in work.see().elements[1:]] == [
        ("dialog", "Really?"),
        ("button", "OK"),
        ("button", "Cancel"),
    ]
    work.act("click", "OK")
    work.titled("yes")


def test_a_reload_makes_every_ref_stale_or_the_same(work: Work) -> None:
    seen = work.see()
    work.act("click", "Save")
    work.titled("saved")
    page = work.pages._pages[seen.elements[0].native[0]]
    page.call("Page.reload")
    work.titled("Orders")
    old = {e.ref for e in seen.elements if e.role != "page"}
    assert not old & {e.ref for e in work.see().elements if e.role != "page"}


def test_a_page_that_hangs_is_a_note_within_its_limit(work: Work) -> None:
    pids = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if mine(path, work)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        seen = work.see()
        assert [element.role for element in seen.elements] == ["page"]
        assert "does not answer" in seen.notes[0]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    work.desk.wait(lambda: work.find("Save"))


def mine(path: Path, work: Work) -> bool:
    """True for a renderer of this test's own browser."""
    try:
        words = path.read_bytes()
    except OSError:
        return False
    return b"--type=renderer" in words and os.getpgid(int(path.parent.name)) == os.getpgid(work.pid)
