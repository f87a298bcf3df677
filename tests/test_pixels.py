"""Eyes and hands against a drawn screen: what the model gets to see, and what is never touched."""

from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image, ImageDraw

import agent_solo as solo

WHITE, RED, DESK = (255, 255, 255), (220, 30, 30), (40, 60, 80)
FULL = solo.Box(x=0, y=0, width=1920, height=1080)


class Screen:
    """A picture that stands in for the screen, with its origin on the desktop; also the Camera."""

    def __init__(self, size=(1920, 1080), origin=(0, 0), colour=DESK):
        self.image, self.origin, self.grabs = Image.new("RGB", size, colour), origin, []

    def draw(self, box, colour=WHITE):
        left, top = box.x - self.origin[0], box.y - self.origin[1]
        edge = (left, top, left + box.width - 1, top + box.height - 1)
        ImageDraw.Draw(self.image).rectangle(edge, fill=colour)

    def write(self, x, y, text):
        ImageDraw.Draw(self.image).text((x, y), text, fill=(0, 0, 0))

    def grab(self, area, monitors):
        left, top = area.x - self.origin[0], area.y - self.origin[1]
        part = self.image.crop((left, top, left + area.width, top + area.height))
        self.grabs.append(area)
        pixels = bytearray(part.tobytes("raw", "BGRX"))
        return solo.Raster(pixels=pixels, width=area.width, height=area.height, area=area)

    def close(self):
        pass


class Clock:
    """Time that passes only while somebody sleeps, and things that happen meanwhile."""

    def __init__(self):
        self.time, self.plans = 0.0, []

    def now(self):
        return self.time

    def at(self, time, do):
        self.plans = sorted([*self.plans, (time, do)], key=lambda plan: plan[0])

    def sleep(self, seconds):
        self.time += seconds
        while self.plans and self.plans[0][0] <= self.time:
            self.plans.pop(0)[1]()


class Desktop:
    """A Host that writes down what reaches the machine."""

    name = "fake"

    def __init__(self, *windows, monitors=(FULL,)):
        self.shown, self.boxes, self.done = list(windows), tuple(monitors), []
        self.at, self.typed = solo.ScreenPoint(x=700, y=700), ""
        self.refuses = self.steals = self.corner = None
        self.stuck = False

    def monitors(self):
        return self.boxes

    def windows(self):
        return tuple(self.shown)

    def window_at(self, point):
        return next((window for window in self.shown if window.box.contains(point)), None)

    def pointer(self):
        return self.at

    def move(self, point):
        if not self.stuck:
            self.at = solo.ScreenPoint(x=1, y=1) if point == self.corner else point
            self.done.append(("move", point.x, point.y))

    def button(self, name, *, down):
        self.done.append(("down" if down else "up", name))
        if down and self.steals:
            self.shown = [self.steals]
        elif down:
            self.focus(self.window_at(self.at))

    def scroll(self, *, right, down):
        self.done.append(("scroll", right, down))

    def key(self, name, *, down):
        self.done.append(("down" if down else "up", name))
        if name == self.refuses and down:
            raise solo.TellModel("ACTION_FAILED", f"{name} cannot be pressed")

    def type(self, text):
        if text == self.refuses:
            raise solo.TellModel("ACTION_FAILED", "the keyboard refused")
        self.typed += text
        self.done.append(("type", text))

    def focus(self, window):
        self.shown = [replace(one, focused=window is not None and one.id == window.id) for one in self.shown]

    def launch(self, command):
        self.done.append(("launch", command))
        return f"started {command}"

    def release(self):
        self.done.append(("release",))

    def marks(self, *kinds):
        return [entry for entry in self.done if entry[0] in kinds]


def box(x, y, width, height):
    return solo.Box(x=x, y=y, width=width, height=height)


def window(number, title, where=FULL, **more):
    return solo.Window(id=number, title=title, box=where, **{"app": title.lower(), "pid": 1, **more})


def opened(picture):
    return Image.open(BytesIO(picture.data)).convert("RGB")


def near(a, b, by=12):
    return all(abs(x - y) <= by for x, y in zip(a, b, strict=True))


