"""MiniWoB++ by our refs and receipts alone: python tests/bench/miniwob.py FOLDER [-s SEEDS] [TASK ...]

FOLDER holds the package's html/ (pip download --no-deps miniwob==1.1.0, unpacked: miniwob/html). An oracle reads the
goal and knows the way; what shows and what is done goes through Pages. Solved: the task's own reward is 1 on each seed.
"""

from __future__ import annotations

import argparse
import functools
import http.server
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import agent_solo as solo

PATIENCE = 3.0  # seconds that an oracle waits for an element


class Hands:
    """The pages of one browser, as a model would use them: a list, refs, receipts."""

    def __init__(self, port: str) -> None:
        self.pages, self._numbers = solo.Pages(solo.SystemClock(), port), solo.Numbers()

    def see(self) -> solo.Snapshot:
        sight = self.pages.look(acted=False)
        return solo.Snapshot(id="s", time=0, elements=self._numbers.number(sight.elements))

    def all(self, role: str = "") -> list[solo.Element]:
        return [e for e in self.see().elements if e.role != "page" and role in ("", e.role)]

    def names(self, role: str) -> list[str]:
        return [e.name for e in self.all(role)]

    def do(self, verb: str, name: str, text: str = "", *, role: str = "", nth: int = 0) -> solo.Receipt:
        """One act on the element of that name, waited for. Raises LookupError, TellModel."""
        until = time.monotonic() + PATIENCE
        while True:
            seen = self.see()
            fit = [e for e in seen.elements if e.role != "page" and role in ("", e.role) and e.name == name]
            if len(fit) > nth:
                permit = solo.Permit(action=solo.Action(verb=verb, ref=fit[nth].ref, parameter=text))
                return self.pages.act(permit, seen)
            if time.monotonic() > until:
                shown = ", ".join(f"{e.role} {e.name!r}" for e in seen.elements[1:12])
                raise LookupError(f"no {role or 'element'} named {name!r} is listed ({shown})")

    def field(self, text: str, nth: int = 0, role: str = "text field") -> None:
        """Write into the nth field of that role."""
        seen = self.see()
        fit = [e for e in seen.elements if e.role == role]
        if len(fit) <= nth:
            raise LookupError(f"{len(fit)} {role} listed")
        self.pages.act(
            solo.Permit(action=solo.Action(verb="set_value", ref=fit[nth].ref, parameter=text)), seen
        )


Oracle = Callable[[Hands, str], object]
ORACLES: dict[str, Oracle] = {}


def solves(*tasks: str) -> Callable[[Oracle], Oracle]:
    def keep(oracle: Oracle) -> Oracle:
        ORACLES.update(dict.fromkeys(tasks, oracle))
        return oracle

    return keep


def words(goal: str) -> list[str]:
    """What stands in double quotes."""
    return re.findall(r'"([^"]*)"', goal)


@solves("click-button", "click-link", "click-tab-2", "click-tab-2-easy", "click-tab-2-medium")
def one(hands: Hands, goal: str) -> None:
    name = words(goal)[0]
    if "tab" not in goal.lower():
        hands.do("click", name)
        return
    for tab in hands.names("tab"):
        hands.do("click", tab, role="tab")
        if name in hands.names("clickable") + hands.names("link"):
            hands.do("click", name)
            return
    raise LookupError(f"no link named {name!r} behind any tab")


@solves("click-tab")
def tab(hands: Hands, goal: str) -> None:
    found = re.search(r"Tab #\d", goal)
    assert found, goal
    hands.do("click", found[0])


@solves("click-dialog")
def close_dialog(hands: Hands, goal: str) -> None:
    hands.do("click", "Close")


@solves("click-dialog-2")
def dialog_button(hands: Hands, goal: str) -> None:
    name = words(goal)[0]
    hands.do("click", "Close" if name == "x" else name, role="button")


@solves("click-test", "click-test-transfer")
def click_me(hands: Hands, goal: str) -> None:
    hands.do("click", hands.names("button")[0], role="button")


@solves("click-test-2", "click-button-sequence")
def each(hands: Hands, goal: str) -> None:
    for name in ("ONE", "TWO") if "TWO" in goal or "two" in goal else ("ONE",):
        hands.do("click", name)


@solves("click-checkboxes", "click-checkboxes-large", "click-checkboxes-transfer")
def tick(hands: Hands, goal: str) -> None:
    found = re.match(r"Select (.*) and click Submit", goal)
    assert found, goal
    for name in re.split(", ?", found[1]) if found[1] != "nothing" else []:
        hands.do("check", name, role="check box")
    hands.do("click", "Submit")


