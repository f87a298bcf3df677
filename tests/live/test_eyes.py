"""Eyes and hands on a real screen, with a real window that writes down what reaches it."""

import json
import os
import sys
import tracemalloc
from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image

import agent_solo as solo

TARGET = """
import json, sys, tkinter
root = tkinter.Tk()
root.title(sys.argv[1])
root.geometry(sys.argv[2])
heard = open(sys.argv[3], "a", buffering=1)

def tell(what, event=None):
    state = event.state & 5 if event else 0  # shift 1, control 4
    heard.write(json.dumps({"what": what, "state": state}) + "\\n")

button = tkinter.Button(root, text="Press", command=lambda: tell("pressed"))
button.place(x=200, y=60, width=24, height=24)
entry = tkinter.Entry(root)
entry.place(x=20, y=20, width=160, height=26)
entry.bind("<KeyRelease>", lambda event: tell("holds " + entry.get()))
field = tkinter.Frame(root, bg="#203040")
field.place(x=20, y=120, width=360, height=160)
for name in "1 Double-Button-1 Triple-Button-1 2 3 4 5".split():
    name = f"<{'' if '-' in name else 'Button-'}{name}>"
    field.bind(name, lambda event, name=name: tell(name, event))
field.bind("<B1-Motion>", lambda event: tell("motion"))
field.bind("<ButtonRelease-1>", lambda event: tell(f"released {event.x} {event.y}"))
field.bind("<Button-3>", lambda event: root.after(250, field.configure, {"bg": "#e0e0e0"}), add=True)
root.bind("<Configure>", lambda event: tell(f"at {root.winfo_rootx()} {root.winfo_rooty()}"))
root.wait_visibility()
root.update()
tell(f"at {root.winfo_rootx()} {root.winfo_rooty()}")
root.mainloop()
"""


class Target:
    """A Tk window on the desktop; what it heard is a list."""

    def __init__(self, desk, folder, title="Target", geometry="400x300+300+200"):
        self.file = folder / f"{title}.jsonl"
        self.file.touch()
        script = folder / "target.py"
        script.write_text(TARGET)
        desk.start([sys.executable, script, title, geometry, self.file])
        self.desk = desk
        desk.wait(lambda: title in desk.titles() and self.lines())

    def lines(self):
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    def heard(self):
        return [line for line in self.lines() if not line["what"].startswith("at ")]

    def inside(self, x, y):
        """A point of the window's inside, on the screen."""
        places = [line["what"].split() for line in self.lines() if line["what"].startswith("at ")]
        return solo.ScreenPoint(x=int(places[-1][1]) + x, y=int(places[-1][2]) + y)

    def words(self):
        return [entry["what"] for entry in self.heard()]

    def wait(self, word):
        return self.desk.wait(lambda: word in self.words(), limit=5)


@pytest.fixture
def host(desk):
    machine = solo.this_host(desk.home, solo.SystemClock(), os.environ)
    machine.open()
    yield machine
    machine.close()


class Rig:
    """Pixels on the real host, asked as the session would ask."""

    def __init__(self, host, **options):
        self.host, self.pixels = host, solo.Pixels(host, solo.SystemClock(), **options)
        self.look()

    def look(self, *, acted=False):
        self.sight = self.pixels.look(acted=acted)
        self.seen = solo.Snapshot(id="s1", time=0, frame=self.sight.frame, windows=self.sight.windows)
        return self.seen

    def window(self, title):
        return next(window for window in self.host.windows() if window.title == title)

    def permit(self, verb, aim=None, parameter="", *, end=None, window=None):
        judged = self.host.window_at(aim) if aim else window
        action = solo.Action(verb=verb, parameter=parameter)
        return solo.Permit(action=action, aim=aim, end=end, window=judged)

    def act(self, *args, **more):
        return self.pixels.act(self.permit(*args, **more), self.seen)


@pytest.fixture
def target(desk, tmp_path):
    return Target(desk, tmp_path)