class Rig:
    """Eyes and hands on a fake desktop with one editor window, and a snapshot of what they saw."""

    def __init__(self, *windows, monitors=(FULL,), screen=None, looked=True, **options):
        windows = windows or (window("1", "Editor", box(100, 100, 800, 600), focused=True),)
        self.host, self.clock = Desktop(*windows, monitors=monitors), Clock()
        self.screen = screen or Screen()
        for shown in reversed(windows):
            self.screen.draw(shown.box)
        self.pixels = solo.Pixels(self.host, self.clock, camera=self.screen, **options)
        self.sight = self.look() if looked else None

    def look(self, *, acted=False):
        self.sight = self.pixels.look(acted=acted)
        return self.sight

    def permit(self, verb, x=None, y=None, parameter="", *, end=None, judged=...):
        aim = None if x is None else solo.ScreenPoint(x=x, y=y)
        if judged is ...:
            focused = next((one for one in self.host.shown if one.focused), None)
            judged = self.host.window_at(aim) if aim else focused
        end = solo.ScreenPoint(x=end[0], y=end[1]) if end else None
        return solo.Permit(
            action=solo.Action(verb=verb, parameter=parameter), aim=aim, end=end, window=judged
        )

    def act(self, *args, **more):
        return self.carry(self.permit(*args, **more))

    def carry(self, permit):
        seen = solo.Snapshot(id="s1", time=0, frame=self.sight.frame, windows=self.sight.windows)
        return self.pixels.act(permit, seen)


# -- what is sent ----------------------------------------------------------------------------------------


def test_the_picture_has_the_size_that_no_service_changes():
    frame = Rig().look().frame
    assert (frame.shot.width, frame.shot.height) == (1344, 756) and frame.shot.area == FULL
    assert opened(frame.picture).size == (1344, 756)
    assert len(frame.cells) == 96 * 54 and frame.columns == 96


def test_a_profile_may_ask_for_more():
    assert opened(Rig(most=(1920, 1080)).look().frame.picture).size == (1904, 1064)


def test_a_small_plain_screen_is_sent_exactly():
    monitor = box(0, 0, 1008, 560)
    frame = Rig(window("1", "A", box(10, 10, 300, 200)), monitors=[monitor]).look().frame
    assert frame.picture.mime == "image/png"
    image = opened(frame.picture)
    assert image.getpixel((9, 9)) == DESK and image.getpixel((10, 10)) == WHITE


def test_a_photograph_is_sent_as_jpeg():
    rig = Rig()
    rig.screen.image = Image.effect_noise((1920, 1080), 80).convert("RGB")
    assert rig.look().frame.picture.mime == "image/jpeg"


def test_the_same_pixels_are_the_same_frame():
    rig = Rig()
    first = rig.look().frame
    assert rig.look().frame is first
    rig.screen.draw(box(300, 300, 2, 2), RED)
    second = rig.look().frame
    assert second.digest != first.digest and solo.alike(first, second)


# -- monitors --------------------------------------------------------------------------------------------

LEFT, RIGHT = box(-1280, 56, 1280, 1024), FULL


def two_monitors(**options):
    screen = Screen(size=(3200, 1080), origin=(-1280, 0))
    return Rig(window("1", "A", LEFT, focused=True), monitors=[RIGHT, LEFT], screen=screen, **options)


def test_one_monitor_with_a_negative_origin():
    rig = two_monitors(monitor=2)
    assert rig.look().frame.shot.area == LEFT
    assert opened(rig.sight.frame.picture).getpixel((5, 5)) == WHITE
    assert rig.act("click", -1000, 500).data["screen"] == [-1000, 500]


def test_all_monitors_in_one_picture():
    shot = two_monitors().look().frame.shot
    assert shot.area == box(-1280, 0, 3200, 1080)
    assert solo.to_screen(solo.ShotPoint(x=0, y=shot.height / 2), shot).x == -1279


def test_a_monitor_that_is_not_there():
    with pytest.raises(solo.Usage, match="from 1 to 1"):
        Rig(monitor=3).look()
    with pytest.raises(solo.MissingPart, match="No monitor"):
        Rig(monitors=()).look()


# -- nothing to see --------------------------------------------------------------------------------------


def test_all_black_with_windows_open_is_refused_in_a_sentence():
    rig = Rig()
    rig.screen.image = Image.new("RGB", (1920, 1080))
    with pytest.raises(solo.MissingPart, match="all black") as refused:
        rig.look()
    assert "Wayland" in refused.value.hint and "Unlock" in refused.value.hint


