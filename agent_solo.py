#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = [
#   "mss>=10.1",
#   "pyautogui>=0.9.54",
#   "pillow>=11",
#   "requests>=2.32",
#   "openai>=2",
#   "rich>=13.7",
#   "websocket-client>=1.8",
#   "jeepney>=0.9; sys_platform == 'linux'",
# ]
# ///
"""agent_solo: one file that sees your screen, works your applications, calls your tools, and proves what it did.

    python3 agent_solo.py setup --yes                 a private environment; nothing global but named system packages
    python3 agent_solo.py demo                        no key needed: a real window, real clicks, real proof
    python3 agent_solo.py --task "..." --model NAME   the job
    python3 agent_solo.py doctor                      what works on this machine, and how to mend the rest
    python3 agent_solo.py parse < reply.json          what the parser makes of a model's reply
    python3 agent_solo.py guide                       how to use it, in this file's own version

HOW ONE STEP FLOWS (Session.step is these six lines)

    observe -> Snapshot            what all channels saw at one instant     11 12 13
    decide  -> Decision            what the model wants, and why            15
    guard   -> Permit | Refusal    what the rules and the person allow      8
    act     -> Receipt             what was really delivered                11 12 13 14
    verify  -> Change              what became different                    7
    record  -> Step                one line on disk before the next step    16

WHAT THIS FILE CAN DO TO YOUR MACHINE (the power, the chapters that hold it, what for)

    pyautogui            10        moves the pointer, presses keys; only for a Permit made in chapter 8
    Xlib                 10        asks X11 about windows, types text
    ctypes               10        asks Windows about windows and DPI, types text
    AppKit, Quartz       10        asks macOS about windows and permissions, types text
    mss, PIL             11        takes a picture of the screen and shrinks it
    jeepney              12        reads the accessibility tree over D-Bus
    websocket            13        talks to an application's debugging port on this machine
    requests             13 14 15  finds that port; calls the MCP servers you named; looks for a model here
    openai               15        sends task, pictures and lists to the model's server you named
    subprocess, signal   10 14 19  starts the applications asked for, MCP servers you named, the set-up
    http.server          20        serves the demo's scripted model on this machine
    tkinter              20        shows the demo's order desk
    rich                 18        prints
    open, os             16 19     writes the run's folder and its own home, ~/.agent_solo

tests/test_architecture.py reads this table: what it does not name, this file does not import.

CONTENTS

    I.   Words      1. Errors  2. Nouns  3. Contracts
    II.  Rules      4. Geometry  5. Vocabulary  6. Elements  7. Changes  8. Guards  9. Prompts
    III. Machine   10. Host  11. Pixels  12. Tree  13. Pages  14. Tools
    IV.  Mind      15. Model
    V.   Run       16. Journal  17. Session  18. Report
    VI.  Surface   19. Setup  20. Demo  21. Commands  22. Main

Read down: nothing names anything that is defined below it.
"""

from __future__ import annotations

import sys

if sys.version_info < (3, 10):
    sys.exit("agent_solo needs Python 3.10 or newer; this is %d.%d." % sys.version_info[:2])

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol

__version__ = "0.1.0"

# ==============================================================================
# 1. Errors: what can go wrong, and who reads about it
# ==============================================================================
#
#   SoloError
#     StopRun           ends the run; the person reads it; caught once, in main
#       Usage 2   MissingPart 3   ModelUnusable 4   PersonNeeded 5   Interrupted 130
#       GaveUp 1   Stuck 1   LimitReached 1   Invalid 1
#     TellModel         ends one action; the model reads it; caught once, in Session.act


class SoloError(Exception):
    """Anything this file raises on purpose: a plain sentence and a next move."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence, self.hint = sentence, hint


class StopRun(SoloError):
    """Ends the run with `status`, the program's exit status."""

    code: ClassVar[str] = "stopped"
    status: ClassVar[int] = 1


class Usage(StopRun):
    """The command line, a file it names or a setting is wrong."""

    code, status = "usage", 2


class MissingPart(StopRun):
    """A library, program, display or permission is not here; the hint says how to get it."""

    code, status = "missing_part", 3


class ModelUnusable(StopRun):
    """The model's server refused for good: key, quota, name, or it cannot see pictures."""

    code, status = "model_unusable", 4


class PersonNeeded(StopRun):
    """Only a person could have answered, and nobody could be asked."""

    code, status = "person_needed", 5