@solves("click-option")
def choose(hands: Hands, goal: str) -> None:
    found = re.match(r"Select (.*) and click Submit", goal)
    assert found, goal
    hands.do("click", found[1], role="radio button")
    hands.do("click", "Submit")


@solves("choose-list")
def from_list(hands: Hands, goal: str) -> None:
    found = re.match(r"Select (.*) from the list and click Submit", goal)
    assert found, goal
    box = hands.all("combo box")[0]
    hands.do("select", box.name, found[1], role="combo box")
    hands.do("click", "Submit")


@solves("enter-text", "enter-text-dynamic", "unicode-test")
def enter(hands: Hands, goal: str) -> None:
    hands.field(words(goal)[0])
    hands.do("click", "Submit")


@solves("enter-text-2")
def enter_case(hands: Hands, goal: str) -> None:
    text = words(goal)[0]
    hands.field(text.upper() if "upper" in goal else text.lower())
    hands.do("click", "Submit")


@solves("enter-password")
def password_twice(hands: Hands, goal: str) -> None:
    for nth in (0, 1):
        hands.field(words(goal)[0], nth, "password field")
    hands.do("click", "Submit")


@solves("login-user")
def login(hands: Hands, goal: str) -> None:
    user, secret = words(goal)[:2]
    hands.field(user)
    hands.field(secret, role="password field")
    hands.do("click", "Login")


@solves("focus-text")
def focus(hands: Hands, goal: str) -> None:
    press_field(hands, 0)


@solves("focus-text-2")
def focus_nth(hands: Hands, goal: str) -> None:
    found = re.search(r"(\d)(st|nd|rd|th)", goal)
    assert found, goal
    press_field(hands, int(found[1]) - 1)


def press_field(hands: Hands, nth: int) -> None:
    seen = hands.see()
    ref = [e.ref for e in seen.elements if e.role == "text field"][nth]
    hands.pages.act(solo.Permit(action=solo.Action(verb="click", ref=ref)), seen)


@solves("enter-date")
def date(hands: Hands, goal: str) -> None:
    found = re.search(r"(\d+)/(\d+)/(\d+)", goal)
    assert found, goal
    month, day, year = found.groups()
    hands.field(f"{year}-{month:0>2}-{day:0>2}", role="date field")
    hands.do("click", "Submit")


@solves("enter-time")
def clock_time(hands: Hands, goal: str) -> None:
    found = re.search(r"(\d+):(\d+) (AM|PM)", goal)
    assert found, goal
    hour = int(found[1]) % 12 + 12 * (found[3] == "PM")
    hands.field(f"{hour:02}:{found[2]}", role="date field")
    hands.do("click", "Submit")


@solves("click-widget")
def widget(hands: Hands, goal: str) -> None:
    wanted = words(goal)[0]
    roles = {"text": "text field", "textarea": "text field", "radio": "radio button", "checkbox": "check box"}
    seen = hands.see()
    fit = [e for e in seen.elements if e.role == roles.get(wanted, wanted)]
    # a field and a textarea have one role here: the one that a textarea can be told by is its place, the last
    ref = (fit[-1] if wanted == "textarea" else fit[0]).ref
    hands.pages.act(solo.Permit(action=solo.Action(verb="click", ref=ref)), seen)


@solves("click-collapsible")
def unfold(hands: Hands, goal: str) -> None:
    hands.do("click", next(n for n in hands.names("tab") + hands.names("heading") if n.startswith("Section")))
    hands.do("click", "Submit")


@solves("use-spinner")
def spin(hands: Hands, goal: str) -> None:
    found = re.search(r"-?\d+", goal)
    assert found, goal
    hands.do("set_value", hands.all("spin button")[0].name, found[0], role="spin button")
    hands.do("click", "Submit")


@solves("sign-agreement")
def agreement(hands: Hands, goal: str) -> None:
    hands.do("click", "Cancel" if "cancel" in goal.lower() else "I agree")


@solves("form-sequence-2")
def form_2(hands: Hands, goal: str) -> None:
    nth = {"1st": 0, "2nd": 1, "3rd": 2}
    radio, field = re.findall(r"1st|2nd|3rd", goal)
    text = words(goal)
    seen = hands.see()
    ref = [e.ref for e in seen.elements if e.role == "radio button"][nth[radio]]
    hands.pages.act(solo.Permit(action=solo.Action(verb="click", ref=ref)), seen)
    hands.field(text[0] if text else re.findall(r"-?\d+", goal)[-1], nth[field])
    hands.do("click", "Submit")


