"""The hands on a real X server: what programs saw, not what was sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import Desk

from agent_solo import Host, Interrupted, ScreenPoint, SystemClock, TellModel, Window, this_host

ROOT = Path(__file__).parents[2]
FIXTURES = Path(__file__).with_name("fixtures")
DEBIAN = "/usr/bin/python3"  # has gi
FORMS = {
    "tk": sys.executable,
    "gtk3": DEBIAN,
    "gtk4": DEBIAN,
    "qt": sys.executable,
    "web": sys.executable,
}
NASTY = {
    "punctuation": "a<b>c|~`\"'{}[]\\ €£§ ½",
    "accents": "cafe\u0301 Zoë żółw Ünï",
    "hebrew": "שלום עולם",
    "chinese": "订单 №7 中文",
    "emoji": "👨‍👩‍👧 👋🏽 🇩🇪 🙂",
    "spaces": "  x  y ",
    "path": "C:\\new\\table",
}


@pytest.fixture
def host(desk: Desk, tmp_path: Path) -> Iterator[Host]:
    """Hands on the desk, open."""
    desk.run("xdotool", "mousemove", "640", "400")
    hands = this_host(tmp_path / "home", SystemClock(), os.environ)
    hands.open()
    yield hands
    hands.close()


def strike(host: Host, *names: str) -> None:
    """Press keys in this order, let go in the other."""
    for name in names:
        host.key(name, down=True)
    for name in reversed(names):
        host.key(name, down=False)


def click(host: Host, x: int, y: int) -> None:
    host.move(ScreenPoint(x=x, y=y))
    host.button("left", down=True)
    host.button("left", down=False)


def window(desk: Desk, host: Host, title: str) -> Window:
    """The window of that title, as soon as there is one."""
    return desk.wait(lambda: next((w for w in host.windows() if title in w.title), None))


class Form:
    """A form program, ready to be typed into."""

    def __init__(self, desk: Desk, folder: Path, kind: str) -> None:
        self._desk, self._file = desk, folder / f"{kind}.json"
        desk.start([FORMS[kind], FIXTURES / f"form_{kind}.py", self._file])
        desk.wait(self._file.exists)

    def holds(self, **fields: Any) -> bool:
        """True as soon as it holds this; shows the difference if it never does."""

        def held() -> dict[str, Any]:
            state = json.loads(self._file.read_text(encoding="utf-8"))
            return {name: state[name] for name in fields}

        try:
            return bool(self._desk.wait(lambda: held() == fields, 5))
        except AssertionError:
            assert held() == fields
            raise


@pytest.mark.parametrize("kind", FORMS)
def test_a_field_holds_exactly_what_was_typed(desk: Desk, host: Host, tmp_path: Path, kind: str) -> None:
    form = Form(desk, tmp_path, kind)
    host.type("".join(NASTY.values()))
    strike(host, "tab")
    page = "\n".join(NASTY.values()) + "\n    indented"
    page += "" if kind == "web" else "\n\ttab\tstop"  # a browser's tab leaves the field
    host.type(page)
    assert form.holds(name="".join(NASTY.values()), note=page)


@pytest.mark.parametrize("layout", ["us", "de", "fr", "us -variant intl"])
@pytest.mark.parametrize("kind", ["tk", "gtk3"])
def test_text_does_not_depend_on_the_layout_and_leaves_it_as_it_was(
    desk: Desk, host: Host, tmp_path: Path, kind: str, layout: str
) -> None:
    form = Form(desk, tmp_path, kind)
    desk.run("setxkbmap", *layout.split())
    try:
        before = desk.run("xkbcomp", desk.display, "-"), desk.run("xmodmap", "-pke")
        text = "".join(NASTY.values()) + "yz_/@q?;-"
        host.type(text)
        assert form.holds(name=text)
        assert (desk.run("xkbcomp", desk.display, "-"), desk.run("xmodmap", "-pke")) == before
    finally:
        desk.run("setxkbmap", "us")


def test_text_is_exact_in_the_second_layout_and_with_caps_lock_on(
    desk: Desk, host: Host, tmp_path: Path
) -> None:
    form = Form(desk, tmp_path, "gtk3")
    desk.run("setxkbmap", "us,ru", "-option", "grp:sclk_toggle")
    desk.run("xdotool", "key", "Scroll_Lock")
    desk.run("xdotool", "key", "Caps_Lock")
    try:
        assert desk.run("xset", "q").count("Caps Lock:   on") == 1
        host.type("Straße, Москва AbC <é>")
        assert form.holds(name="Straße, Москва AbC <é>")
        strike(host, "ctrl", "a")
        strike(host, "delete")
        assert form.holds(name="")
        assert desk.run("xset", "q").count("Caps Lock:   on") == 1
    finally:
        desk.run("xdotool", "key", "Caps_Lock")
        desk.run("setxkbmap", "us", "-option", "")


def test_long_text_needs_many_keyboards_and_arrives_whole(desk: Desk, host: Host, tmp_path: Path) -> None:
    form = Form(desk, tmp_path, "qt")
    strike(host, "tab")
    page = "\n".join("".join(chr(0x4E00 + 31 * line + char) for char in range(31)) for line in range(5))
    host.type(page)
    assert form.holds(note=page)


def test_line_ends_are_one_return_and_control_characters_are_refused(
    desk: Desk, host: Host, tmp_path: Path
) -> None:
    form = Form(desk, tmp_path, "tk")
    strike(host, "tab")
    host.type("one\r\ntwo\rthree\nfour")
    with pytest.raises(TellModel, match=r"\\x07") as refused:
        host.type("five\x07")
    assert refused.value.delivery == "not_delivered"
    assert form.holds(note="one\ntwo\nthree\nfour")


def test_nothing_is_typed_while_a_person_holds_a_modifier(desk: Desk, host: Host, tmp_path: Path) -> None:
    form = Form(desk, tmp_path, "tk")
    desk.run("xdotool", "keydown", "shift")
    try:
        with pytest.raises(TellModel, match="nothing was typed"):
            host.type("abc")
    finally:
        desk.run("xdotool", "keyup", "shift")
    host.type("abc")
    assert form.holds(name="abc")


class Events:
    """The window that writes down every event."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self._file = folder / "events"
        desk.start([sys.executable, FIXTURES / "events_tk.py", self._file])
        desk.wait(lambda: self._file.exists() and self.seen("ready") and "Events" in desk.titles())

    def seen(self, *kinds: str) -> list[list[Any]]:
        """Every event of these kinds so far: [kind, button or key, x, y, modifiers]."""
        lines = self._file.read_text(encoding="utf-8").splitlines()
        return [event for event in map(json.loads, lines) if event[0] in kinds]