@pytest.fixture
def rig(host, target):
    made = Rig(host)
    yield made
    made.pixels.close()


def opened(picture):
    return Image.open(BytesIO(picture.data)).convert("RGB")


def test_the_model_sees_what_is_on_the_screen(rig, target, desk):
    desk.wait(lambda: rig.look() and opened(rig.seen.frame.picture).getextrema()[0][1] > 200)
    sent, shot = opened(rig.seen.frame.picture), rig.seen.frame.shot
    there = solo.to_shot(target.inside(100, 200), shot)
    assert all(
        abs(a - b) < 8
        for a, b in zip(sent.getpixel((int(there.x), int(there.y))), (0x20, 0x30, 0x40), strict=True)
    )
    assert sent.size == solo.fit(*desk.screenshot().size)


@pytest.mark.parametrize("most", [(1344, 756), (812, 504)])
@pytest.mark.parametrize("space", ["px", "1000", "999", "1", "percent"])
def test_answers_in_every_space_and_size_press_the_same_small_button(host, target, space, most):
    rig = Rig(host, most=most)
    shot, unit = rig.seen.frame.shot, solo.parse_space(space)
    middle = solo.to_shot(target.inside(212, 72), shot)
    across, down = {"px": (shot.width, shot.height)}.get(space, (solo.SPANS[space],) * 2)
    said = middle.x / shot.width * across, middle.y / shot.height * down
    said = [round(number, 3 if space == "1" else 1 if space == "percent" else 0) for number in said]
    point = solo.from_space(*said, space=unit, width=shot.width, height=shot.height)
    receipt = rig.act("click", solo.to_screen(point, shot))
    assert receipt.data["window"] == "Target"
    target.wait("pressed")


def test_a_window_that_opens_over_the_target_gets_nothing(rig, target, desk, tmp_path):
    permit = rig.permit("click", target.inside(212, 72))
    over = Target(desk, tmp_path, title="Over")
    with pytest.raises(solo.TellModel, match='"Over"'):
        rig.pixels.act(permit, rig.seen)
    assert over.heard() == []


def test_clicks_of_every_kind_arrive(rig, target):
    aim = target.inside(100, 200)
    rig.act("double_click", aim)
    target.wait("<Double-Button-1>")
    rig.act("middle_click", target.inside(60, 240))
    target.wait("<Button-2>")
    rig.act("click", target.inside(300, 240), "ctrl+shift")
    rig.act("scroll", aim, "down 2")
    target.desk.wait(lambda: target.words().count("<Button-5>") == 2)
    assert {"what": "<Button-1>", "state": 5} in target.heard()
    assert "<Triple-Button-1>" not in target.words()
    rig.act("triple_click", target.inside(200, 140))
    target.wait("<Triple-Button-1>")


def test_two_single_clicks_in_one_place_stay_single(rig, target):
    for _ in range(2):
        rig.act("click", target.inside(100, 200))
    target.desk.wait(lambda: len(target.words()) >= 4)
    assert "<Double-Button-1>" not in target.words()


def test_a_drag_arrives_as_motion_and_ends_where_it_should(rig, target):
    rig.act("drag", target.inside(40, 140), end=target.inside(340, 240))
    target.wait("released 320 120")
    assert target.words().count("motion") > 5


def test_text_and_chords_arrive_in_the_window_they_were_meant_for(rig, target, desk, tmp_path):
    rig.act("input", target.inside(60, 33), "Zoë <7>")
    target.wait("holds Zoë <7>")
    window = rig.window("Target")
    rig.act("keypress", None, "backspace", window=window)
    target.wait("holds Zoë <7")
    thief = Target(desk, tmp_path, title="Thief", geometry="400x300+800+400")
    desk.wait(lambda: rig.window("Thief").focused)
    for verb in ("input", "keypress"):
        with pytest.raises(solo.TellModel, match='in window "Thief" now'):
            rig.act(verb, None, "x", window=window)
    assert thief.heard() == []
    receipt = rig.act("focus_window", None, "targ")
    assert receipt.delivery == "delivered_verified"
    rig.act("keypress", None, "x", window=rig.window("Target"))
    target.wait("holds Zoë <7x")