def test_black_for_a_moment_is_waited_for():
    rig = Rig()
    lit, rig.screen.image = rig.screen.image, Image.new("RGB", (1920, 1080))
    rig.clock.at(1.0, lambda: setattr(rig.screen, "image", lit))
    assert rig.look().notes == ()


def test_an_empty_desktop_is_a_desktop():
    for colour in (DESK, (0, 0, 0)):
        rig = Rig(window("1", "Elsewhere", box(5000, 0, 9, 9)))
        rig.screen.image = Image.new("RGB", (1920, 1080), colour)
        assert rig.look().notes == ("The desktop is bare: no window is open.",)


def test_one_flat_window_is_said_to_be_flat():
    assert Rig(window("1", "Blank")).look().notes == ("The whole picture is one colour.",)


# -- the terminal it runs in -----------------------------------------------------------------------------

TERMINAL = window("9", "Terminal", box(1000, 100, 800, 800), own=True)
GREY = "A plain grey area is this program's own terminal, painted over."
DIALOG = window("5", "Dialog", box(1300, 300, 200, 200), focused=True)


def test_the_own_terminal_is_painted_over_where_it_shows():
    rig = Rig(DIALOG, TERMINAL, window("1", "Editor", box(100, 100, 800, 600)))
    rig.screen.write(1010, 110, "SECRET " * 20)
    rig.look()
    image = opened(rig.sight.frame.picture)
    terminal = image.crop((702, 72, 1258, 208))
    assert all(near(extreme, (128, 128), 3) for extreme in terminal.getextrema())
    assert near(image.getpixel((980, 280)), WHITE), "a window above it stays visible"
    assert near(image.getpixel((300, 300)), WHITE) and near(image.getpixel((30, 30)), DESK)


def test_what_the_terminal_prints_is_no_change():
    rig = Rig(DIALOG, TERMINAL)
    first = rig.look().frame
    rig.screen.write(1010, 110, "step 7: click")
    assert rig.look().frame is first
    rig.screen.draw(box(1350, 350, 50, 50), RED)
    assert rig.look().frame is not first


def test_the_grey_is_explained_and_only_where_it_shows():
    assert Rig(DIALOG, TERMINAL).look().notes == (GREY,)
    assert GREY not in Rig(window("1", "Above"), TERMINAL).look().notes
    assert Rig(replace(TERMINAL, box=FULL), DIALOG).look().notes[0] == GREY


def test_black_behind_the_own_terminal_is_still_black():
    rig = Rig(TERMINAL, window("1", "Editor"))
    rig.screen.image = Image.new("RGB", (1920, 1080))
    with pytest.raises(solo.MissingPart, match="all black"):
        rig.look()


# -- settling --------------------------------------------------------------------------------------------


def test_it_waits_for_the_answer_and_then_for_rest():
    rig = Rig()
    rig.look()
    for moment in range(20, 100, 5):  # something slides in, from 0.2 s to 1 s
        rig.clock.at(
            moment / 100, lambda: rig.screen.draw(box(200, 200, 300 + rig.clock.time * 400, 300), RED)
        )
    rig.look(acted=True)
    assert 1.0 <= rig.clock.time <= 1.3
    assert near(opened(rig.sight.frame.picture).getpixel((450, 300)), RED)


def test_an_act_without_effect_costs_little():
    rig = Rig()
    rig.look()
    rig.look(acted=True)
    assert 0.3 < rig.clock.time < 0.6


def test_a_blinking_caret_does_not_keep_it_busy():
    rig = Rig()
    rig.look()
    for blink in range(100):
        colour = RED if blink % 2 else WHITE
        rig.clock.at(blink / 20, lambda colour=colour: rig.screen.draw(box(400, 400, 2, 20), colour))
    rig.look(acted=True)
    assert rig.clock.time < 0.6


def test_a_film_keeps_it_only_as_long_as_it_was_told():
    rig = Rig(settle=2.0)
    rig.look()
    for moment in range(1000):
        colour = (moment % 2 * 200, 0, 0)
        rig.clock.at(moment / 100, lambda colour=colour: rig.screen.draw(box(200, 200, 600, 400), colour))
    rig.look(acted=True)
    assert 2.0 <= rig.clock.time < 2.2


def test_a_program_is_started_by_the_host():
    receipt = Rig().act("launch", parameter="editor")
    assert receipt.message == "started editor" and receipt.mechanism == "host"