def test_modifiers_are_held_with_clicks_and_scrolls(desk: Desk, host: Host, tmp_path: Path) -> None:
    events = Events(desk, tmp_path)
    host.key("ctrl", down=True)
    host.key("shift", down=True)
    click(host, 333, 222)
    host.key("shift", down=False)
    host.scroll(right=0, down=1)
    host.key("ctrl", down=False)
    desk.wait(lambda: len(events.seen("press")) == 2)
    (_, left, *place, both), (_, wheel, _, _, one) = events.seen("press")
    assert (left, place, both & 5) == (1, [333, 222], 5)
    assert (wheel, one & 5) == (5, 4)


def test_a_drag_is_press_and_release_at_the_exact_pixels(desk: Desk, host: Host, tmp_path: Path) -> None:
    events = Events(desk, tmp_path)
    host.move(ScreenPoint(x=250, y=200))
    host.button("left", down=True)
    for x in range(260, 401, 20):
        host.move(ScreenPoint(x=x, y=300))
    host.move(ScreenPoint(x=411, y=303))
    host.button("left", down=False)
    desk.wait(lambda: events.seen("release"))
    assert events.seen("press")[0][:4] == ["press", 1, 250, 200]
    assert events.seen("release")[0][:4] == ["release", 1, 411, 303]
    assert events.seen("motion")


