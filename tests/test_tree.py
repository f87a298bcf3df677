"""Tree: what is read from an application's accessibility tree, and what acts on its elements do."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from agent_solo import (
    Action,
    Box,
    Element,
    Numbers,
    Permit,
    Receipt,
    Snapshot,
    TellModel,
    Tree,
    Window,
    call_bytes,
    clip,
    listing,
)

RECORDED = Path(__file__).parent / "recorded"
ROOT = "/org/a11y/atspi/accessible/root"
NULL = ("", "/org/a11y/atspi/null")
BITS = {
    "active": 1,
    "checked": 4,
    "editable": 7,
    "expandable": 9,
    "expanded": 10,
    "focused": 12,
    "pressed": 20,
}
BITS |= {"selected": 23, "sensitive": 24, "showing": 25, "visible": 30, "manages": 31}
FRAME, BUTTON, TEXT, PASSWORD, CHECK, COMBO, SLIDER, LABEL, TABLE, CELL = (
    23,
    43,
    61,
    40,
    7,
    11,
    51,
    29,
    55,
    56,
)

WINDOW = Window(id="0x1", title="Orders", app="desk", pid=7, box=Box(x=100, y=50, width=400, height=300))
PLAIN = ("sensitive", "showing", "visible")


class StillClock:
    """Time that passes only by sleeping, or by waiting for an application that is silent."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class Thing:
    """One object of a fake application."""

    role: int
    name: str = ""
    box: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    states: tuple[str, ...] = PLAIN
    inside: list[Thing] = field(default_factory=list)
    text: str | None = None
    number: float | None = None
    label: Thing | None = None
    claims: int = 0  # children it says it has, beyond those it gives
    rows: int = 0  # of a table, 20 units tall; its children are its cells, two in a row
    stubborn: bool = False  # takes a new text, and keeps the old one
    path: str = ""

    def bits(self) -> tuple[int, int]:
        number = sum(1 << BITS[state] for state in self.states)
        return number & 0xFFFFFFFF, number >> 32


@dataclass
class App:
    """A fake application on the bus."""

    bus: str
    tops: list[Thing]
    pid: int = 7
    toolkit: str = "gtk"
    cached: bool = False
    silent: bool = False
    deaf_to: str = ""  # a call that it never answers