# -- the pointer -----------------------------------------------------------------------------------------


def test_a_click_says_what_it_hit_in_pixels_of_the_image():
    rig = Rig()
    receipt = rig.act("click", 300, 400)
    assert rig.host.done == [("move", 300, 400), ("down", "left"), ("up", "left")]
    assert receipt.ok and receipt.delivery == "delivered_unverified" and receipt.mechanism == "physical"
    assert receipt.message == 'click at (210, 280) in window "Editor"'
    assert receipt.data == {"window": "Editor", "x": 210, "y": 280, "screen": [300, 400]}


@pytest.mark.parametrize(
    ("verb", "button", "times"),
    [
        ("double_click", "left", 2),
        ("triple_click", "left", 3),
        ("right_click", "right", 1),
        ("middle_click", "middle", 1),
    ],
)
def test_clicks_of_every_kind(verb, button, times):
    rig = Rig()
    rig.act(verb, 300, 400)
    assert rig.host.marks("down", "up") == [("down", button), ("up", button)] * times


def test_modifiers_are_held_around_a_click():
    rig = Rig()
    rig.act("click", 300, 400, "ctrl+shift")
    order = [
        ("down", "ctrl"),
        ("down", "shift"),
        ("down", "left"),
        ("up", "left"),
        ("up", "shift"),
        ("up", "ctrl"),
    ]
    assert rig.host.marks("down", "up") == order


def test_what_was_pressed_is_let_go_when_a_key_fails():
    rig = Rig()
    rig.host.refuses = "shift"
    with pytest.raises(solo.TellModel):
        rig.act("click", 300, 400, "ctrl+shift")
    assert rig.host.marks("down", "up")[-2:] == [("up", "shift"), ("up", "ctrl")]
    assert ("down", "left") not in rig.host.done


def test_two_clicks_in_one_place_do_not_become_a_double_click():
    rig = Rig()
    rig.act("click", 300, 400)
    rig.act("click", 300, 400)
    assert rig.clock.time >= 0.5
    rig.act("click", 500, 400)
    assert rig.clock.time < 0.6


def test_a_drag_travels_dwells_and_lets_go():
    rig = Rig()
    receipt = rig.act("drag", 200, 200, end=(600, 400))
    moves = [entry[1:] for entry in rig.host.marks("move")]
    assert moves[0] == (200, 200) and moves[-1] == (600, 400) and len(moves) > 8
    assert rig.host.done[1] == ("down", "left") and rig.host.done[-1] == ("up", "left")
    assert rig.clock.time > 0.2 and receipt.data["screen"] == [600, 400]


def test_a_drag_that_is_interrupted_lets_go():
    rig = Rig()

    def stop():
        raise solo.Interrupted("stopped")

    rig.look()
    rig.clock.at(0.05, stop)
    with pytest.raises(solo.Interrupted):
        rig.act("drag", 200, 200, end=(600, 400))
    assert rig.host.done[-1] == ("up", "left")


def test_scrolling():
    rig = Rig()
    rig.act("scroll", 300, 400, "down 3")
    rig.act("scroll", None, None, "left 2")
    rig.act("scroll", 300, 400, "ctrl+up 1")
    assert rig.host.done[-3:] == [("down", "ctrl"), ("scroll", 0, -1), ("up", "ctrl")]
    assert rig.host.marks("scroll")[:2] == [("scroll", 0, 3), ("scroll", -2, 0)]
    assert rig.host.marks("move")[1] == ("move", 500, 400), "with no aim: the middle of the window"


def test_a_host_that_keeps_out_of_the_corner_is_no_failure():
    rig = Rig(window("1", "Editor", focused=True))
    rig.host.corner = solo.ScreenPoint(x=0, y=0)
    assert rig.act("click", 0, 0).data["screen"] == [1, 1]


# -- what is there at the moment of acting ----------------------------------------------------------------


@pytest.mark.parametrize("verb", ["click", "double_click", "right_click", "move", "drag", "scroll", "input"])
def test_a_window_that_came_over_the_target_is_not_touched(verb):
    rig = Rig()
    permit = rig.permit(verb, 300, 400, "down 3" if verb == "scroll" else "", end=(500, 500))
    rig.host.shown.insert(0, window("2", "Update now", box(250, 350, 200, 200)))
    with pytest.raises(solo.TellModel, match='another window, window "Update now", is on top') as told:
        rig.carry(permit)
    assert told.value.delivery == "not_delivered" and rig.host.done == []