def test_the_wheel_turns_by_notches_and_down_and_right_are_positive(
    desk: Desk, host: Host, tmp_path: Path
) -> None:
    events = Events(desk, tmp_path)
    host.move(ScreenPoint(x=300, y=250))
    host.scroll(right=0, down=3)
    host.scroll(right=0, down=-2)
    host.scroll(right=1, down=0)
    host.scroll(right=-1, down=0)
    desk.wait(lambda: len(events.seen("press")) == 7)
    # Tk tells sideways wheels as the upright ones with Shift
    turns = [(event[1], event[4] & 1) for event in events.seen("press")]
    assert turns == [(5, 0), (5, 0), (5, 0), (4, 0), (4, 0), (5, 1), (4, 1)]


def test_every_button_has_its_number(desk: Desk, host: Host, tmp_path: Path) -> None:
    events = Events(desk, tmp_path)
    host.move(ScreenPoint(x=300, y=250))
    for name in ("left", "middle", "right", "back", "forward"):
        host.button(name, down=True)
        host.button(name, down=False)
    desk.wait(lambda: len(events.seen("release")) == 5)
    assert [event[1] for event in events.seen("release")] == [1, 2, 3, 8, 9]


def test_keys_come_by_name_and_by_character(desk: Desk, host: Host, tmp_path: Path) -> None:
    events = Events(desk, tmp_path)
    for name in ("enter", "esc", "pagedown", "left", "f5", "a", "<", "ß", "space", "A"):
        strike(host, name)
    strike(host, "command", "+")
    desk.wait(lambda: len(events.seen("keyup")) >= 15)
    pressed = [event[1] for event in events.seen("key") if not event[1].startswith("Shift")]
    assert pressed == [
        *("Return", "Escape", "Next", "Left", "F5", "a", "less", "ssharp", "space", "A"),
        *("Control_L", "plus"),
    ]
    assert events.seen("key")[-1][4] & 5 == 5


@pytest.mark.parametrize("name", ["nosuch", "volumeup", "f25", "separator"])
def test_a_key_that_is_not_there_is_an_error_and_nothing_is_held(
    host: Host, tmp_path: Path, name: str
) -> None:
    with pytest.raises(TellModel, match=name):
        host.key(name, down=True)
    assert not list((tmp_path / "home").glob("*"))


def test_a_button_that_is_not_there_is_an_error(host: Host) -> None:
    with pytest.raises(TellModel, match="thumb"):
        host.button("thumb", down=True)


def test_windows_are_listed_topmost_first_with_menus(desk: Desk, host: Host) -> None:
    desk.start(["xterm", "-T", "Under", "-geometry", "40x10+10+10"])
    window(desk, host, "Under")
    desk.start(["mousepad"])
    pad = window(desk, host, "Mousepad")
    desk.wait(lambda: host.windows()[0].focused)
    assert [w.title.split(" - ")[-1] for w in host.windows()] == ["Mousepad", "Under"]
    strike(host, "alt", "f")
    menu = desk.wait(lambda: next((w for w in host.windows() if w.popup), None))
    assert host.windows()[0] == menu
    assert (menu.pid, menu.app.lower()) == (pad.pid, "mousepad")
    assert host.window_at(ScreenPoint(x=menu.box.x + 20, y=menu.box.y + 20)) == menu
    strike(host, "esc")
    desk.wait(lambda: not any(w.popup for w in host.windows()))


def test_a_menu_that_does_not_say_whose_it_is_is_known_by_its_program(
    desk: Desk, host: Host, tmp_path: Path
) -> None:
    code = (
        "import tkinter; root = tkinter.Tk(); root.title('Owner'); menu = tkinter.Menu(root, tearoff=0);"
        "menu.add_command(label='Open'); root.after(300, lambda: menu.post(500, 300)); root.mainloop()"
    )
    program = desk.start([sys.executable, "-c", code])
    menu = desk.wait(lambda: next((w for w in host.windows() if w.popup), None))
    assert (menu.pid, menu.title) == (program.pid, "Owner")