class Interrupted(StopRun):
    """The person took the machine back: Ctrl-C, a signal, or the pointer in a screen corner."""

    code, status = "interrupted", 130


class GaveUp(StopRun):
    """The model said that it cannot do the task."""

    code = "gave_up"


class Stuck(StopRun):
    """The same act on the same screen, again and again, after having been told."""

    code = "stuck"


class LimitReached(StopRun):
    """Steps, minutes, tokens or money would have run over; nothing was spent past the limit."""

    code = "limit_reached"


class Invalid(StopRun):
    """The result never fitted the schema the person asked for."""

    code = "invalid_result"


class TellModel(SoloError):
    """Ends one action and becomes its Receipt. `code` is one of CODES; `delivery` one of RETRY."""

    def __init__(
        self, code: str, sentence: str, hint: str = "", *, delivery: str = "not_delivered", **details: Any
    ) -> None:
        super().__init__(sentence, hint)
        self.code, self.delivery, self.details = code, delivery, details


CODES = {
    "INVALID_ARGS": "the action's fields do not fit",
    "POLICY_DENIED": "a guard or the person said no",
    "ELEMENT_NOT_FOUND": "no such element in that snapshot",
    "STALE_REF": "the element is gone",
    "AMBIGUOUS_TARGET": "several elements fit equally well",
    "APP_NOT_FOUND": "no such application",
    "WINDOW_NOT_FOUND": "no such window",
    "ACTION_FAILED": "the machine refused, or reading back disproved the effect",
    "ACTION_NOT_SUPPORTED": "the target cannot do that",
    "PLATFORM_NOT_SUPPORTED": "this system cannot do that",
    "APP_UNRESPONSIVE": "the application does not answer",
    "TOOL_FAILED": "a tool answered with an error",
    "TIMEOUT": "it took too long",
    "INTERNAL": "a fault of this program",
}

# What a Receipt's delivery says about doing it again.
RETRY = {
    "not_delivered": "safe",
    "unknown": "unknown",
    "delivery_uncertain": "unsafe",
    "delivered_unverified": "unsafe",
    "delivered_verified": "unsafe",
}


# ==============================================================================
# 2. Nouns: the values that flow through one step, in the order in which they flow
# ==============================================================================

Json = Any
Ref = str  # "e12": the letter is the channel: e accessible element, w web page, o text read from pixels