class Stage:
    """A fake accessibility bus. `heard` is every call, as (path, member)."""

    id = "guid"

    def __init__(self, clock: StillClock, *apps: App) -> None:
        self.clock, self.apps = clock, {app.bus: app for app in apps}
        self.heard: list[tuple[str, str]] = []
        self.closed = False
        self._paths = 0

    def close(self) -> None:
        self.closed = True

    def things(self, app: App) -> dict[str, tuple[Thing, str, int]]:
        """Every object by its path, with its parent's path and its place there; new ones get a path."""
        found: dict[str, tuple[Thing, str, int]] = {}

        def visit(things: Sequence[Thing], parent: str) -> None:
            for place, thing in enumerate(things):
                if not thing.path:
                    self._paths += 1
                    thing.path = f"/{self._paths}"
                found[thing.path] = thing, parent, place
                visit(thing.inside, thing.path)

        visit(app.tops, ROOT)
        return found

    def ask(self, calls: Sequence[Any], *, until: float) -> list[Any]:
        self.heard += [
            (path, arguments[-1] if name == "Get" else name) for _, path, _, name, _, arguments in calls
        ]
        asked = [(self.apps[call[0]], call[3]) for call in calls if call[0] in self.apps]
        if any(app.silent or app.deaf_to == member for app, member in asked):
            self.clock.time = max(self.clock.time, until)
            raise TellModel("APP_UNRESPONSIVE", "the application does not answer")
        return [self.answer(*call) for call in calls]

    def answer(self, bus: str, path: str, interface: str, member: str, _: str, arguments: Any) -> Any:
        if bus == "org.a11y.atspi.Registry":
            return [(app.bus, ROOT) for app in self.apps.values()] if member == "GetChildren" else True
        if member == "GetConnectionUnixProcessID":
            return self.apps[arguments[0]].pid
        app = self.apps[bus]
        things = self.things(app)
        if path == ROOT:
            return app.toolkit if arguments else [(bus, thing.path) for thing in app.tops]
        if member == "GetItems":
            return [self.item(app, *entry) for entry in things.values()] if app.cached else None
        if path not in things:
            return None
        name = arguments[1] if member == "Get" else member
        return self.fact(app, *things[path], name, arguments)

    def item(self, app: App, thing: Thing, parent: str, place: int) -> Any:
        ref = (app.bus, thing.path)
        inside = len(thing.inside) if "manages" not in thing.states else 0
        head = (ref, (app.bus, ROOT), (app.bus, parent), place, inside)
        return (*head, [], thing.name, thing.role, "", thing.bits())

    def fact(self, app: App, thing: Thing, parent: str, place: int, name: str, arguments: Any) -> Any:
        def refs(things: Sequence[Thing]) -> list[tuple[str, str]]:
            return [(app.bus, other.path) for other in things]

        if name in ("SetTextContents", "Set"):
            if thing.text is None and thing.number is None:
                return None
            if name == "Set":
                thing.number = arguments[2][1]
            elif not thing.stubborn:
                thing.text = arguments[0]
            return True
        facts: dict[str, Callable[[], Any]] = {
            "GetRole": lambda: thing.role,
            "GetState": thing.bits,
            "Name": lambda: thing.name,
            "ChildCount": lambda: thing.claims or len(thing.inside),
            "GetExtents": lambda: thing.box,
            "GetChildren": lambda: refs(thing.inside),
            "GetChildAtIndex": lambda: (refs(thing.inside)[arguments[0] : arguments[0] + 1] or [NULL])[0],
            "GetIndexInParent": lambda: place,
            "GetRelationSet": lambda: [(2, refs([thing.label]))] if thing.label else [],
            "Description": lambda: "",
            "CharacterCount": lambda: None if thing.text is None else len(thing.text),
            "GetText": lambda: (thing.text or "")[: arguments[1]],
            "CurrentValue": lambda: thing.number,
            "GrabFocus": lambda: True,
            "GetAccessibleAtPoint": lambda: self.at(app, thing, *arguments[:2]),
            "GetRowAtIndex": lambda: arguments[0] // 2,
            "GetColumnAtIndex": lambda: arguments[0] % 2,
            "GetAccessibleAt": lambda: (
                (refs(thing.inside)[arguments[0] * 2 + arguments[1] :] or [NULL])[0]
                if arguments[1] < 2
                else NULL
            ),
        }
        return facts[name]()

    def at(self, app: App, table: Thing, x: int, y: int) -> tuple[str, str]:
        for cell in table.inside:
            if (
                cell.box
                and cell.box[0] <= x < cell.box[0] + cell.box[2]
                and cell.box[1] <= y < cell.box[1] + cell.box[3]
            ):
                return app.bus, cell.path
        return app.bus, table.path


class Windows:
    """The part of a host that a tree uses."""

    def __init__(self, *windows: Window) -> None:
        self.shown, self.focused = windows, ""

    def windows(self) -> tuple[Window, ...]:
        return self.shown

    def focus(self, window: Window) -> None:
        self.focused = window.id


class Desk:
    """A tree over fake applications and windows; `touch` records what the pointer was told to do."""

    def __init__(self, *apps: App, windows: Sequence[Window] = (WINDOW,), allowed: str = "desk") -> None:
        self.clock = StillClock()
        self.stage = Stage(self.clock, *apps)
        self.host = Windows(*windows)
        self.touched: list[Permit] = []
        self.then: Callable[[], None] = lambda: None
        self.numbers = Numbers()
        self.tree = Tree(
            self.host,
            self.clock,
            touch=self.touch,
            allowed=lambda window: window.app == allowed,
            environ={},
            connect=lambda *_: self.stage,
        )

    def touch(self, permit: Permit, seen: Snapshot) -> Receipt:
        self.touched.append(permit)
        self.then()
        verb = permit.action.verb
        return Receipt(
            command=verb, ok=True, delivery="delivered_unverified", mechanism="physical", message=verb
        )

    def see(self) -> Snapshot:
        sight = self.tree.look(acted=False)
        elements = self.numbers.number(sight.elements)
        return Snapshot(
            id="s1",
            time=0,
            windows=self.host.shown,
            elements=elements,
            notes=sight.notes,
            complete=sight.complete,
        )

    def lines(self) -> list[str]:
        return listing(self.see().elements, self.host.shown).split("\n")

    def act(self, verb: str, name: str, parameter: str = "", *, seen: Snapshot | None = None) -> Receipt:
        seen = seen or self.see()
        element = next(e for e in seen.elements if e.name == name)
        action = Action(verb=verb, ref=element.ref, parameter=parameter)
        return self.tree.act(Permit(action=action, window=WINDOW), seen)