def test_a_window_that_went_away_or_moved_is_not_clicked():
    rig = Rig()
    permit = rig.permit("click", 300, 400)
    editor = rig.host.shown.pop()
    with pytest.raises(solo.TellModel, match="bare desktop"):
        rig.carry(permit)
    rig.host.shown = [replace(editor, box=box(150, 100, 800, 600))]
    with pytest.raises(solo.TellModel, match="has moved"):
        rig.carry(permit)
    assert rig.host.done == []


def test_what_the_model_never_saw_is_not_clicked_though_it_be_allowed():
    rig = Rig()
    rig.look()
    rig.host.shown.insert(0, window("2", "Delete all", box(250, 350, 200, 200)))
    with pytest.raises(solo.TellModel, match='"Delete all", is on top there now'):
        rig.act("click", 300, 400)
    assert rig.host.done == []


def test_the_bare_desktop_can_be_clicked_if_that_was_judged():
    rig = Rig()
    assert rig.act("click", 1500, 900).data["window"] == ""


def test_a_pointer_that_does_not_go_there_presses_nothing():
    rig = Rig()
    rig.host.stuck = True
    with pytest.raises(solo.TellModel, match="pointer did not"):
        rig.act("click", 300, 400)
    assert rig.host.done == []


# -- the keyboard ----------------------------------------------------------------------------------------

TEXT = "  Zoë 订单 №7 🙂\t<b>\\n"


def test_text_goes_where_the_focus_is_and_exactly():
    rig = Rig()
    receipt = rig.act("input", parameter=TEXT)
    assert rig.host.typed == TEXT and rig.host.marks("down") == []
    assert receipt.message == 'input in window "Editor"' and TEXT not in str(receipt.data)


def test_input_at_a_point_clicks_there_first():
    rig = Rig(
        window("2", "Form", box(0, 0, 90, 90)), window("1", "Editor", box(100, 100, 800, 600), focused=True)
    )
    rig.act("input", 50, 50, TEXT)
    assert rig.host.done == [("move", 50, 50), ("down", "left"), ("up", "left"), ("type", TEXT)]


def test_keys_do_not_follow_the_focus_into_another_window():
    rig = Rig()
    for verb, parameter in (("input", "rm -rf"), ("keypress", "enter")):
        permit = rig.permit(verb, parameter=parameter)
        rig.host.shown = [window("2", "Terminal", focused=True), replace(rig.host.shown[-1], focused=False)]
        with pytest.raises(solo.TellModel, match='in window "Terminal" now, not in window "Editor"') as told:
            rig.carry(permit)
        assert told.value.delivery == "not_delivered" and rig.host.done == []
        rig.host.shown = [replace(rig.host.shown[-1], focused=True)]


def test_a_click_that_opens_another_window_gets_no_text_and_says_so():
    rig = Rig()
    rig.host.steals = window("2", "Login", box(0, 0, 50, 50), focused=True)
    with pytest.raises(solo.TellModel, match="clicked there, but typed nothing") as told:
        rig.act("input", 300, 400, "secret")
    assert told.value.delivery == "delivered_unverified" and rig.host.typed == ""


def test_a_keyboard_that_refuses_after_the_click_is_told_as_half_done():
    rig = Rig()
    rig.host.refuses = "x"
    with pytest.raises(
        solo.TellModel, match="clicked there, but typed nothing: the keyboard refused"
    ) as told:
        rig.act("input", 300, 400, "x")
    assert told.value.delivery == "delivered_unverified"
    with pytest.raises(solo.TellModel) as told:
        rig.act("input", parameter="x")
    assert told.value.delivery == "not_delivered"


def test_a_menu_takes_keys_through_its_window():
    rig = Rig()
    menu = window("7", "", box(200, 200, 90, 90), popup=True)
    rig.host.shown.insert(0, menu)
    rig.act("keypress", parameter="down", judged=menu)
    assert rig.host.marks("down", "up") == [("down", "down"), ("up", "down")]


def test_a_chord_goes_down_in_order_and_up_in_reverse():
    rig = Rig()
    rig.act("keypress", parameter="ctrl+shift+s")
    down = [("down", "ctrl"), ("down", "shift"), ("down", "s")]
    assert rig.host.done == [*down, ("up", "s"), ("up", "shift"), ("up", "ctrl")]


