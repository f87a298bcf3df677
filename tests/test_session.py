"""The loop: what a person would see of a run, with fakes for everything outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakes import DESK, OTHER, FakeChannel, FakeClock, FakeHost, FakePerson, FakeWatcher, Script, frame

from agent_solo import (
    Action,
    Aside,
    Budget,
    Journal,
    Limits,
    Outcome,
    Policy,
    Rehearsal,
    Rules,
    Session,
    ShotPoint,
    Task,
    TellModel,
    Unreadable,
    Usage,
    Window,
)

CLICK = Action(verb="click", point=ShotPoint(x=300, y=300))
FINISH = Action(verb="finish", parameter='{"ok": true}')


class Bench:
    """A session on a desk of fakes."""

    def __init__(
        self,
        tmp_path: Path,
        *actions: Any,
        windows: Any = (DESK, OTHER),
        person: Any = (),
        frames: Any = (),
        **changes: Any,
    ) -> None:
        self.host, self.clock, self.watcher = FakeHost(*windows), FakeClock(), FakeWatcher()
        self.person, self.model = FakePerson(*person), Script(actions)
        self.pixels = FakeChannel(
            *(frames or map(frame, range(1, 40))), windows=windows, raises=changes.pop("raises", ())
        )
        self.journal = Journal(tmp_path, [], task="task")
        rules = Rules(patterns=("desk",), any_window=False, confirm=changes.pop("confirm", "risky"))
        eyes = Rehearsal(self.pixels) if changes.pop("rehearse", False) else self.pixels
        self.session = Session(
            task=Task(text="do it", schema=changes.pop("schema", None)),
            host=self.host,
            channels={"pixels": eyes, "aside": Aside(self.person, self.clock)},
            model=self.model,
            policy=Policy(rules, {}),
            person=self.person,
            journal=self.journal,
            budget=Budget(changes.pop("limits", Limits()), self.clock),
            clock=self.clock,
            watcher=self.watcher,
            **changes,
        )

    def run(self) -> Outcome:
        return self.session.run()

    def lines(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for line in (self.journal.folder / "journal.jsonl").read_text("utf-8").splitlines()
        ]


def test_a_click_then_a_json_result(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CLICK, FINISH)
    outcome = bench.run()
    assert (outcome.word, outcome.status, outcome.result) == ("done", 0, {"ok": True})
    assert len(bench.pixels.permits) == 1
    # one look a step: the look that verifies the click is the one that the next step decides on
    assert bench.pixels.looks == [False, True, False]


def test_a_result_of_nothing_but_brackets_is_text(tmp_path: Path) -> None:
    deep = "[" * 100_000
    assert Bench(tmp_path, CLICK, Action(verb="finish", parameter=deep)).run().result == deep


@pytest.mark.parametrize("fault", [BrokenPipeError(32, "Broken pipe"), SystemExit(1)])
def test_a_terminal_that_is_closed_ends_the_run_and_its_record(tmp_path: Path, fault: BaseException) -> None:
    bench = Bench(tmp_path, CLICK, FINISH, raises=[fault])
    outcome = bench.run()
    assert (outcome.word, outcome.status) == ("stopped", 1)
    assert bench.lines()[-1]["word"] == "stopped"


def test_the_click_lands_in_screen_units(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CLICK, FINISH)
    bench.run()
    aim = bench.pixels.permits[0].aim
    assert aim is not None
    assert (aim.x, aim.y) == (429, 429)  # (300 + .5) * 1920 / 1344


def test_the_intent_is_on_disk_before_the_act(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CLICK, FINISH)
    seen: list[int] = []
    act = bench.pixels.act
    bench.pixels.act = lambda permit, now: (seen.append(len(bench.lines())), act(permit, now))[1]  # type: ignore[method-assign]
    before = len(bench.lines())
    bench.run()
    assert seen == [before + 1]


def test_finish_before_anything_was_done_is_challenged_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FINISH, FINISH)
    outcome = bench.run()
    assert outcome.word == "done"
    assert [step.receipt.ok for step in outcome.steps] == [False, True]
    assert "nothing has been done" in bench.model.told[1].message


def test_a_window_that_is_not_allowed_is_refused_and_the_model_is_told(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CLICK, FINISH, windows=(OTHER, DESK))
    outcome = bench.run()
    assert not bench.pixels.permits
    assert outcome.steps[0].receipt.envelope()["error"]["code"] == "POLICY_DENIED"
    assert outcome.steps[0].receipt.envelope()["error"]["disposition"] == {
        "delivery": "not_delivered",
        "retry": "safe",
    }
    assert "Bank" in outcome.steps[0].receipt.message


def test_an_unreadable_reply_takes_the_normal_path(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Unreadable(code="ambiguous", message="two different actions"), CLICK, FINISH)
    outcome = bench.run()
    assert [step.receipt.ok for step in outcome.steps] == [False, True, True]
    assert "two different actions" in outcome.steps[0].receipt.message


def test_a_dangerous_act_with_nobody_there_ends_with_5_and_touches_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Action(verb="keypress", parameter="alt+f4"), FINISH)
    outcome = bench.run()
    assert (outcome.word, outcome.status) == ("person_needed", 5)
    assert not bench.pixels.permits


@pytest.mark.parametrize(("answer", "permits"), [(True, 1), (False, 0)])
def test_the_person_decides(tmp_path: Path, answer: bool, permits: int) -> None:
    bench = Bench(tmp_path, Action(verb="keypress", parameter="alt+f4"), FINISH, FINISH, person=(answer,))
    assert bench.run().word == "done"
    assert len(bench.pixels.permits) == permits
    assert "Order desk" in bench.person.asked[0].where


def test_after_a_question_the_keyboard_goes_back_to_the_window_that_had_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Action(verb="keypress", parameter="alt+f4"), FINISH, person=(True,))
    shell = Window(id="t", title="terminal", app="xterm", pid=1, box=OTHER.box, own=True, focused=True)
    desk = Window(id="w1", title="Order desk", app="desk", pid=10, box=DESK.box)
    allows = bench.person.allows
    bench.person.allows = lambda q: (setattr(bench.host, "stack", [shell, desk]), allows(q))[1]  # type: ignore[method-assign]
    bench.run()
    assert bench.host.done[0] == ("focus", "Order desk")


def test_a_window_gone_during_the_question_stops_the_act(tmp_path: Path) -> None:
    bench = Bench(tmp_path, Action(verb="keypress", parameter="alt+f4"), FINISH, FINISH, person=(True,))
    allows = bench.person.allows
    bench.person.allows = lambda q: (setattr(bench.host, "stack", [OTHER]), allows(q))[1]  # type: ignore[method-assign]
    outcome = bench.run()
    assert not bench.pixels.permits
    assert outcome.steps[0].receipt.code == "WINDOW_NOT_FOUND"


def test_what_a_channel_tells_becomes_the_receipt(tmp_path: Path) -> None:
    told = TellModel("TIMEOUT", "no answer after 30 s", delivery="delivery_uncertain")
    outcome = Bench(tmp_path, CLICK, FINISH, raises=[told]).run()
    assert outcome.steps[0].receipt.envelope()["error"]["disposition"] == {
        "delivery": "delivery_uncertain",
        "retry": "unsafe",
    }


def test_ten_identical_clicks_on_a_screen_that_does_not_change_end_as_stuck(tmp_path: Path) -> None:
    bench = Bench(tmp_path, *[CLICK] * 10, FINISH, frames=[frame(1)])
    outcome = bench.run()
    assert (outcome.word, outcome.status) == ("stuck", 1)
    assert 3 <= len(bench.pixels.permits) < 10
    assert any(note for note in bench.model.notes), "the model was never told to change its way"


def test_a_dry_run_touches_nothing_and_says_what_it_would_do(tmp_path: Path) -> None:
    bench = Bench(tmp_path, CLICK, FINISH, rehearse=True)
    outcome = bench.run()
    assert outcome.word == "done"
    assert not bench.pixels.permits
    assert "dry run" in outcome.steps[0].receipt.message
    assert "Order desk" in outcome.steps[0].receipt.message


def test_the_person_at_the_pointer_pauses_the_run(tmp_path: Path) -> None:
    touches = iter([True])
    bench = Bench(tmp_path, CLICK, CLICK, FINISH, touched=lambda: next(touches, False))
    outcome = bench.run()
    assert outcome.word == "done"
    assert len(bench.pixels.permits) == 1
    assert "paused" in bench.watcher.notes[0]
    assert sum(bench.clock.slept) >= 2


def test_limits_are_checked_before_the_spend(tmp_path: Path) -> None:
    bench = Bench(tmp_path, *[Action(verb="wait", parameter="1")] * 5, limits=Limits(steps=2))
    outcome = bench.run()
    assert (outcome.word, outcome.status) == ("limit_reached", 1)
    assert len(bench.model.notes) == 2


SCHEMA = {
    "type": "object",
    "required": ["rows"],
    "properties": {"rows": {"type": "array", "items": {"type": "integer"}}},
}


def test_a_result_that_does_not_fit_is_told_twice_then_fails(tmp_path: Path) -> None:
    bad = Action(verb="finish", parameter='{"rows": ["one"]}')
    outcome = Bench(tmp_path, CLICK, bad, bad, bad, FINISH, schema=SCHEMA).run()
    assert (outcome.word, outcome.status) == ("invalid_result", 1)
    assert "$.rows[0]" in outcome.steps[1].receipt.message


def test_a_result_mended_after_being_told_is_taken(tmp_path: Path) -> None:
    bad, good = (
        Action(verb="finish", parameter="no JSON"),
        Action(verb="finish", parameter='```json\n{"rows": [1]}\n```'),
    )
    assert Bench(tmp_path, CLICK, bad, good, schema=SCHEMA).run().result == {"rows": [1]}


@pytest.mark.parametrize("schema", [{"type": "strin"}, 5, {"properties": []}])
def test_a_schema_that_is_none_is_usage(tmp_path: Path, schema: Any) -> None:
    with pytest.raises(Usage):
        Bench(tmp_path, FINISH, schema=schema)


def test_a_ref_in_a_schema_is_never_fetched(tmp_path: Path) -> None:
    outcome = Bench(tmp_path, CLICK, FINISH, schema={"$ref": "http://127.0.0.1:9/x.json"}).run()
    assert (outcome.word, outcome.status) == ("usage", 2)


def test_ask_and_wait(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        Action(verb="ask", parameter="which?"),
        Action(verb="wait", parameter="2"),
        FINISH,
        FINISH,
        person=("blue",),
    )
    outcome = bench.run()
    assert outcome.steps[0].receipt.message == "the person answered: blue"
    assert bench.clock.slept == [2.0]


@pytest.mark.parametrize(
    "action", [Action(verb="ask", parameter="which?"), Action(verb="keypress", parameter="alt+f4")]
)
def test_the_keyboard_goes_back_after_a_no_and_after_an_open_question(tmp_path: Path, action: Action) -> None:
    bench = Bench(tmp_path, action, FINISH, FINISH, person=(False,))
    shell = Window(id="t", title="terminal", app="xterm", pid=1, box=OTHER.box, own=True, focused=True)
    desk = Window(id="w1", title="Order desk", app="desk", pid=10, box=DESK.box)
    asked = bench.person._next
    bench.person._next = lambda q: (setattr(bench.host, "stack", [shell, desk]), asked(q))[1]  # type: ignore[method-assign]
    bench.run()
    assert bench.host.done == [("focus", "Order desk")]
    assert not bench.pixels.permits