def test_a_box_is_what_a_click_would_hit(desk: Desk, host: Host) -> None:
    desk.start(["xterm", "-T", "Box", "-geometry", "40x10+100+100"])
    box = desk.wait(lambda: window(desk, host, "Box").box)
    inside = [(box.x, box.y), (box.x + box.width - 1, box.y + box.height - 1)]
    outside = [(box.x - 1, box.y), (box.x + box.width, box.y + box.height - 1)]
    assert [getattr(host.window_at(ScreenPoint(x=x, y=y)), "title", None) for x, y in inside + outside] == [
        *("Box", "Box"),
        *(None, None),
    ]


def test_window_at_sees_what_opened_on_top_a_moment_ago(desk: Desk, host: Host, tmp_path: Path) -> None:
    Form(desk, tmp_path, "tk")
    spot = window(desk, host, "Form Tk").box.centre
    assert host.window_at(spot).title == "Form Tk"
    desk.start(["xterm", "-T", "Over", "-geometry", f"60x20+{spot.x - 100}+{spot.y - 100}"])
    window(desk, host, "Over")
    assert host.window_at(spot).title == "Over"


def test_minimised_windows_are_left_out_and_focus_brings_them_back(desk: Desk, host: Host) -> None:
    desk.start(["xterm", "-T", "Shy"])
    desk.start(["xterm", "-T", "Other"])
    shy, other = window(desk, host, "Shy"), window(desk, host, "Other")
    desk.run("xdotool", "windowminimize", str(int(shy.id, 16)))
    desk.wait(lambda: "Shy" not in {w.title for w in host.windows()})
    host.focus(shy)
    assert window(desk, host, "Shy").focused
    host.focus(other)
    assert window(desk, host, "Other").focused


def test_a_window_that_is_gone_cannot_be_focused(desk: Desk, host: Host) -> None:
    program = desk.start(["xterm", "-T", "Brief"])
    brief = window(desk, host, "Brief")
    desk.end(program)
    desk.wait(lambda: not host.windows())
    with pytest.raises(TellModel) as gone:
        host.focus(brief)
    assert gone.value.code == "WINDOW_NOT_FOUND"


def test_a_window_under_its_dialog_is_said_to_be_and_the_dialog_gets_the_keyboard(
    desk: Desk, host: Host
) -> None:
    desk.start([DEBIAN, FIXTURES / "dialog_gtk3.py"])
    desk.start(["xterm", "-T", "Elsewhere"])
    below, _ = window(desk, host, "Below"), window(desk, host, "Question")
    host.focus(window(desk, host, "Elsewhere"))
    with pytest.raises(TellModel, match="waits for its dialog 'Question'"):
        host.focus(below)
    assert window(desk, host, "Question").focused


def test_what_was_launched_is_marked_and_nothing_else(desk: Desk, host: Host) -> None:
    desk.start(["xterm", "-T", "Theirs"])
    window(desk, host, "Theirs")
    assert host.launch("xterm -T 'My own'") == "xterm was started; its window is 'My own'."
    assert {w.title: w.launched for w in host.windows()} == {"My own": True, "Theirs": False}
    assert not any(w.own for w in host.windows())


def test_a_launch_that_a_running_program_answers_marks_only_its_new_window(desk: Desk, host: Host) -> None:
    desk.start(["mousepad"])
    theirs = window(desk, host, "Mousepad")
    assert "its window is 'Untitled 2 - Mousepad'" in host.launch("mousepad --opening-mode=window")
    marks = {w.title: (w.launched, w.pid) for w in host.windows()}
    assert marks == {
        "Untitled 2 - Mousepad": (True, theirs.pid),
        "Untitled 1 - Mousepad": (False, theirs.pid),
    }


def test_an_application_is_launched_by_its_name_in_the_menu(desk: Desk, host: Host) -> None:
    entry = desk.home / ".local/share/applications/term.desktop"
    entry.parent.mkdir(parents=True)
    entry.write_text("[Desktop Entry]\nType=Application\nName=Zebra Terminal\nExec=xterm -T Zebra %F\n")
    assert host.launch("zebra terminal") == "xterm was started; its window is 'Zebra'."
    with pytest.raises(TellModel, match="no application 'Zebra Terminl'") as miss:
        host.launch("'Zebra Terminl'")
    assert (miss.value.code, miss.value.hint) == ("APP_NOT_FOUND", "There is: zebra terminal.")


