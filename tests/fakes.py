"""Fakes of the contracts of chapter 3. They go in through constructors; nothing is patched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agent_solo import (
    Action,
    Box,
    Decision,
    Frame,
    Interrupted,
    Permit,
    PersonNeeded,
    Picture,
    Question,
    Receipt,
    ScreenPoint,
    Shot,
    Sight,
    Snapshot,
    Spent,
    Step,
    Task,
    TellModel,
    Unreadable,
    Window,
)

DESK = Window(
    id="w1",
    title="Order desk",
    app="desk",
    pid=10,
    box=Box(x=100, y=100, width=800, height=600),
    focused=True,
)
OTHER = Window(id="w2", title="Bank", app="bank", pid=20, box=Box(x=0, y=0, width=1920, height=1080))


class FakeClock:
    """Time that passes only by sleeping. `stop_after` sleeps, the person stops the run."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.time, self.slept, self.stop_after = 0.0, [], stop_after

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
        if self.stop_after is not None and len(self.slept) >= self.stop_after:
            raise Interrupted("stopped")

    def check(self) -> None:
        """Never stopped."""


class FakeHost:
    """A desktop of windows, topmost first, that writes down what is done to it."""

    name = "fake"

    def __init__(self, *windows: Window) -> None:
        self.away: list[Window] = []
        self.stack, self.done, self.at = list(windows or (DESK, OTHER)), [], ScreenPoint(x=500, y=500)

    def open(self) -> None: ...
    def claim(self) -> None: ...
    def close(self) -> None:
        self.done.append(("close",))

    def monitors(self) -> tuple[Box, ...]:
        return (Box(x=0, y=0, width=1920, height=1080),)

    def windows(self) -> tuple[Window, ...]:
        return tuple(self.stack)

    def hidden(self) -> tuple[Window, ...]:
        return tuple(self.away)

    def arrange(self, window: Window, how: str, *, box: Box | None = None) -> None:
        self.done.append((how, window.id))
        at = [w.id for w in self.stack].index(window.id) if window in self.stack else -1
        if how == "place" and box:
            self.stack[at] = replace(window, box=box)
        if how in ("minimize", "close"):
            self.stack.remove(window)
        if how == "minimize":
            self.away.append(window)
        if how == "restore" and window in self.away:
            self.away.remove(window)
            self.stack.insert(0, window)

    def end(self, pid: int) -> str:
        self.done.append(("end", pid))
        return "forced"

    def birth(self, pid: int) -> str:
        return f"b{pid}"

    def window_at(self, point: ScreenPoint) -> Window | None:
        return next((w for w in self.stack if w.box.contains(point)), None)

    def focus(self, window: Window) -> None:
        if window.id not in {w.id for w in self.stack}:
            raise TellModel("WINDOW_NOT_FOUND", f"{window.title!r} is gone")
        self.done.append(("focus", window.title))

    def launch(self, command: str) -> str:
        self.done.append(("launch", command))
        return f"started {command}"

    def pointer(self) -> ScreenPoint:
        return self.at

    def move(self, point: ScreenPoint) -> None:
        self.at = point
        self.done.append(("move", point.x, point.y))

    def button(self, name: str, *, down: bool) -> None:
        self.done.append(("button", name, down))

    def scroll(self, *, right: int, down: int) -> None:
        self.done.append(("scroll", right, down))

    def key(self, name: str, *, down: bool) -> None:
        self.done.append(("key", name, down))

    def poke(self, window: Window, point: ScreenPoint, *, button: str, times: int) -> None:
        self.done.append(("poke", window.id, point.x, point.y, button, times))

    def type(self, text: str) -> None:
        self.done.append(("type", text))

    def release(self) -> None:
        self.done.append(("release",))


class FakeWatcher:
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.steps: list[Step] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: Step) -> None:
        self.steps.append(step)


class FakePerson:
    """Answers from a list; with none left, nobody is there."""

    def __init__(self, *answers: bool | str) -> None:
        self.left, self.asked = list(answers), []

    def _next(self, question: object) -> bool | str:
        self.asked.append(question)
        if not self.left:
            raise PersonNeeded("nobody is there")
        return self.left.pop(0)

    def allows(self, question: Question) -> bool:
        return bool(self._next(question))

    def answers(self, question: str) -> str:
        return str(self._next(question))


class Script:
    """A model that plays a list of actions, and remembers what it was told."""

    def __init__(self, actions: Iterable[Action | Unreadable]) -> None:
        self.left, self.notes, self.told = list(actions), [], []

    def decide(self, task: Task, steps: Sequence[Step], now: Snapshot, note: str) -> Decision:
        self.notes.append(note)
        self.told.append(steps[-1].receipt if steps else None)
        action = self.left.pop(0) if self.left else Action(verb="fail", parameter="the script has ended")
        return Decision(
            action=action, reasoning="as the script says", used=Spent(tokens_in=10, tokens_out=5, calls=1)
        )


class FakeChannel:
    """Shows frames one after the other and says that it did what it was told; `raises` instead, once each."""

    def __init__(
        self, *frames: Frame, windows: Sequence[Window] = (DESK, OTHER), raises: Sequence[TellModel] = ()
    ) -> None:
        self.frames, self.windows, self.raises = list(frames), tuple(windows), list(raises)
        self.looks: list[bool] = []
        self.permits: list[Permit] = []

    def look(self, *, acted: bool) -> Sight:
        self.looks.append(acted)
        frame = self.frames.pop(0) if len(self.frames) > 1 else (self.frames[0] if self.frames else None)
        return Sight(frame=frame, windows=self.windows)

    def act(self, permit: Permit, seen: Snapshot) -> Receipt:
        self.permits.append(permit)
        if self.raises:
            raise self.raises.pop(0)
        return Receipt(
            command=permit.action.verb, ok=True, delivery="delivered_unverified", mechanism="physical"
        )

    def close(self) -> None: ...


def frame(digest: int = 1, *, width: int = 1344, height: int = 756) -> Frame:
    """A frame of a 1920x1080 screen; two digests are two different screens."""
    shot = Shot(width=width, height=height, area=Box(x=0, y=0, width=1920, height=1080))
    cells = bytes((digest * 37 + i) % 256 for i in range(48 * 27))
    return Frame(
        shot=shot,
        picture=Picture(data=b"jpeg%d" % digest, mime="image/jpeg"),
        digest=digest,
        cells=cells,
        columns=48,
    )