@solves("form-sequence-3")
def form_3(hands: Hands, goal: str) -> None:
    found = re.match(r"Choose (.*) from the dropdown, then click the button labeled \"(.*)\"", goal)
    assert found, goal
    hands.do("select", hands.all("combo box")[0].name, found[1], role="combo box")
    hands.do("click", found[2])


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder over HTTP."""
    serve = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def browser() -> Iterator[str]:
    """The debugging port of a chromium without a window."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # --no-sandbox: containers run this as root; the pages are ours
        argv = ["chromium", "--headless=new", "--no-sandbox", "--no-first-run", "--remote-debugging-port=0"]
        program = subprocess.Popen([*argv, f"--user-data-dir={folder}"], stderr=subprocess.DEVNULL)
        try:
            ports = Path(folder, "DevToolsActivePort")
            until = time.monotonic() + 20
            while not (ports.exists() and ports.read_text()):
                assert time.monotonic() < until, "chromium opened no debugging port"
                time.sleep(0.05)
            yield ports.read_text().split("\n")[0]
        finally:
            program.terminate()
            program.wait(10)


class Referee:
    """Starts a task and reads its reward, on a connection of its own."""

    def __init__(self, port: str, base: str) -> None:
        import requests

        targets = requests.get(f"http://127.0.0.1:{port}/json/list", timeout=5).json()
        target = next(t for t in targets if t["type"] == "page")
        self._page, self._base = solo.Page(target["webSocketDebuggerUrl"], solo.SystemClock()), base

    def told(self, script: str) -> Any:
        return self._page.call("Runtime.evaluate", expression=script, returnByValue=True)["result"].get(
            "value"
        )

    def until(self, script: str) -> bool:
        end = time.monotonic() + 5
        while not (so := self.told(script)) and time.monotonic() < end:
            time.sleep(0.02)
        return bool(so)

    def start(self, task: str, seed: int) -> str:
        """The goal."""
        self._page.call("Page.navigate", url=f"{self._base}/miniwob/{task}.html")
        here = f"location.pathname.endsWith('/{task}.html')"
        assert self.until(f"{here} && document.readyState === 'complete' && typeof core === 'object'"), task
        self.told(f"Math.seedrandom('{seed}'); core.EPISODE_MAX_TIME = 60000; core.startEpisodeReal()")
        self.until("globalThis.WOB_TASK_READY !== false")
        return str(self.told("core.getUtterance()"))

    def reward(self) -> float:
        self.until("WOB_DONE_GLOBAL")
        return float(self.told("WOB_DONE_GLOBAL ? WOB_RAW_REWARD_GLOBAL : 0"))


def play(hands: Hands, referee: Referee, task: str, seed: int) -> str:
    """Why it is not solved; empty if it is."""
    goal = referee.start(task, seed)
    try:
        ORACLES[task](hands, goal)
    except (LookupError, AssertionError, StopIteration, ValueError) as fault:
        return f"seed {seed}: {goal!r}: {type(fault).__name__}: {fault}"
    except solo.TellModel as told:
        return f"seed {seed}: {goal!r}: {told.code}: {told.sentence}"
    reward = referee.reward()
    return "" if reward == 1 else f"seed {seed}: {goal!r}: the reward is {reward}"


def run(folder: Path, tasks: list[str], seeds: int) -> dict[str, str]:
    """Task -> why it is not solved on every seed, empty if it is."""
    with served(folder) as base, browser() as port:
        hands, referee = Hands(port), Referee(port, base)
        found = {}
        for task in tasks:
            faults = (play(hands, referee, task, seed) for seed in range(1, seeds + 1))
            found[task] = next(filter(None, faults), "")
        hands.pages.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("-s", "--seeds", type=int, default=3)
    given = parser.parse_args()
    there = sorted(path.stem for path in (given.folder / "miniwob").glob("*.html"))
    found = run(given.folder, given.tasks or [task for task in there if task in ORACLES], given.seeds)
    for task, why in found.items():
        print(f"{'left  ' if why else 'solved'} {task} {why}")
    print(
        f"{sum(not why for why in found.values())} of {len(there)} tasks solved on {given.seeds} seeds each"
    )
    print("no oracle yet:", ", ".join(task for task in there if task not in ORACLES))


if __name__ == "__main__":
    main()