def test_a_program_that_fails_at_once_is_told_as_such(host: Host) -> None:
    with pytest.raises(TellModel, match="false ended at once, with status 1"):
        host.launch("false")
    with pytest.raises(TellModel, match="cannot read"):
        host.launch("xterm 'unclosed")


def test_a_launched_program_knows_no_key_of_the_agent(desk: Desk, tmp_path: Path) -> None:
    script = tmp_path / "tell"
    script.write_text(f"#!/bin/sh\nenv > {tmp_path}/env\nexit 3\n")
    script.chmod(0o700)
    os.environ["OPENAI_API_KEY"] = "sk-secret"
    try:
        hands = this_host(tmp_path / "home", SystemClock(), os.environ)
        hands.open()
        with pytest.raises(TellModel, match="status 3"):
            hands.launch(str(script))
        hands.close()
    finally:
        del os.environ["OPENAI_API_KEY"]
    assert "sk-secret" not in (tmp_path / "env").read_text()
    assert f"DISPLAY={desk.display}" in (tmp_path / "env").read_text()


SCRIPT = f"""
import json, os, sys
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
from agent_solo import *
host = this_host(Path(sys.argv[1]), SystemClock(), os.environ)
"""


def other(code: str) -> Callable[..., list[str]]:
    """The command of another process that has hands of its own, and runs this code."""
    return lambda *words: [sys.executable, "-c", SCRIPT + code, *map(str, words)]


def test_the_terminal_that_shows_the_agent_is_its_own(desk: Desk, host: Host, tmp_path: Path) -> None:
    code = "host.open(); own = {w.title: w.own for w in host.windows()}\n"
    code += "Path(sys.argv[2]).write_text(json.dumps(own))"
    desk.start(["xterm", "-T", "Someone"])
    window(desk, host, "Someone")
    desk.start(["xterm", "-T", "Mine", "-e", *other(code)(tmp_path / "other", tmp_path / "told")])
    desk.wait((tmp_path / "told").exists)
    told = desk.wait(lambda: (tmp_path / "told").read_text())
    assert json.loads(told) == {"Mine": True, "Someone": False}


def test_a_killed_run_is_mended_by_the_next(desk: Desk, tmp_path: Path) -> None:
    def held() -> str:
        return "".join(path.read_text() for path in home.glob("held*.json"))

    home, before = tmp_path / "home", desk.run("xmodmap", "-pke")
    endless = "host.open(); host.key('ctrl', down=True); host.button('right', down=True)"
    endless += "; host.type(''.join(map(chr, range(0x4E00, 0x5E00))))"
    program = desk.start(other(endless)(home))
    desk.wait(lambda: "lent" in held() and desk.run("xmodmap", "-pke") != before)
    program.kill()
    program.wait()
    assert all(thing in held() for thing in ("key ctrl", "button right", "lent"))
    hands = this_host(home, SystemClock(), os.environ)
    hands.open()
    assert not held()
    assert desk.run("xmodmap", "-pke") == before
    desk.start(["xterm", "-T", "Clean"])
    spot = window(desk, hands, "Clean").box.centre
    hands.move(spot)
    hands.type(f"touch {tmp_path}/clean\n")  # with Ctrl still down it would be anything but this
    desk.wait((tmp_path / "clean").exists)
    hands.close()


def test_a_living_run_keeps_what_it_holds(desk: Desk, host: Host, tmp_path: Path) -> None:
    host.key("shift", down=True)
    second = other("host.open(); host.close()")
    subprocess.run(second(tmp_path / "home"), env=desk.env, check=True, timeout=20)
    assert "key shift" in "".join(path.read_text() for path in (tmp_path / "home").glob("held*.json"))


def test_opening_says_nothing_on_stdout(desk: Desk, tmp_path: Path) -> None:
    ran = subprocess.run(
        other("host.open(); host.type('é'); host.close()")(tmp_path),
        env=desk.env,
        check=True,
        capture_output=True,
        timeout=20,
    )
    assert (ran.stdout, ran.stderr) == (b"", b"")


