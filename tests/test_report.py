"""Report: what a person reads, and that nothing read from a screen can repaint the terminal or answer for them."""

from __future__ import annotations

import io
import json
import os
import select
from pathlib import Path

import pytest

from agent_solo import (
    Action,
    Change,
    Decision,
    Outcome,
    Permit,
    PersonNeeded,
    Question,
    Receipt,
    ShotPoint,
    Snapshot,
    Spent,
    Step,
    Terminal,
    TerminalPerson,
    outcome_json,
    printable,
)

EVIL = "ok\x1b[2J\x1b]0;title\x07\nverdict permitted\u202eevil\u200b"


def step(reasoning: str = "because") -> Step:
    """One click, done."""
    action = Action(verb="click", point=ShotPoint(x=10, y=20))
    return Step(
        number=1,
        before=Snapshot(id="s1", time=0),
        decision=Decision(
            action=action, reasoning=reasoning, used=Spent(tokens_in=1200, tokens_out=30, cost=0.01)
        ),
        verdict=Permit(action=action),
        receipt=Receipt(command="click", ok=True, delivery="delivered_unverified", mechanism="physical"),
        after=Snapshot(id="s2", time=1),
        change=Change(moved=True, text="Something changed."),
        seconds=1.25,
    )


class Tty(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


def test_a_step_shows_all_that_the_person_needs() -> None:
    out = io.StringIO()
    Terminal(out, colour=False).step(step())
    for part in ("1  click at (10, 20)", "1.2 s", "1,200+30 tokens", "$0.0100", "because", "permitted"):
        assert part in out.getvalue()
    assert "delivered_unverified" in out.getvalue()
    assert "Something changed." in out.getvalue()


@pytest.mark.parametrize("text", [EVIL, "a\r\rb", "\x9b31m", "\u2066x\u2069"])
def test_what_a_model_says_cannot_repaint_the_terminal(text: str) -> None:
    out = Tty()
    Terminal(out, colour=False).step(step(text))
    assert printable(text) == "".join(c for c in printable(text) if c.isprintable() or c == "\u200d")
    assert "\x1b]0" not in out.getvalue()
    assert "\u202e" not in out.getvalue()
    assert "\nverdict permitted" not in out.getvalue()


def test_piped_output_has_no_colours() -> None:
    out = io.StringIO()
    Terminal(out, colour=True).step(step())
    assert "\x1b" not in out.getvalue()


def test_secrets_are_masked_on_the_terminal_too() -> None:
    out = io.StringIO()
    Terminal(out, colour=False, clean=lambda text: text.replace("hunter2", "[secret]")).step(step("hunter2"))
    assert "hunter2" not in out.getvalue()
    assert "[secret]" in out.getvalue()


QUESTION = Question(
    permit=Permit(action=Action(verb="click")), what="click Delete", where="window", why="it deletes"
)


@pytest.mark.parametrize(
    ("line", "yes"),
    [("y\n", True), ("YES\n", True), ("是\n", True), ("n\n", False), ("\n", False), ("yup\n", False)],
)
def test_only_a_typed_yes_is_a_yes(line: str, yes: bool) -> None:
    assert TerminalPerson(Tty(line), Tty()).allows(QUESTION) is yes


@pytest.mark.parametrize(
    ("reader", "writer"), [(io.StringIO("y\n"), Tty()), (Tty("y\n"), io.StringIO()), (Tty(""), Tty())]
)
def test_nobody_there_is_never_a_yes(reader: io.StringIO, writer: io.StringIO) -> None:
    with pytest.raises(PersonNeeded):
        TerminalPerson(reader, writer).allows(QUESTION)


def test_what_was_typed_before_the_question_does_not_answer_it() -> None:
    person, terminal = os.openpty()
    os.write(person, b"y\n")
    with os.fdopen(terminal, encoding="utf-8") as reader:
        assert select.select([reader], [], [], 10)[0], "it has arrived"
        out = Tty()
        out.flush = lambda: os.write(person, b"n\n") and None  # type: ignore[method-assign]
        assert not TerminalPerson(reader, out).allows(QUESTION)
    os.close(person)


def test_the_question_shows_what_where_and_why() -> None:
    out = Tty()
    TerminalPerson(Tty("n\n"), out).allows(QUESTION)
    assert all(part in out.getvalue() for part in ("click Delete", "window", "it deletes"))


def test_the_object_of_json() -> None:
    outcome = Outcome(
        word="done", status=0, message="done", result={"a": 1}, steps=(step(),), used=Spent(tokens_in=5)
    )
    told = json.loads(json.dumps(outcome_json(outcome, Path("run"), lambda value: value)))
    assert (told["result"], told["outcome"], told["status"], told["steps"]) == ({"a": 1}, "done", 0, 1)
    assert told["receipts"][0]["data"]["disposition"]["delivery"] == "delivered_unverified"
    assert told["tokens"] == {"in": 5, "out": 0}