@dataclass(frozen=True, slots=True, kw_only=True)
class ShotPoint:
    """A point in the image the model saw, in pixels of the image as sent; (0, 0) is top left."""

    x: float
    y: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenPoint:
    """A point in the units the pointer moves by, on the whole desktop; may be negative."""

    x: int
    y: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle on the whole desktop, in pointer units; right and bottom edges are outside."""

    x: int
    y: int
    width: int
    height: int

    def contains(self, point: ScreenPoint) -> bool:
        """True if the point lies inside."""
        return self.x <= point.x < self.x + self.width and self.y <= point.y < self.y + self.height

    @property
    def centre(self) -> ScreenPoint:
        """The middle, rounded down."""
        return ScreenPoint(x=self.x + self.width // 2, y=self.y + self.height // 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """How a model writes coordinates: the unit (px, 1000, 999, 1, percent) and the order of pairs (xy, yx)."""

    unit: str = "px"
    order: str = "xy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """How an image lies on the screen: `width` x `height` pixels sent, showing `area`."""

    width: int
    height: int
    area: Box


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An encoded image: "image/jpeg" or "image/png"."""

    data: bytes = field(repr=False)
    mime: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One look at the screen. `digest` is of the full-size pixels; `cells` a grey thumbnail, row by row."""

    shot: Shot
    picture: Picture
    digest: int
    cells: bytes = field(repr=False)
    columns: int  # cells in one row


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """One window. `own`: shows this very program; `launched`: the agent started its application."""

    id: str
    title: str
    app: str
    pid: int
    box: Box
    focused: bool = False
    popup: bool = False  # a menu or tooltip, outside the window manager's care
    own: bool = False
    launched: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One thing on screen that can be named. `native` is the channel's own address of it."""

    ref: Ref
    role: str
    name: str
    value: str = ""
    states: tuple[str, ...] = ()
    box: Box | None = None
    window: str = ""  # Window.id
    native: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What one channel saw. `notes` are sentences for the model, such as a channel that did not answer."""

    frame: Frame | None = None
    windows: tuple[Window, ...] = ()  # topmost first
    elements: tuple[Element, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All that was known at one instant; `id` names it in refs, such as @s8f3k2p9:e12."""

    id: str
    time: float
    frame: Frame | None = None
    windows: tuple[Window, ...] = ()
    elements: tuple[Element, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do. `to` is a drag's end or a zoom's other corner; `parameter` is never stripped."""

    verb: str
    ref: Ref = ""
    snapshot: str = ""
    point: ShotPoint | None = None
    to: ShotPoint | None = None
    parameter: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A reply that is no action. It takes the normal path and is refused there."""

    code: str
    message: str
    raw: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What asking cost: tokens, US dollars, seconds, and calls to the server."""

    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    calls: int = 0

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            tokens_in=self.tokens_in + other.tokens_in,
            tokens_out=self.tokens_out + other.tokens_out,
            cost=self.cost + other.cost,
            seconds=self.seconds + other.seconds,
            calls=self.calls + other.calls,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the model wants, why, and what it expects to see. `note` is for the person and the next turn."""

    action: Action | Unreadable
    reasoning: str = ""
    expect: str = ""
    note: str = ""
    used: Spent = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Permit:
    """An action the guards let through: made only in chapter 8, and all that a channel accepts.

    `aim` and `end` are where the pointer will go; `window` is the window judged there (for keys: the
    focused one). A channel looks again before it acts, and stops if another window is there now.
    """

    action: Action
    aim: ScreenPoint | None = None
    end: ScreenPoint | None = None
    window: Window | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An action that only the person can let through: what it is, where, and why it is asked."""

    permit: Permit
    what: str
    where: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An action the guards stopped. `counts` is False when the repeat detector must not count it."""

    action: Action | Unreadable
    code: str
    message: str
    hint: str = ""
    fatal: str = ""  # "person_needed" ends the run


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What was really done. `delivery` is a key of RETRY; `mechanism` how: physical, semantic, page, tool, host."""

    command: str
    ok: bool
    delivery: str
    mechanism: str = ""
    message: str = ""
    code: str = ""
    hint: str = ""
    data: Mapping[str, Json] = field(default_factory=dict)
    pictures: tuple[Picture, ...] = ()

    def envelope(self) -> dict[str, Json]:
        """The one JSON shape every act answers in: version, ok, command, then data or error."""
        disposition = {"delivery": self.delivery, "retry": RETRY[self.delivery]}
        head = {"version": "1.0", "ok": self.ok, "command": self.command}
        if self.ok:
            data = {"message": self.message, "mechanism": self.mechanism, **self.data}
            return {**head, "data": {**data, "disposition": disposition}}
        error: dict[str, Json] = {"code": self.code, "message": self.message, "disposition": disposition}
        error |= {"suggestion": self.hint} if self.hint else {}
        error |= {"details": dict(self.data)} if self.data else {}
        return {**head, "error": error}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What became different between two snapshots. `box` is where, on the screen; `text` is for the model."""

    moved: bool
    text: str
    box: Box | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One turn of the loop, whole."""

    number: int
    before: Snapshot
    decision: Decision
    verdict: Permit | Refusal
    receipt: Receipt
    after: Snapshot
    change: Change
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the person wants: words, and if asked for, the JSON schema the result must fit."""

    text: str
    schema: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended: `word` is "done" or a StopRun's code; `status` the exit status."""

    word: str
    status: int
    message: str
    result: Json = None
    steps: tuple[Step, ...] = ()
    used: Spent = Spent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool of one MCP server, under the name the model uses; `hints` are the server's annotations."""

    name: str
    server: str
    original: str
    description: str
    schema: Mapping[str, Json]
    hints: Mapping[str, Json] = field(default_factory=dict)


# ==============================================================================
# 3. Contracts: the sockets that the outside world, or a test, plugs into
# ==============================================================================


class Channel(Protocol):
    """A way to see and to touch: pixels, the accessibility tree, web pages, or tools."""

    def look(self, *, acted: bool) -> Sight:
        """See, and change nothing; `acted`: something was just done, so let the screen settle first."""

    def act(self, permit: Permit, seen: Snapshot) -> Receipt:
        """Touch, once. Raises TellModel."""

    def close(self) -> None:
        """Let go of everything held."""


class Model(Protocol):
    """Whatever turns a task, the steps so far and a snapshot into a decision."""

    def decide(self, task: Task, steps: Sequence[Step], now: Snapshot, note: str) -> Decision:
        """Ask; `note` is a sentence from the guards for the model. Raises StopRun."""


class Person(Protocol):
    """Whoever sits in front of the machine."""

    def allows(self, question: Question) -> bool:
        """Put a yes-or-no question. Raises PersonNeeded if nobody can be asked."""

    def answers(self, question: str) -> str:
        """Put an open question. Raises PersonNeeded if nobody can be asked."""


class Clock(Protocol):
    """Time, so that tests need not wait."""

    def now(self) -> float:
        """Seconds that only grow."""

    def sleep(self, seconds: float) -> None:
        """Let them pass. Raises Interrupted at once when the person stops the run."""


class Host(Protocol):
    """What differs between operating systems: screens, windows, the pointer, the keyboard."""

    name: str

    def open(self) -> None:
        """Connect; make pointer units equal screen units. First call of all. Raises MissingPart."""

    def monitors(self) -> tuple[Box, ...]:
        """Every monitor; the primary one first."""

    def windows(self) -> tuple[Window, ...]:
        """Every visible window, topmost first, menus included."""

    def window_at(self, point: ScreenPoint) -> Window | None:
        """The window that would get a click there, now; None for the bare desktop."""

    def focus(self, window: Window) -> None:
        """Give a window the keyboard and see that it has it. Raises TellModel."""

    def launch(self, command: str) -> str:
        """Start an application by command, program or name; say what was started. Raises TellModel."""

    def pointer(self) -> ScreenPoint:
        """Where the pointer is. Safe to call from any thread."""

    def move(self, point: ScreenPoint) -> None:
        """Put the pointer there."""

    def button(self, name: str, *, down: bool) -> None:
        """Press or let go of a mouse button: left, middle, right, back, forward."""

    def scroll(self, *, right: int, down: int) -> None:
        """Turn the wheel by notches; down and right are positive on every system."""

    def key(self, name: str, *, down: bool) -> None:
        """Press or let go of a key by its canonical name (see KEYS)."""

    def type(self, text: str) -> None:
        """Enter text exactly, whatever it is, into whatever has the keyboard."""

    def release(self) -> None:
        """Let go of every key and button this program, or a killed one before it, still holds."""

    def close(self) -> None:
        """Release, and disconnect."""


class Watcher(Protocol):
    """Whoever watches a run: a terminal, a file, nobody."""

    def note(self, text: str) -> None:
        """Say something between steps, such as that a server asked to wait."""

    def step(self, step: Step) -> None:
        """Show a finished step."""


# ==============================================================================
# 4. Geometry: the only place where a coordinate changes its meaning
# ==============================================================================

# How many units a space counts across the whole image; px counts the image's own pixels.
SPANS: dict[str, int | None] = {"px": None, "1000": 1000, "999": 999, "1": 1, "percent": 100}


def fit(width: int, height: int, *, most: tuple[int, int] = (1344, 756)) -> tuple[int, int]:
    """The size to send a picture in, never an enlargement.

    Multiples of 28 up to 1344 x 756 (upright: 756 x 1344) pass unchanged through the tile and patch rules of
    all large services. A picture that a server shrinks without saying so makes every click land short.
    """
    across, down = most if width >= height else most[::-1]
    scale = min(1.0, across / width, down / height)
    # 1e-6, because 1080 * 0.7 is 755.99... in floating point
    cut = [max(28, int(side * scale + 1e-6) // 28 * 28) for side in (width, height)]
    return min(width, cut[0]), min(height, cut[1])


def to_screen(point: ShotPoint, shot: Shot) -> ScreenPoint:
    """Where the pointer goes for a pixel of the image: its centre, kept inside the area shown."""
    area = shot.area
    x = int((point.x + 0.5) * area.width / shot.width)
    y = int((point.y + 0.5) * area.height / shot.height)
    return ScreenPoint(x=area.x + max(0, min(x, area.width - 1)), y=area.y + max(0, min(y, area.height - 1)))


def to_shot(point: ScreenPoint, shot: Shot) -> ShotPoint:
    """Where a point of the screen lies in the image; to_screen takes it back exactly."""
    area = shot.area
    return ShotPoint(
        x=(point.x - area.x + 0.5) * shot.width / area.width - 0.5,
        y=(point.y - area.y + 0.5) * shot.height / area.height - 0.5,
    )


def from_space(x: float, y: float, *, space: Space, width: int, height: int) -> ShotPoint:
    """A model's numbers as pixels of an image of this size; ranges are the parser's business."""
    across = SPANS[space.unit]
    # models that count in fractions answer in pixels now and then (Kimi): no fraction is above 1
    if across is None or (across == 1 and max(x, y) > 1):
        return ShotPoint(x=x, y=y)
    return ShotPoint(x=x / across * width, y=y / across * height)


def space_sentence(space: Space, *, width: int, height: int) -> str:
    """What the model is told about coordinates."""
    across = SPANS[space.unit]
    pairs = " In a pair, y comes first." if space.order == "yx" else ""
    if across is None:
        ends = f"x 0 to {width - 1} and y 0 to {height - 1}"
        return f"x and y are pixels of the image, counted from its top left corner: {ends}.{pairs}"
    unit = "fractions of the image" if across == 1 else "relative to the image"
    return f"x and y are {unit}: x 0 (left edge) to {across} (right), y 0 (top) to {across} (bottom).{pairs}"


def parse_space(text: str) -> Space:
    """A space as the command line writes it: px, 1000, 999, 1 or percent; ",yx" for y first. Raises Usage."""
    unit, _, order = text.replace(" ", "").lower().partition(",")
    unit = "percent" if unit in ("%", "100") else unit
    if unit not in SPANS or order not in ("", "xy", "yx"):
        raise Usage(f"--coords takes {', '.join(SPANS)}, and ,yx behind it where y comes first; not {text!r}")
    return Space(unit=unit, order=order or "xy")


def clip(box: Box, to: Box) -> Box | None:
    """The part of a box that lies in another; None if there is none."""
    left, top = max(box.x, to.x), max(box.y, to.y)
    width = min(box.x + box.width, to.x + to.width) - left
    height = min(box.y + box.height, to.y + to.height) - top
    return Box(x=left, y=top, width=width, height=height) if width > 0 and height > 0 else None


def around(boxes: Sequence[Box]) -> Box:
    """The smallest box that holds them all."""
    left, top = min(box.x for box in boxes), min(box.y for box in boxes)
    right, bottom = max(box.x + box.width for box in boxes), max(box.y + box.height for box in boxes)
    return Box(x=left, y=top, width=right - left, height=bottom - top)


def _beside(box: Box, hole: Box | None) -> list[Box]:
    if hole is None:
        return [box]
    right, bottom = hole.x + hole.width, hole.y + hole.height
    pieces = (
        Box(x=box.x, y=box.y, width=box.width, height=hole.y - box.y),
        Box(x=box.x, y=bottom, width=box.width, height=box.y + box.height - bottom),
        Box(x=box.x, y=hole.y, width=hole.x - box.x, height=hole.height),
        Box(x=right, y=hole.y, width=box.x + box.width - right, height=hole.height),
    )
    return [piece for piece in pieces if piece.width and piece.height]


def uncovered(box: Box, covers: Sequence[Box]) -> list[Box]:
    """The parts of a box that no cover hides."""
    parts = [box]
    for cover in covers:
        parts = [piece for part in parts for piece in _beside(part, clip(cover, part))]
    return parts


def off_corner(point: ScreenPoint, monitors: Sequence[Box]) -> ScreenPoint:
    """The point, or its neighbour if it is the very corner of a monitor: the person's stop signal."""
    for box in monitors:
        inward_x = {box.x: 1, box.x + box.width - 1: -1}.get(point.x)
        inward_y = {box.y: 1, box.y + box.height - 1: -1}.get(point.y)
        if inward_x and inward_y:
            return ScreenPoint(x=point.x + inward_x, y=point.y + inward_y)
    return point


def span(box: Box, shot: Shot) -> str:
    """A box in words, in pixels of the image: "x 320-760, y 90-300"."""
    across, down = shot.width / shot.area.width, shot.height / shot.area.height
    left, right = (round((x - shot.area.x) * across) for x in (box.x, box.x + box.width))
    top, bottom = (round((y - shot.area.y) * down) for y in (box.y, box.y + box.height))
    return f"x {left}-{right}, y {top}-{bottom}"


# ==============================================================================
# 5. Vocabulary: one table of verbs; the parser, the prompt, the schema and the guide are made from it
# ==============================================================================


# ==============================================================================
# 6. Elements: named things in reading order, numbered for the whole run
# ==============================================================================

# What a person could press, tick, fill or choose. Where room is short these come before texts and pictures.
INTERACTIVE = frozenset(
    re.split(
        ", ",
        "button, calendar, cell, check box, check menu item, clickable, colour button, column header, "
        "combo box, date field, dial, file field, icon, link, list item, menu, menu item, option, page, "
        "password field, radio button, radio menu item, row header, search field, slider, spin button, "
        "switch, tab, terminal, text field, toggle button, tree item",
    )
)
# Roles whose name often only repeats their value of the moment, and so says nothing about who they are.
MIRRORS = frozenset({"combo box", "page", "progress bar", "text"})
# A verb that switches: which state, on or off, and the roles that have it ("": any role).
SWITCHES = {
    "check": ("checked", True, "check box,check menu item,radio button,radio menu item,switch,toggle button"),
    "uncheck": ("checked", False, "check box,check menu item,switch,toggle button"),
    "select": ("selected", True, "cell,icon,list item,option,tab,tree item"),
    "expand": ("expanded", True, "combo box,menu"),
    "collapse": ("expanded", False, "combo box,menu"),
    "focus": ("focused", True, ""),
}


def identity(element: Element) -> tuple[str, ...]:
    """What makes an element the same one as before: the channel and its address of it, role, name, window."""
    name = "" if element.role in MIRRORS else element.name
    return element.ref[:1], *element.native, element.role, name, element.window


def ordered(elements: Iterable[Element]) -> Iterator[Element]:
    """Reading order: windows as they came; in each, lines from top to bottom and from left to right."""
    windows: dict[str, list[Element]] = {}
    for element in elements:
        windows.setdefault(element.window, []).append(element)
    for group in windows.values():
        yield from (element for element in group if not element.box)
        for line in _lines([(element.box, element) for element in group if element.box]):
            yield from (element for _, element in sorted(line, key=lambda pair: pair[0].x))


def _lines(boxed: Iterable[tuple[Box, Element]]) -> list[list[tuple[Box, Element]]]:
    """Two stand in one line if their middles are near each other and neither is many times as tall."""
    lines: list[list[tuple[Box, Element]]] = []
    for box, element in sorted(boxed, key=lambda pair: (pair[0].y, pair[0].x)):
        first = lines[-1][0][0] if lines else box
        low, high = sorted((first.height, box.height))
        if lines and 2 * abs(first.centre.y - box.centre.y) < high <= 3 * low:
            lines[-1].append((box, element))
        else:
            lines.append([(box, element)])
    return lines


class Numbers:
    """Gives refs that stay with their elements through a run; a number is never given to another element."""

    def __init__(self) -> None:
        self._given: dict[tuple[tuple[str, ...], int], Ref] = {}
        self._last: dict[str, int] = {}

    def number(self, elements: Iterable[Element]) -> tuple[Element, ...]:
        """The elements in reading order, each with its ref; they come with the channel's letter for a ref."""
        met: dict[tuple[str, ...], int] = {}
        numbered = []
        for element in ordered(elements):
            who = identity(element)
            met[who] = met.get(who, 0) + 1  # two that cannot be told apart still get two numbers
            ref = self._given.get((who, met[who])) or self._next(element.ref[:1])
            self._given[who, met[who]] = ref
            numbered.append(replace(element, ref=ref))
        return tuple(numbered)

    def _next(self, letter: str) -> Ref:
        self._last[letter] = self._last.get(letter, 0) + 1
        return f"{letter}{self._last[letter]}"


def find(elements: Iterable[Element], ref: Ref) -> Element | None:
    """The element of that ref."""
    return next((element for element in elements if element.ref == ref), None)


def quoted(text: str, most: int = 80) -> str:
    """Text from the screen as one JSON string, so that it can neither end its line nor fake one."""
    text, more = (text[:most], "…") if len(text) > most else (text, "")
    joiners = "\u200c\u200d"  # not printable, yet a part of ordinary words and of emoji
    whole = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() or c in joiners else json.dumps(c)[1:-1] for c in whole) + more


def described(element: Element) -> str:
    """One element in one line: e12 text field "Name" = "what it holds" [disabled]."""
    name = f" {quoted(element.name)}" if element.name else ""
    value = f" = {quoted(element.value)}" if element.value else ""
    states = f" [{', '.join(element.states)}]" if element.states else ""
    return f"{element.ref} {element.role}{name}{value}{states}"


def listing(elements: Sequence[Element], windows: Sequence[Window], *, limit: int = 150) -> str:
    """The elements line by line under their windows' titles; those left out are counted."""
    ranked = sorted(elements, key=lambda element: element.role not in INTERACTIVE)
    kept, left = {element.ref for element in ranked[:limit]}, ranked[limit:]
    titles = {window.id: f"in window {quoted(window.title)}:" for window in windows}
    lines, current = [], ""
    for element in elements:
        if element.ref not in kept:
            continue
        if element.window != current and element.window in titles:
            lines.append(titles[element.window])
        lines.append(described(element))
        current = element.window
    useful = sum(element.role in INTERACTIVE for element in left)
    lines += [f"({len(left)} more are left out; {useful} of them can be acted on)"] if left else []
    return "\n".join(lines)


def read_back(receipt: Receipt, true: Callable[[], bool], clock: Clock) -> Receipt:
    """Verified once reading back says so, within a second. Raises TellModel if it says otherwise."""
    until = clock.now() + 1
    while True:
        try:
            if true():
                return replace(receipt, delivery="delivered_verified")
        except TellModel:  # nothing to read any more: it closed with its dialog, perhaps
            return receipt
        if clock.now() >= until:
            sentence = f"{receipt.message}; but read back, it is not so"
            raise TellModel("ACTION_FAILED", sentence, "look what it did", delivery=receipt.delivery)
        clock.sleep(0.05)


# ==============================================================================
# 7. Changes: did anything happen, and where?
# ==============================================================================

SPECK = 8  # cells: a caret, or the digits of a clock, never touch more


def _quoted(text: str) -> str:
    """A program's own words, on one line, short, and marked as such."""
    return json.dumps(text if len(text) <= 60 else text[:59] + "…", ensure_ascii=False)


def called(window: Window | None) -> str:
    """A window's name for the model."""
    if window is None:
        return "the bare desktop"
    return (
        f"a menu or tooltip of {_quoted(window.app)}" if window.popup else f"window {_quoted(window.title)}"
    )


def _differing(a: Frame, b: Frame) -> list[tuple[int, int]]:
    """Column and row of each cell that differs."""
    pairs = enumerate(zip(a.cells, b.cells, strict=True))
    return [(number % a.columns, number // a.columns) for number, (old, new) in pairs if old != new]


def alike(a: Frame | None, b: Frame | None) -> bool:
    """The same screen, but for a difference no larger than a caret or the digits of a clock."""
    if a is None or b is None or a.shot != b.shot:
        return a is b
    return a.digest == b.digest or len(_differing(a, b)) <= SPECK


def _bunches(cells: list[tuple[int, int]], *, axis: int) -> list[list[tuple[int, int]]]:
    """Groups along an axis, cut wherever two or more rows (or columns) in between stayed as they were."""
    groups: list[list[tuple[int, int]]] = []
    for cell in sorted(cells, key=lambda cell: cell[axis]):
        if not groups or cell[axis] - groups[-1][-1][axis] > 2:
            groups.append([])
        groups[-1].append(cell)
    return groups


def _box(cells: list[tuple[int, int]], frame: Frame) -> Box:
    area, columns, rows = frame.shot.area, frame.columns, len(frame.cells) // frame.columns
    across, down = [x for x, _ in cells], [y for _, y in cells]
    left, right = (area.x + edge * area.width // columns for edge in (min(across), max(across) + 1))
    top, bottom = (area.y + edge * area.height // rows for edge in (min(down), max(down) + 1))
    return Box(x=left, y=top, width=right - left, height=bottom - top)


def _changed(a: Frame | None, b: Frame | None) -> list[Box]:
    """Where the frames differ, on the screen: one box for each bunch of cells, the largest first."""
    if a is None or b is None:
        return []
    if a.shot != b.shot:
        return [b.shot.area]
    bands = _bunches(_differing(a, b), axis=1)
    boxes = [_box(bunch, b) for band in bands for bunch in _bunches(band, axis=0)]
    return sorted(boxes, key=lambda box: -box.width * box.height)


def _screen_told(boxes: list[Box], a: Frame | None, b: Frame | None) -> list[str]:
    if not boxes or a is None or b is None:
        return []
    if a.shot != b.shot:
        return ["the screen itself has another size or place"]
    if alike(a, b):
        return [f"only a spot changed, at {span(boxes[0], b.shot)} of the image, such as a caret or a clock"]
    area = b.shot.area
    if sum(box.width * box.height for box in boxes) > 0.8 * area.width * area.height:
        return ["nearly the whole screen changed"]
    regions = " and ".join(span(box, b.shot) for box in boxes[:3])
    more = f" and {len(boxes) - 3} smaller ones" if boxes[3:] else ""
    return [f"the screen changed in the region{'s' if boxes[1:] else ''} {regions}{more} of the image"]


def _windows_told(before: Sequence[Window], after: Sequence[Window]) -> list[str]:
    """Windows opened, closed, renamed, moved, focused; this program's own terminal does not count."""
    old, new = ({window.id: window for window in windows if not window.own} for windows in (before, after))
    told = [f"{called(new[key])} opened" for key in new if key not in old]
    told += [f"{called(old[key])} closed" for key in old if key not in new]
    both = [(old[key], new[key]) for key in old if key in new]
    told += [f"{called(a)} is now called {_quoted(b.title)}" for a, b in both if a.title != b.title]
    told += [f"{called(b)} moved or changed its size" for a, b in both if a.box != b.box]
    was, now = (next((key for key in windows if windows[key].focused), "") for windows in (old, new))
    if now != was:
        told.append(f"the focus moved to {called(new[now])}" if now else "no window has the focus")
    return told


def _elements_told(before: Sequence[Element], after: Sequence[Element]) -> list[str]:
    """Elements that are still there, and hold or are something else now."""
    old, told = {element.ref: element for element in before}, []
    for new in after:
        was = old.get(new.ref, new)
        now = [f"is {state}" for state in new.states if state not in was.states]
        now += [f"is no longer {state}" for state in was.states if state not in new.states]
        now += [f"holds {_quoted(new.value)}"] if new.value != was.value else []
        now += [f"is called {_quoted(new.name)}"] if new.name != was.name else []
        if now:
            told.append(f"element {new.ref} {_quoted(was.name)} now {' and '.join(now)}")
    return told


def compare(before: Snapshot, after: Snapshot) -> Change:
    """What became different, in a few clauses for the model."""
    boxes = _changed(before.frame, after.frame)
    told = _screen_told(boxes, before.frame, after.frame)
    told += _windows_told(before.windows, after.windows)
    told += _elements_told(before.elements, after.elements)
    if not told:
        return Change(moved=False, text="Nothing visible changed.")
    text = "; ".join(told[:8]) + (f"; and {len(told) - 8} more." if told[8:] else ".")
    return Change(moved=True, text=text[0].upper() + text[1:], box=around(boxes) if boxes else None)


# ==============================================================================
# 8. Guards: what is refused, what is asked, what is let through; the only maker of Permits
# ==============================================================================


# ==============================================================================
# 9. Prompts: every word the model is told, apart from what the screen says
# ==============================================================================


# ==============================================================================
# 10. Host: what differs between operating systems, and nothing else
# ==============================================================================


# ==============================================================================
# 11. Pixels: the screen as an image, the pointer and the keyboard as hands
# ==============================================================================


# ==============================================================================
# 12. Tree: the accessibility tree of the applications
# ==============================================================================


# ==============================================================================
# 13. Pages: Electron and Chromium applications, through their debugging port
# ==============================================================================


# ==============================================================================
# 14. Tools: MCP servers: JSON-RPC over a child's pipes or HTTP
# ==============================================================================


# ==============================================================================
# 15. Model: one question to the model's server, one decision
# ==============================================================================


# ==============================================================================
# 16. Journal: everything that happened, on disk before the next step
# ==============================================================================


# ==============================================================================
# 17. Session: observe, decide, guard, act, verify, record
# ==============================================================================


# ==============================================================================
# 18. Report: what a person reads while it runs
# ==============================================================================


# ==============================================================================
# 19. Setup: the private environment, and what works on this machine
# ==============================================================================


# ==============================================================================
# 20. Demo: an order desk, a scripted model and a tool server, all real
# ==============================================================================


# ==============================================================================
# 21. Commands: the command line; the only place that prints or reads the environment
# ==============================================================================


# ==============================================================================
# 22. Main: parse, run, and turn StopRun into a sentence and an exit status
# ==============================================================================


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    return 0


if __name__ == "__main__":
    sys.exit(main())