def refused(call: Callable[[], object]) -> TellModel:
    """The refusal of an act."""
    with pytest.raises(TellModel) as told:
        call()
    return told.value


def form(*things: Thing, **more: Any) -> App:
    """An application with one window, Orders, that holds these things."""
    return App(bus=":1.2", tops=[Thing(FRAME, "Orders", (99, 30, 402, 325), inside=list(things))], **more)


# Looking


def test_names_roles_values_and_states_are_plain_words() -> None:
    label = Thing(LABEL, "Street", (110, 60, 80, 20))
    things = [
        label,
        Thing(TEXT, "", (200, 60, 200, 20), (*PLAIN, "editable", "focused"), text="Rue é 🙂", label=label),
        Thing(CHECK, "Express", (110, 90, 90, 20), (*PLAIN, "checked")),
        Thing(SLIDER, "Weight", (110, 120, 200, 20), number=2.5),
        Thing(
            COMBO, "red", (110, 150, 90, 20), (*PLAIN, "expandable"), label=Thing(LABEL, "Colour", path="/c")
        ),
        Thing(BUTTON, "Save", (110, 180, 60, 20), ("showing", "visible")),
    ]
    things.append(things[4].label)
    assert Desk(form(*things)).lines() == [
        'in window "Orders":',
        'e1 text "Street"',
        'e2 text field "Street" = "Rue é 🙂" [focused]',
        'e3 check box "Express" [checked]',
        'e4 slider "Weight" = "2.5"',
        'e5 combo box "Colour" = "red" [collapsed]',
        'e6 button "Save" [disabled]',
    ]


def test_a_password_is_never_asked_for() -> None:
    desk = Desk(form(Thing(PASSWORD, "PIN", (110, 60, 80, 20), (*PLAIN, "editable"), text="hunter2")))
    assert desk.lines()[1:] == ['e1 password field "PIN"']
    assert not {"CharacterCount", "GetText"} & {member for _, member in desk.stage.heard}


def test_a_field_named_for_a_secret_is_one_even_if_its_toolkit_does_not_say_so() -> None:
    desk = Desk(form(Thing(TEXT, "Passphrase", (110, 60, 80, 20), (*PLAIN, "editable"), text="hunter2")))
    assert desk.lines()[1:] == ['e1 password field "Passphrase"']


@pytest.mark.parametrize("cached", [True, False])
def test_the_bulk_answer_and_the_walk_see_the_same(cached: bool) -> None:
    button = Thing(BUTTON, "Save", (110, 60, 60, 20))
    hidden = Thing(BUTTON, "Hidden", (110, 90, 60, 20), ("sensitive",))
    lone = Thing(37, "", (-1, -1, -1, -1), inside=[button, hidden])
    desk = Desk(form(Thing(39, "", (100, 50, 400, 300), inside=[lone]), cached=cached))
    assert desk.lines() == ['in window "Orders":', 'e1 button "Save"']
    assert desk.see().elements[0].box == Box(x=110, y=60, width=60, height=20)


def test_only_what_really_shows_is_listed_and_cut_to_what_shows_of_it() -> None:
    things = [
        Thing(BUTTON, "left of the window", (-300, 60, 60, 20)),
        Thing(BUTTON, "without size", (110, 60, 0, 0)),
        Thing(39, "", (110, 100, 50, 50), inside=[Thing(BUTTON, "scrolled away", (110, 160, 50, 20))]),
        Thing(BUTTON, "half", (450, 60, 100, 20)),
    ]
    (half,) = Desk(form(*things)).see().elements
    assert (half.name, half.box) == ("half", Box(x=450, y=60, width=50, height=20))