# -- the person ------------------------------------------------------------------------------------------


def test_a_person_who_takes_the_mouse_is_noticed_once():
    rig = Rig(looked=False)
    assert not rig.pixels.touched(), "nothing is known before the first look"
    rig.look()
    assert not rig.pixels.touched()
    rig.host.at = solo.ScreenPoint(x=701, y=699)
    assert not rig.pixels.touched(), "a mouse trembles"
    rig.act("click", 300, 400)
    assert not rig.pixels.touched()
    rig.host.at = solo.ScreenPoint(x=340, y=400)
    assert rig.pixels.touched() and not rig.pixels.touched()
    rig.look()
    assert not rig.pixels.touched(), "where the person left it is where it rests"
    rig.host.at = solo.ScreenPoint(x=900, y=400)
    assert rig.pixels.touched()


# -- zoom ------------------------------------------------------------------------------------------------


def test_zoom_shows_a_region_in_the_screens_own_pixels():
    rig = Rig()
    rig.screen.draw(box(300, 300, 4, 4), RED)
    receipt = rig.act("zoom", 280, 280, end=(615, 447))
    assert receipt.ok and receipt.delivery == "not_delivered" and rig.host.done == []
    assert receipt.data["region"] == "x 196-431, y 196-314" and "coordinates stay" in receipt.message
    image = opened(receipt.pictures[0])
    assert image.size == (1344, 644) or image.size == (1344, 672)
    assert near(image.getpixel((22 * 4, 22 * 4)), RED, 40)
    assert rig.screen.grabs[-1] == box(280, 280, 336, 168)


def test_zoom_at_one_point_takes_what_lies_around_it_and_stays_on_the_screen():
    rig = Rig()
    rig.act("zoom", 1900, 1070)
    region = rig.screen.grabs[-1]
    assert region.contains(solo.ScreenPoint(x=1900, y=1070)) and solo.clip(region, FULL) == region
    with pytest.raises(solo.TellModel, match="corners"):
        rig.act("zoom")


def test_zoom_hides_the_own_terminal_too():
    rig = Rig(TERMINAL, window("1", "Editor", box(100, 100, 800, 600)))
    rig.screen.write(1010, 110, "SECRET")
    image = opened(rig.act("zoom", 1000, 100, end=(1100, 160)).pictures[0])
    assert all(near(extreme, (128, 128), 3) for extreme in image.getextrema())


# -- windows by name -------------------------------------------------------------------------------------

WINDOWS = [
    window("10", "Untitled - Editor"),
    window("11", "notes.txt - Editor"),
    window("12", "Editor"),
    TERMINAL,
]


@pytest.mark.parametrize(
    ("text", "number"),
    [("11", "11"), ("notes.txt - editor", "11"), ("NOTES", "11"), ("Editor", "12"), ("untitled", "10")],
)
def test_a_window_is_found_as_a_person_would_name_it(text, number):
    assert solo.find_window(text, WINDOWS).id == number


def test_a_window_that_is_not_meant_clearly_is_not_guessed():
    with pytest.raises(solo.TellModel, match=r"id 10.*id 11") as told:
        solo.find_window("editor", WINDOWS[:2])
    assert told.value.code == "AMBIGUOUS_TARGET"
    for text in ("browser", "Terminal", ""):
        with pytest.raises(solo.TellModel, match=r"notes\.txt") as told:
            solo.find_window(text, WINDOWS)
        assert told.value.code == "WINDOW_NOT_FOUND"


def test_focus_window_is_verified_and_only_for_the_window_judged():
    rig = Rig(*WINDOWS)
    receipt = rig.act("focus_window", parameter="notes", judged=None)
    assert receipt.delivery == "delivered_verified" and receipt.data["window"] == "notes.txt - Editor"
    assert next(one for one in rig.host.shown if one.focused).id == "11"
    with pytest.raises(solo.TellModel, match="goes by that name"):
        rig.act("focus_window", parameter="notes", judged=WINDOWS[0])


def test_what_only_an_element_can_do_is_told():
    with pytest.raises(solo.TellModel, match="needs a ref"):
        Rig().act("set_value", 300, 400)


def test_closing_lets_go_of_every_key():
    rig = Rig()
    rig.pixels.close()
    assert rig.host.done == [("release",)]
