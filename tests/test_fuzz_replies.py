"""Mutations of the recorded replies: no exception, no slow one, no action out of a cut one."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agent_solo import (
    Action,
    Decision,
    Misread,
    Reader,
    Space,
    Unreadable,
    action_fields,
    parse_command,
    parse_reply,
)

FOLDER = Path(__file__).with_name("cases")
CASES = json.loads(FOLDER.joinpath("model_replies.json").read_text("utf-8"))["cases"]
TEXTS = [case["reply"]["content"] for case in CASES if isinstance(case["reply"].get("content"), str)]
FUZZ: dict[str, list[Any]] = json.loads(FOLDER.joinpath("fuzz.json").read_text("utf-8"))
SPACES = [Space(), Space(unit="1000"), Space(unit="999", order="yx"), Space(unit="1"), Space(unit="percent")]
MESSAGE = ["content", "finish", "reasoning", "reasoning_content", "tool_calls", "refusal", "error", "choices"]


def mutations(seed: int) -> Iterator[str]:
    """Cut, doubled, spliced, salted, reversed and quoted replies."""
    chance = random.Random(seed)
    while True:
        text = chance.choice(TEXTS)
        for _ in range(chance.randint(1, 4)):
            at, to = sorted(chance.randint(0, len(text)) for _ in range(2))
            text = chance.choice(
                (
                    text[:at],
                    text[:at] + text[at:to] * chance.randint(0, 3) + text[to:],
                    text[:at] + chance.choice(TEXTS)[at:],
                    text[:at] + chance.choice(FUZZ["salt"]) * chance.randint(1, 3) + text[to:],
                    text[:at] + chance.choice(TEXTS) + text[at:],
                    text[:at] + text[at:to][::-1] + text[to:],
                    json.dumps(text),
                )
            )
        yield text[:5000]


def judge(message: Any, space: Space = SPACES[0]) -> Decision:
    """What holds of any reply whatever."""
    decision = parse_reply(message, space=space, width=1344, height=756)
    assert isinstance(decision, Decision)
    action = decision.action
    if isinstance(action, Unreadable):
        assert action.code
        assert 0 < len(action.message) < 700
        return decision
    for point in filter(None, (action.point, action.to)):
        assert 0 <= point.x <= 1343
        assert 0 <= point.y <= 755
    json.dumps(action_fields(action), ensure_ascii=False).encode()
    return decision


@pytest.mark.parametrize("seed", range(6))
def test_mutated_replies(seed: int) -> None:
    chance = random.Random(seed)
    for _, text in zip(range(1500), mutations(seed), strict=False):
        judge(text, chance.choice(SPACES))


def closes(text: str, at: int) -> bool:
    """True if the value that opens there closes by itself, however loosely it is written."""
    try:
        Reader(text, at).value()
    except Misread:
        return False
    return True


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_reply_never_acts_on_what_did_not_close(seed: int) -> None:
    for _, text in zip(range(1000), mutations(100 + seed), strict=False):
        decision = judge({"content": text, "finish": "length"})
        if isinstance(decision.action, Action) and text.lstrip()[:1] != '"':
            assert any(mark in "{[" and closes(text, at) for at, mark in enumerate(text)), text


@pytest.mark.parametrize("finish", ["length", "stop"])
def test_nothing_that_was_cut_is_completed(finish: str) -> None:
    """However a reply is cut, it clicks where it was meant to or not at all."""
    whole = '{"reasoning":"go","action":{"name":"click","arguments":{"x":500,"y":350}},"expect":"it {opens}"}'
    for end in range(len(whole)):
        action = judge({"content": whole[:end], "finish": finish}).action
        if isinstance(action, Action):
            assert finish == "stop"
            assert whole[end - 1] in '"}'
            assert action.point is not None
            assert (action.point.x, action.point.y) == (500, 350)


def test_messages_and_fields_of_any_kind() -> None:
    chance = random.Random(7)
    for _ in range(3000):
        message = {key: chance.choice(FUZZ["junk"]) for key in MESSAGE if chance.random() < 0.5}
        judge(message)
        parse_command(json.dumps(message), space=SPACES[0], width=9, height=9)
    for _ in range(15000):
        fields = {
            chance.choice(FUZZ["fields"]): chance.choice(FUZZ["junk"]) for _ in range(chance.randint(0, 5))
        }
        verb, space = chance.choice(FUZZ["verbs"]), chance.choice(SPACES)
        judge({"content": {"action": verb, **fields}}, space)
        judge({"tool_calls": [{"function": {"name": verb, "arguments": json.dumps(fields)}}]}, space)


def work(text: str, finish: str) -> int:
    """How many lines of Python a reply costs."""
    lines = 0

    def count(_frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        judge({"content": text, "finish": finish})
    finally:
        sys.settrace(before)
    return lines


@pytest.mark.parametrize("flood", FUZZ["floods"])
def test_work_grows_no_faster_than_the_reply(flood: str) -> None:
    """Counted in lines of Python: four times the text, at most some four times the work."""
    for opened in ("", '{"action":"input","parameter":"', "Action: type(content='"):
        for finish in ("stop", "length"):
            small, large = (work(opened + flood * times, finish) for times in (100, 400))
            assert large <= 4.6 * small + 400, (opened, small, large)


@pytest.mark.parametrize("flood", FUZZ["floods"])
def test_floods_end(flood: str) -> None:
    """20,000 of anything. Work inside a regular expression would show here, as a test that hangs."""
    for opened in ("", '{"action":"input","parameter":"'):
        for finish in ("stop", "length"):
            judge({"content": (opened + flood * 20000)[:100_000], "finish": finish})


def test_no_depth_of_brackets_is_too_much() -> None:
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    judge({"content": deep})
    judge({"content": {"action": deep}})
    judge({"tool_calls": [{"name": "a", "arguments": {"x": deep}}]})
    for text in ("[" * 100_000, '{"content":' * 5000):
        assert parse_command(text, space=SPACES[0], width=9, height=9)[1] == 1