def test_gtk4_counts_from_its_window_and_names_by_class_are_dropped() -> None:
    states = ("sensitive", "visible")
    things = [
        Thing(BUTTON, "Save", (10, 20, 60, 20), states),
        Thing(COMBO, "GtkDropDown", (10, 60, 60, 20), states),
    ]
    app = App(bus=":1.2", toolkit="GTK", tops=[Thing(FRAME, "Orders", (0, 0, 398, 275), inside=things)])
    framed = replace(WINDOW, frame=(1, 1, 20, 5))
    save, combo = Desk(app, windows=[framed]).see().elements
    assert save.box == Box(x=100 + 1 + 10, y=50 + 20 + 20, width=60, height=20)
    assert (combo.role, combo.name) == ("combo box", "")


def test_a_popover_of_gtk4_lies_where_its_popup_is() -> None:
    states = ("sensitive", "visible")
    item = Thing(32, "blue", (12, 100, 90, 16), states)
    popover = Thing(20, "GtkPopover", (0, 60, 104, 80), states, [item])
    app = App(bus=":1.2", toolkit="GTK", tops=[Thing(FRAME, "Orders", (0, 0, 400, 300), inside=[popover])])
    popup = replace(WINDOW, id="0x9", box=Box(x=130, y=200, width=104, height=84), popup=True)
    (blue,) = Desk(app, windows=[popup, WINDOW]).see().elements
    assert (blue.window, blue.box) == ("0x9", Box(x=142, y=242, width=90, height=16))
    assert Desk(app).see().elements[0].window == "0x1"


def test_a_scaled_application_is_laid_out_in_pointer_units() -> None:
    tops = [Thing(FRAME, "Orders", (50, 25, 200, 150), inside=[Thing(BUTTON, "Save", (60, 40, 30, 10))])]
    (save,) = Desk(App(bus=":1.2", tops=tops)).see().elements
    assert save.box == Box(x=120, y=80, width=60, height=20)


def test_an_open_menu_belongs_to_the_window_that_popped_up() -> None:
    popup = replace(WINDOW, id="0x9", title="", box=Box(x=100, y=90, width=120, height=400), popup=True)
    item = Thing(35, "Quit", (105, 400, 100, 20))
    things = [
        Thing(33, "File  ", (100, 70, 40, 20), inside=[item]),
        Thing(BUTTON, "Save", (110, 200, 60, 20)),
    ]
    menu, save, quit_ = Desk(form(*things), windows=[popup, WINDOW]).see().elements
    assert (quit_.name, quit_.window) == ("Quit", "0x9")
    assert (save.name, save.window, save.states) == ("Save", "0x1", ("covered",))
    assert (menu.name, menu.states) == ("File", ())


def test_only_the_windows_that_are_allowed() -> None:
    other = replace(WINDOW, id="0x2", title="Private", app="diary")
    tops = [
        Thing(FRAME, "Private", (99, 30, 402, 325), inside=[Thing(BUTTON, "Secret", (110, 60, 60, 20))]),
        Thing(FRAME, "Orders", (99, 30, 402, 325), inside=[Thing(BUTTON, "Save", (110, 60, 60, 20))]),
    ]
    elements = Desk(App(bus=":1.2", tops=tops), windows=[WINDOW, other]).see().elements
    assert [(e.name, e.window) for e in elements] == [("Save", "0x1")]


def test_a_window_that_is_not_on_the_screen_does_not_take_anothers_place() -> None:
    tops = [
        Thing(FRAME, "Splash", (0, 0, 90, 50), inside=[Thing(BUTTON, "No", (110, 60, 60, 20))]),
        Thing(FRAME, "Orders", (99, 30, 402, 325), inside=[Thing(BUTTON, "Save", (110, 60, 60, 20))]),
    ]
    assert [e.name for e in Desk(App(bus=":1.2", tops=tops)).see().elements] == ["Save"]


def test_windows_of_one_title_are_told_apart() -> None:
    small = replace(WINDOW, id="0x2", box=Box(x=600, y=50, width=200, height=100), focused=True)
    tops = [
        Thing(FRAME, "Orders", (99, 30, 402, 325), inside=[Thing(BUTTON, "large", (110, 60, 60, 20))]),
        Thing(
            FRAME,
            "Orders",
            (599, 30, 202, 125),
            (*PLAIN, "active"),
            [Thing(BUTTON, "small", (610, 60, 60, 20))],
        ),
    ]
    elements = Desk(App(bus=":1.2", tops=tops), windows=[small, WINDOW]).see().elements
    assert {(e.name, e.window) for e in elements} == {("large", "0x1"), ("small", "0x2")}