def test_a_person_in_the_corner_stops_it_and_it_never_goes_there_itself(desk: Desk, host: Host) -> None:
    for x, y, near in ((0, 0, (1, 1)), (1279, 0, (1278, 1)), (1279, 799, (1278, 798))):
        click(host, x, y)
        assert (host.pointer().x, host.pointer().y) == near
    host.button("left", down=True)
    desk.run("xdotool", "mousemove", "0", "799")
    with pytest.raises(Interrupted, match="corner"):
        host.move(ScreenPoint(x=100, y=100))
    host.release()  # nothing may stay held, in the corner least of all
    assert not int(desk.run("xdotool", "getmouselocation").count("button"))


def test_a_pointer_that_starts_in_a_corner_is_no_wish_to_stop(desk: Desk, tmp_path: Path) -> None:
    desk.run("xdotool", "mousemove", "0", "0")
    hands = this_host(tmp_path, SystemClock(), os.environ)
    hands.open()
    strike(hands, "shift")
    hands.close()


def test_monitors_are_told_apart_and_their_corners_missed(desk: Desk, host: Host, tmp_path: Path) -> None:
    desk.run("xrandr", "--setmonitor", "west", "640/100x800/200+0+0", "screen")
    desk.run("xrandr", "--setmonitor", "east", "640/100x800/200+640+0", "none")
    try:
        hands = this_host(tmp_path / "two", SystemClock(), os.environ)
        hands.open()
        assert [(box.x, box.width) for box in hands.monitors()] == [(0, 640), (640, 640)]
        hands.move(ScreenPoint(x=640, y=0))
        assert (hands.pointer().x, hands.pointer().y) == (641, 1)
        hands.close()
    finally:
        desk.run("xrandr", "--delmonitor", "west")
        desk.run("xrandr", "--delmonitor", "east")


def test_without_a_window_manager_windows_are_seen_focused_and_typed_into(tmp_path: Path) -> None:
    code = """
host.open()
said = host.launch(f"{sys.executable} {sys.argv[2]} {sys.argv[3]}")
window = host.windows()[0]
host.focus(window)
while not Path(sys.argv[3]).exists(): pass
host.type("Zoë 订单")
print(json.dumps([said, window.title, host.windows()[0].focused, host.window_at(window.box.centre).title]))
host.close()
"""
    state = tmp_path / "state.json"
    with Desk(tmp_path / "bare", manager="", bus=False) as bare:
        told = json.loads(bare.run(*other(code)(tmp_path / "home", FIXTURES / "form_tk.py", state)))
        assert told[1:] == ["Form Tk", True, "Form Tk"]
        bare.wait(lambda: json.loads(state.read_text(encoding="utf-8"))["name"] == "Zoë 订单")
        bare.run("xdotool", "search", "--name", "Form Tk", "windowkill")


def test_a_second_program_is_told_that_the_display_is_taken(host: Host, desk: Desk, tmp_path: Path) -> None:
    second = """if 1:
        import os, pathlib, agent_solo as solo
        try:
            host = solo.this_host(pathlib.Path(os.environ["HOME"]), solo.SystemClock(), os.environ)
            host.open()
            host.claim()
        except solo.MissingPart as told:
            print(told.sentence)"""

    def told() -> str:
        return subprocess.run(
            [sys.executable, "-c", second], env=desk.env, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    host.claim()
    assert f"process {os.getpid()}" in told()
    host.close()
    assert told() == ""


def test_a_screen_that_ends_is_one_sentence(tmp_path: Path) -> None:
    code = """
host.open()
with CornerWatch(host, SystemClock()):
    os.kill(int(sys.argv[2]), 9)
    for ask in (host.pointer, host.windows, host.monitors, lambda: host.type("abc")):
        try:
            ask()
        except MissingPart as gone:
            print(gone.sentence)
host.close()
"""
    with Desk(tmp_path / "brief", manager="", bus=False) as brief:
        said = brief.run(*other(code)(tmp_path / "home", brief.server.pid)).splitlines()
    assert said == ["The display has gone away."] * 4