def test_a_late_answer_is_waited_for_and_told_where_it_happened(rig, target):
    before = rig.look()
    rig.act("right_click", target.inside(100, 200))  # the field turns grey a quarter of a second later
    after = rig.look(acted=True)
    change = solo.compare(before, after)
    field = target.inside(20, 120)
    assert change.moved and change.box and "region" in change.text
    assert abs(change.box.x - field.x) < 40 and abs(change.box.y - field.y) < 40


def test_nothing_visible_changed(rig, target):
    rig.act("move", target.inside(390, 290))
    before = rig.look(acted=True)
    assert solo.compare(before, rig.look()).text == "Nothing visible changed."


class Owner:
    """The host, with one window taken for the terminal this program runs in."""

    def __init__(self, host, title):
        self._host, self._title = host, title

    def __getattr__(self, name):
        return getattr(self._host, name)

    def windows(self):
        return tuple(replace(window, own=window.title == self._title) for window in self._host.windows())


def test_the_own_terminal_is_grey_and_its_printing_is_silence(host, desk, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    desk.start(
        ["xterm", "-T", "Mine", "-geometry", "80x20+700+50", "-e", "sh", "-c", f"cat {pipe}; sleep 60"]
    )
    desk.wait(lambda: "Mine" in desk.titles())
    rig = Rig(Owner(host, "Mine"))
    before = rig.look(acted=True)
    box = rig.window("Mine").box
    corner, far = (
        solo.to_shot(point, before.frame.shot)
        for point in (
            solo.ScreenPoint(x=box.x + 4, y=box.y + 4),
            solo.ScreenPoint(x=box.x + box.width - 4, y=box.y + box.height - 4),
        )
    )
    crop = opened(before.frame.picture).crop((int(corner.x), int(corner.y), int(far.x), int(far.y)))
    assert all(low > 120 and high < 136 for low, high in crop.getextrema())
    plain = desk.screenshot()
    with pipe.open("w") as printing:
        printing.write("secret\n" * 30)
    desk.wait(lambda: desk.screenshot().tobytes() != plain.tobytes())
    assert rig.look(acted=True).frame is before.frame


def test_monitors_are_seen_one_by_one_and_together(host, desk):
    width, height = desk.screenshot().size
    half = width // 2
    desk.run("xrandr", "--setmonitor", "LEFT", f"{half}/200x{height}/200+0+0", "screen")
    desk.run("xrandr", "--setmonitor", "RIGHT", f"{half}/200x{height}/200+{half}+0", "none")
    try:
        areas = [
            solo.Pixels(host, solo.SystemClock(), monitor=number).look(acted=False).frame.shot.area
            for number in (1, 2)
        ]
        assert sorted(area.x for area in areas) == [0, half] and {area.width for area in areas} == {half}
        whole = solo.Pixels(host, solo.SystemClock()).look(acted=False).frame.shot.area
        assert (whole.width, whole.height) == (width, height)
    finally:
        for name in ("LEFT", "RIGHT"):
            desk.run("xrandr", "--delmonitor", name)


def test_memory_stays_flat(rig, target):
    def look(number):
        rig.act("move", target.inside(212 + number % 2 * 100, 72))  # the button lights up, and goes out again
        rig.look(acted=number < 4)
        return rig.seen.frame.digest

    assert len({look(number) for number in range(4)}) > 1
    tracemalloc.start()
    try:
        look(4)
        before = tracemalloc.get_traced_memory()[0]
        for number in range(60):
            look(number + 5)
        assert tracemalloc.get_traced_memory()[0] - before < 200_000
    finally:
        tracemalloc.stop()