def test_applications_without_an_allowed_window_are_not_even_asked() -> None:
    stranger = App(bus=":1.9", pid=9, silent=True, tops=[])
    assert Desk(form(Thing(BUTTON, "Save", (110, 60, 60, 20))), stranger).lines()[1:] == ['e1 button "Save"']


def test_a_silent_application_costs_its_limit_and_hides_no_other() -> None:
    hung = App(bus=":1.1", pid=9, silent=True, tops=[])
    windows = [WINDOW, replace(WINDOW, id="0x2", pid=9, title="Hung")]
    desk = Desk(hung, form(Thing(BUTTON, "Save", (110, 60, 60, 20))), windows=windows)
    seen = desk.see()
    assert [e.name for e in seen.elements] == ["Save"]
    assert (seen.complete, seen.notes) == (False, ('The list of "desk" is not complete.',))
    assert desk.clock.time <= Tree.LIMIT + 0.1


def test_a_sheet_of_two_thousand_million_cells_is_survived() -> None:
    cells = [Thing(CELL, f"cell {n}", (110 + n % 2 * 50, 60 + n // 2 * 20, 50, 20)) for n in range(40)]
    table = Thing(TABLE, "", (110, 60, 100, 100), (*PLAIN, "manages"), cells, claims=2**31 - 1)
    desk = Desk(form(table))
    assert [e.name for e in desk.see().elements] == [f"cell {n}" for n in range(10)]
    assert (table.path, "GetChildren") not in desk.stage.heard
    assert (table.path, "GetChildAtIndex") not in desk.stage.heard


def test_a_list_of_very_many_children_is_cut_and_says_so() -> None:
    rows = [Thing(32, f"row {n}", (110, 60, 100, 20)) for n in range(500)]
    seen = Desk(form(Thing(31, "", (110, 60, 100, 100), inside=rows))).see()
    assert len(seen.elements) == 150
    assert not seen.complete


def test_without_a_bus_there_is_one_note_and_a_second_look_tries_again() -> None:
    desk = Desk(form(Thing(BUTTON, "Save", (110, 60, 60, 20))))
    buses = iter([ConnectionError("no bus"), None])

    def connect(*_: object) -> Stage:
        fault = next(buses)
        if fault:
            raise fault
        return desk.stage

    tree = Tree(desk.host, desk.clock, touch=desk.touch, allowed=lambda w: True, environ={}, connect=connect)
    sight = tree.look(acted=False)
    assert (sight.elements, sight.notes) == (
        (),
        ("There is no accessibility tree to read here: go by the picture.",),
    )
    assert [e.name for e in tree.look(acted=False).elements] == ["Save"]


def test_no_environment_means_no_tree_on_any_system() -> None:
    tree = Tree(Windows(WINDOW), StillClock(), touch=lambda *_: None, allowed=lambda w: True, environ={})
    assert tree.look(acted=False).notes == (
        "There is no accessibility tree to read here: go by the picture.",
    )


def test_a_text_that_repeats_its_button_is_not_listed_twice() -> None:
    things = [Thing(BUTTON, "Save", (110, 60, 60, 20), inside=[Thing(LABEL, "Save", (115, 62, 40, 16))])]
    assert Desk(form(*things)).lines()[1:] == ['e1 button "Save"']


# Looking at what real applications answered (tests/record.py)


class Recorded:
    """A bus that answers as an application did when it was recorded, and knows nothing else."""

    def __init__(self, name: str) -> None:
        told = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
        self.id, self.calls = told["id"], told["calls"]
        self.windows = [
            Window(**{**window, "box": Box(**window["box"]), "frame": tuple(window["frame"])})
            for window in told["windows"]
        ]

    def ask(self, calls: Sequence[Any], *, until: float) -> list[Any]:
        return [self.calls[json.dumps(call)] for call in calls]

    def look(self) -> tuple[list[str], tuple[Element, ...]]:
        tree = Tree(
            Windows(*self.windows),
            StillClock(),
            touch=lambda *_: None,
            allowed=lambda window: True,
            environ={},
            connect=lambda *_: self,
        )
        sight = tree.look(acted=False)
        assert sight.complete
        elements = Numbers().number(sight.elements)
        return listing(elements, self.windows).split("\n"), elements


FORM = [
    'text "Name"',
    'text field "Name" [focused]',
    'text "PIN"',
    "password field",
    'check box "Express"',
    'slider = "0"',
    "combo box",
    'button "Save"',
    'button "Locked" [disabled]',
]


@pytest.mark.parametrize("toolkit", ["gtk3", "gtk4"])
def test_both_gtks_tell_the_same_form(toolkit: str) -> None:
    lines, elements = Recorded(toolkit).look()
    told = [line.partition(" ")[2] for line in lines[1:]]
    inner = ["button", 'text "red"'] if toolkit == "gtk4" else []  # what its combo box is made of
    assert told == FORM[:7] + inner + FORM[7:]
    window = Recorded(toolkit).windows[0].box
    assert all(clip(element.box, window) == element.box for element in elements)


def test_qt6_tells_the_form_and_the_part_of_a_table_of_1000_rows_that_shows() -> None:
    lines, elements = Recorded("qt6").look()
    assert lines[:12] == [
        'in window "Qt form":',
        'e1 text "Name"',
        'e2 text field "Name" [focused]',
        'e3 text "PIN"',
        'e4 password field "PIN"',
        'e5 text "Age"',
        'e6 spin button "Age" = "0"',
        'e7 text "Colour"',
        'e8 combo box "Colour" = "red" [collapsed]',
        'e9 text "Notes"',
        'e10 text field "Notes"',
        'e11 check box "Express"',
    ]
    cells = [element.name for element in elements if element.role == "cell"]
    assert cells == [f"{row}:{column}" for row in range(5) for column in range(3)]


def test_qt5_is_listed_without_the_panels_and_lists_that_are_hidden() -> None:
    lines, _ = Recorded("qt5").look()
    assert 'e17 tab "Execute SQL"' in lines
    assert 'e25 combo box "Mode:" = "Text" [disabled]' in lines
    assert not any("Show SQL submitted by" in line or "RTL Text" in line for line in lines)
    assert len(lines) < 60


# Acting


def test_a_click_goes_to_where_the_element_is_now() -> None:
    save = Thing(BUTTON, "Save", (110, 60, 60, 20))
    desk = Desk(form(save))
    seen = desk.see()
    save.box = (210, 160, 60, 20)
    receipt = desk.act("click", "Save", "ctrl", seen=seen)
    (permit,) = desk.touched
    assert (permit.aim.x, permit.aim.y) == (240, 170)
    assert (permit.action.verb, permit.action.parameter, permit.window) == ("click", "ctrl", WINDOW)
    assert receipt.message == 'click, on e1 button "Save"'
    assert (receipt.delivery, receipt.mechanism) == ("delivered_unverified", "physical")


def test_an_element_that_is_gone_is_stale_and_nothing_is_touched() -> None:
    desk = Desk(form(Thing(BUTTON, "Save", (110, 60, 60, 20)), Thing(BUTTON, "Open", (110, 90, 60, 20))))
    seen = desk.see()
    del desk.stage.apps[":1.2"].tops[0].inside[0]
    told = refused(lambda: desk.act("click", "Save", seen=seen))
    assert (told.code, told.delivery, desk.touched) == ("STALE_REF", "not_delivered", [])


def test_a_button_that_became_another_is_stale() -> None:
    pay = Thing(BUTTON, "Pay", (110, 60, 60, 20))
    desk = Desk(form(pay))
    seen = desk.see()
    pay.name = "Delete"
    assert refused(lambda: desk.act("click", "Pay", seen=seen)).code == "STALE_REF"


def test_one_drawn_anew_is_found_again_and_of_two_neither() -> None:
    desk = Desk(form(Thing(BUTTON, "Edit", (110, 60, 60, 20))))
    seen, inside = desk.see(), desk.stage.apps[":1.2"].tops[0].inside
    inside[:] = [Thing(BUTTON, "Edit", (110, 90, 60, 20))]
    assert desk.act("click", "Edit", seen=seen).ok
    inside[:] = [Thing(BUTTON, "Edit", (110, 60, 60, 20)), Thing(BUTTON, "Edit", (110, 90, 60, 20))]
    told = refused(lambda: desk.act("click", "Edit", seen=seen))
    assert (told.code, len(desk.touched)) == ("AMBIGUOUS_TARGET", 1)


def test_what_has_no_name_is_never_mistaken_for_its_neighbour() -> None:
    desk = Desk(form(Thing(BUTTON, "", (110, 60, 60, 20))))
    seen = desk.see()
    desk.stage.apps[":1.2"].tops[0].inside[:] = [Thing(BUTTON, "", (110, 60, 60, 20))]
    assert refused(lambda: desk.act("click", "", seen=seen)).code == "STALE_REF"


def test_a_silent_application_is_not_the_same_as_one_without_the_element() -> None:
    desk = Desk(form(Thing(BUTTON, "Save", (110, 60, 60, 20))))
    seen = desk.see()
    desk.stage.apps[":1.2"].silent = True
    told = refused(lambda: desk.act("click", "Save", seen=seen))
    assert (told.code, told.delivery) == ("APP_UNRESPONSIVE", "not_delivered")


def test_a_disabled_element_and_an_unknown_ref_are_refused() -> None:
    desk = Desk(form(Thing(BUTTON, "Save", (110, 60, 60, 20), ("showing",))))
    assert "is disabled" in refused(lambda: desk.act("click", "Save")).sentence
    seen, unknown = desk.see(), Permit(action=Action(verb="click", ref="e99"))
    assert refused(lambda: desk.tree.act(unknown, seen)).code == "ELEMENT_NOT_FOUND"
    assert desk.touched == []


def test_check_clicks_once_and_reads_the_tick_back() -> None:
    box = Thing(CHECK, "Express", (110, 60, 90, 20))
    desk = Desk(form(box))

    def toggle() -> None:
        box.states = (*PLAIN, "checked") if "checked" not in box.states else PLAIN

    desk.then = toggle
    assert desk.act("check", "Express").delivery == "delivered_verified"
    again = desk.act("check", "Express")
    assert (again.ok, again.delivery, len(desk.touched)) == (True, "not_delivered", 1)
    assert desk.act("uncheck", "Express").delivery == "delivered_verified"


def test_a_tick_that_bounces_back_is_a_failure_that_was_delivered() -> None:
    desk = Desk(form(Thing(CHECK, "Express", (110, 60, 90, 20))))
    told = refused(lambda: desk.act("check", "Express"))
    assert (told.code, told.delivery) == ("ACTION_FAILED", "delivered_unverified")


def test_a_box_that_vanishes_with_the_click_stays_unverified() -> None:
    desk = Desk(form(Thing(CHECK, "Express", (110, 60, 90, 20))))
    desk.then = desk.stage.apps[":1.2"].tops.clear
    assert desk.act("check", "Express").delivery == "delivered_unverified"


def test_a_button_cannot_be_ticked() -> None:
    desk = Desk(form(Thing(BUTTON, "Save", (110, 60, 60, 20))))
    assert refused(lambda: desk.act("check", "Save")).code == "ACTION_NOT_SUPPORTED"


def test_set_value_replaces_the_text_and_reads_it_back() -> None:
    street = Thing(TEXT, "Street", (110, 60, 90, 20), (*PLAIN, "editable"), text="old")
    desk = Desk(form(street))
    receipt = desk.act("set_value", "Street", " Zoë\n订单 ")
    assert (street.text, receipt.delivery, receipt.mechanism) == (
        " Zoë\n订单 ",
        "delivered_verified",
        "semantic",
    )
    assert desk.act("clear", "Street").delivery == "delivered_verified"
    assert street.text == ""


def test_a_field_that_keeps_its_old_text_is_a_failure() -> None:
    field_ = Thing(TEXT, "Street", (110, 60, 90, 20), (*PLAIN, "editable"), text="old", stubborn=True)
    told = refused(lambda: Desk(form(field_)).act("set_value", "Street", "new"))
    assert (told.code, told.delivery) == ("ACTION_FAILED", "delivered_unverified")


def test_a_password_is_set_and_not_read_back() -> None:
    pin = Thing(PASSWORD, "PIN", (110, 60, 90, 20), (*PLAIN, "editable"), text="")
    desk = Desk(form(pin))
    receipt = desk.act("set_value", "PIN", "1234")
    assert (receipt.delivery, receipt.message) == ("delivered_unverified", 'set e1 password field "PIN"')
    assert pin.text == "1234"
    assert "GetText" not in {member for _, member in desk.stage.heard}


def test_read_only_fields_and_what_has_no_text_refuse() -> None:
    desk = Desk(
        form(Thing(TEXT, "Total", (110, 60, 90, 20), text="9"), Thing(BUTTON, "Save", (110, 90, 60, 20)))
    )
    assert refused(lambda: desk.act("set_value", "Total", "1")).code == "ACTION_NOT_SUPPORTED"
    told = refused(lambda: desk.act("set_value", "Save", "1"))
    assert (told.code, told.delivery) == ("ACTION_NOT_SUPPORTED", "not_delivered")


def test_a_slider_takes_a_number() -> None:
    slider = Thing(SLIDER, "Weight", (110, 60, 90, 20), number=1.0)
    desk = Desk(form(slider))
    assert desk.act("set_value", "Weight", "2.5").delivery == "delivered_verified"
    assert refused(lambda: desk.act("set_value", "Weight", "heavy")).code == "INVALID_ARGS"
    assert slider.number == 2.5


def test_falling_silent_while_writing_is_uncertain() -> None:
    street = Thing(TEXT, "Street", (110, 60, 90, 20), (*PLAIN, "editable"), text="old")
    desk = Desk(form(street, deaf_to="SetTextContents"))
    told = refused(lambda: desk.act("set_value", "Street", "new"))
    assert (told.code, told.delivery) == ("TIMEOUT", "delivery_uncertain")


def test_input_types_by_keyboard_and_is_verified_by_the_field() -> None:
    street = Thing(TEXT, "Street", (110, 60, 90, 20), (*PLAIN, "editable"), text="old ")
    desk = Desk(form(street))

    def typed() -> None:
        street.text += "new"

    desk.then = typed
    receipt = desk.act("input", "Street", "new")
    assert (receipt.delivery, receipt.mechanism) == ("delivered_verified", "physical")
    desk.then = lambda: None
    assert refused(lambda: desk.act("input", "Street", "more")).code == "ACTION_FAILED"


def test_what_another_window_of_the_same_program_covers_is_not_pressed() -> None:
    dialog = replace(WINDOW, id="0x5", title="Sure?", box=Box(x=100, y=50, width=200, height=100))
    tops = [
        Thing(FRAME, "Orders", (99, 30, 402, 325), inside=[Thing(BUTTON, "Save", (110, 60, 60, 20))]),
        Thing(16, "Sure?", (100, 50, 200, 100), inside=[Thing(BUTTON, "Yes", (110, 100, 60, 20))]),
    ]
    desk = Desk(App(bus=":1.2", tops=tops), windows=[dialog, WINDOW])
    told = refused(lambda: desk.act("click", "Save"))
    assert (told.code, told.delivery, desk.touched) == ("ACTION_FAILED", "not_delivered", [])
    assert desk.act("click", "Yes").ok


def test_focus_activates_the_window_first() -> None:
    street = Thing(TEXT, "Street", (110, 60, 90, 20), (*PLAIN, "editable"), text="")
    desk = Desk(form(street))
    told = refused(lambda: desk.act("focus", "Street"))
    assert (told.code, desk.host.focused) == ("ACTION_FAILED", "0x1")
    street.states = (*PLAIN, "editable", "focused")
    assert desk.act("focus", "Street").delivery == "not_delivered"


def test_closing_closes_the_bus() -> None:
    desk = Desk(form(Thing(BUTTON, "Save", (110, 60, 60, 20))))
    desk.see()
    desk.tree.close()
    assert desk.stage.closed


@pytest.mark.parametrize(
    ("signature", "arguments"),
    [
        ("", ()),
        ("i", (-7,)),
        ("iiu", (3, -2, 4000000000)),
        ("ss", ("org.a11y.atspi.Accessible", "Näme 🙂")),
        ("isi", (0, "", 0)),
    ],
)
def test_a_call_is_packed_as_the_library_packs_it(signature: str, arguments: tuple[object, ...]) -> None:
    import jeepney

    call = (":1.42", "/org/a11y/atspi/accessible/7", "org.a11y.atspi.Text", "GetText", signature, arguments)
    address = jeepney.DBusAddress(call[1], call[0], call[2])
    message = jeepney.new_method_call(address, "GetText", signature or None, arguments)
    read = jeepney.low_level.Parser()
    read.add_data(call_bytes(call, 99))
    packed = read.get_next_message()
    assert (packed.header.serial, packed.header.fields, packed.body) == (
        99,
        message.header.fields,
        message.body or (),
    )
