"""The model's server, over real HTTP: what it may refuse, how it may fail, what the person reads about it.

Bodies of refusals are those that real servers send.
"""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from servers import Replies, Server, completion, serve

from agent_solo import (
    Action,
    Box,
    Budget,
    Change,
    ChatModel,
    Decision,
    Frame,
    Interrupted,
    LimitReached,
    Limits,
    ModelUnusable,
    Permit,
    Picture,
    Receipt,
    Shot,
    ShotPoint,
    Snapshot,
    Space,
    Step,
    SystemClock,
    Task,
    Unreadable,
    Usage,
    bound,
    find_local,
    profile_of,
)

SHOT = Shot(width=1344, height=756, area=Box(x=0, y=0, width=1920, height=1080))
TASK = Task(text="Order two lamps.")
CLICK = {"reasoning": "There it is.", "action": "click", "ref": None, "x": 12, "y": 34, "parameter": None}
GOOD = {"action": CLICK}
SECRET = "key-that-nobody-may-read-0123456789"


class FakeClock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.time, self.slept = 0.0, list[float]()

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.slept += [seconds] if seconds else []


class FakeWatcher:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: Step) -> None: ...


@dataclass
class Talk:
    """A ChatModel on a scripted server, with everything it can touch."""

    server: Server
    home: Path
    model: str = "some-model"
    clock: Any = field(default_factory=FakeClock)
    limits: Limits = field(default_factory=Limits)
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.watcher, self.budget = FakeWatcher(), Budget(self.limits, self.clock)
        profile = profile_of(self.model)
        values = {"space": profile.space, "price": None, "system": "Be good; answer in JSON.", **self.more}
        self.chat = ChatModel(
            base_url=values.pop("base_url", self.server.url),
            api_key=SECRET,
            model=self.model,
            profile=profile,
            budget=self.budget,
            clock=self.clock,
            watcher=self.watcher,
            memory=self.home / "servers.json",
            **values,
        )

    def decide(self, steps: Sequence[Step] = (), now: Snapshot | None = None, note: str = "") -> Decision:
        return self.chat.decide(TASK, steps, now or snapshot(len(steps)), note)

    @property
    def last(self) -> dict[str, Any]:
        return self.server.bodies[-1]


def snapshot(number: int) -> Snapshot:
    picture = Picture(data=b"png" * 20 + str(number).encode(), mime="image/png")
    return Snapshot(
        id=f"s{number}",
        time=0.0,
        frame=Frame(shot=SHOT, picture=picture, digest=number, cells=b"", columns=1),
    )


def step(number: int) -> Step:
    action = Action(verb="click", point=ShotPoint(x=1, y=2))
    receipt = Receipt(command="click", ok=True, delivery="delivered_unverified", message="clicked")
    return Step(
        number=number,
        before=snapshot(number - 1),
        decision=Decision(action=action),
        verdict=Permit(action=action),
        receipt=receipt,
        after=snapshot(number),
        change=Change(moved=False, text="Nothing visible changed."),
        seconds=1.0,
    )


def pictures(body: dict[str, Any]) -> int:
    return json.dumps(body).count('"image_url": {')


def error(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", **more}}


def ended(replies: Replies, home: Path, **more: Any) -> tuple[str, Talk, Server]:
    """The sentence a run ends with, and all around it."""
    with serve(replies) as server:
        talk = Talk(server, home, **more)
        with pytest.raises(ModelUnusable) as stopped:
            talk.decide()
    assert stopped.value.status == 4
    assert "\n" not in stopped.value.sentence
    return f"{stopped.value.sentence} {stopped.value.hint}", talk, server


# --- a good server -----------------------------------------------------------------------------------------


def test_one_question_one_decision(tmp_path: Path) -> None:
    with serve([GOOD]) as server:
        talk = Talk(server, tmp_path)
        talk.chat.warm()
        decision = talk.decide()
    assert decision.action == Action(verb="click", point=ShotPoint(x=12, y=34))
    assert decision.reasoning == "There it is."
    assert (decision.used.tokens_in, decision.used.tokens_out, decision.used.calls) == (1000, 50, 1)
    assert talk.budget.used == decision.used
    (request,) = server.requests
    assert request["headers"]["authorization"] == f"Bearer {SECRET}"
    body = request["body"]
    assert body["model"] == "some-model"
    assert body["max_tokens"] == 4096
    assert body["response_format"]["json_schema"]["strict"] is True
    assert not body.keys() & {"temperature", "tools", "stream"}
    assert pictures(body) == 1
    assert "detail" not in json.dumps(body["messages"][1]["content"])
    assert not (tmp_path / "servers.json").exists(), "nothing was learned"


def test_at_most_three_pictures_over_ten_steps(tmp_path: Path) -> None:
    with serve([GOOD]) as server:
        talk, steps = Talk(server, tmp_path), list[Step]()
        for number in range(1, 12):
            talk.decide(steps)
            steps.append(step(number))
    assert len(server.bodies) == 11
    assert max(map(pictures, server.bodies)) == 3
    assert len({json.dumps(body["messages"][0]) for body in server.bodies}) == 1, "the beginning stays"


def test_the_models_coordinates_become_pixels(tmp_path: Path) -> None:
    with serve([{"action": {**CLICK, "x": 500, "y": 250}}]) as server:
        decision = Talk(server, tmp_path, more={"space": Space(unit="1000")}).decide()
    assert decision.action == Action(verb="click", point=ShotPoint(x=672, y=189))


def test_an_answer_in_the_reasoning_only_is_taken_and_noted(tmp_path: Path) -> None:
    with serve([{"content": None, "reasoning_content": json.dumps(CLICK)}]) as server:
        decision = Talk(server, tmp_path).decide()
    assert isinstance(decision.action, Action)
    assert decision.note


def test_tool_calls_are_taken(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "click", "arguments": '{"x": 12, "y": 34}'}}
    with serve([{"content": None, "tool_calls": [call], "finish_reason": "tool_calls"}]) as server:
        decision = Talk(server, tmp_path).decide()
    assert decision.action == Action(verb="click", point=ShotPoint(x=12, y=34))


@pytest.mark.parametrize(
    "usage", [None, {}, {"prompt_tokens": None}, {"prompt_tokens": int("9" * 400)}, "none", []]
)
def test_without_a_count_the_estimate_is_charged(usage: Any, tmp_path: Path) -> None:
    with serve([{**GOOD, "usage": usage}]) as server:
        used = Talk(server, tmp_path).decide().used
    assert used.tokens_in > 1344 * 756 / 750
    assert used.tokens_out == 4096


def test_counts_in_strings_and_the_servers_own_price(tmp_path: Path) -> None:
    usage = {"prompt_tokens": "1200", "completion_tokens": "30", "cost": 0.0042}
    with serve([{**GOOD, "usage": usage}]) as server:
        used = Talk(server, tmp_path).decide().used
    assert (used.tokens_in, used.tokens_out, used.cost) == (1200, 30, 0.0042)


def test_the_price_told_counts(tmp_path: Path) -> None:
    with serve([GOOD]) as server:
        used = Talk(server, tmp_path, more={"price": (10.0, 20.0)}).decide().used
    assert used.cost == pytest.approx(0.011)


def test_nothing_is_asked_that_the_budget_cannot_pay(tmp_path: Path) -> None:
    """At 10 dollars a million, a call costs a cent and its output could cost four more."""
    usage = {"prompt_tokens": 1000, "completion_tokens": 0}
    with serve([{**GOOD, "usage": usage}]) as server:
        talk = Talk(server, tmp_path, limits=Limits(cost=0.08), more={"price": (10.0, 10.0)})
        for _ in range(3):
            talk.decide()
        with pytest.raises(LimitReached):
            talk.decide()
        assert len(server.bodies) == 3
    assert talk.budget.used.cost <= 0.08


def test_a_server_that_counts_more_than_expected_is_believed(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 40_000, "completion_tokens": 10}
    with serve([{**GOOD, "usage": usage}]) as server:
        talk = Talk(server, tmp_path, limits=Limits(tokens=80_000))
        talk.decide()
        with pytest.raises(LimitReached):
            talk.decide()
    assert len(server.bodies) == 1


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(tmp_path: Path) -> None:
    """In another process, because the environment belongs to the whole process."""
    with serve([GOOD]) as server, serve([{"status": 500}]) as proxy:
        code = (
            "import sys; sys.path.insert(0, 'tests'); from pathlib import Path; import test_model as t\n"
            "server = type('S', (), {'url': sys.argv[1]})\n"
            "print(t.Talk(server, Path(sys.argv[2])).decide().action.verb)"
        )
        address = proxy.url.removesuffix("/v1")
        result = subprocess.run(
            [sys.executable, "-c", code, server.url, str(tmp_path)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "http_proxy": address,
                "HTTP_PROXY": address,
                "no_proxy": "",
            },
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent.parent,
        )
        assert result.stdout == "click\n", result.stderr
        assert not proxy.requests


# --- replies that are no action ----------------------------------------------------------------------------


def test_an_unreadable_reply_is_asked_again_with_the_reason(tmp_path: Path) -> None:
    with serve([{"content": "I cannot see it."}, GOOD]) as server:
        talk = Talk(server, tmp_path)
        decision = talk.decide()
    assert isinstance(decision.action, Action)
    assert decision.used.calls == 2
    assert talk.budget.used.tokens_in == 2000
    first, second = (body["messages"] for body in server.bodies)
    assert second[: len(first)] == first
    assert second[-2] == {"role": "assistant", "content": "I cannot see it."}
    assert re.match(
        r"The previous response was invalid: .+\. Reply with one JSON object",
        second[-1]["content"][0]["text"],
    )
    assert len(talk.watcher.notes) == 1


def test_after_two_tellings_the_step_is_lost_and_not_the_run(tmp_path: Path) -> None:
    with serve([{"content": "No idea."}]) as server:
        decision = Talk(server, tmp_path).decide()
    assert isinstance(decision.action, Unreadable)
    assert decision.used.calls == len(server.bodies) == 3
    roles = [message["role"] for message in server.bodies[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]


@pytest.mark.parametrize("content", ["", None])
def test_an_empty_reply_is_not_given_back(content: str | None, tmp_path: Path) -> None:
    with serve([{"content": content}, GOOD]) as server:
        assert isinstance(Talk(server, tmp_path).decide().action, Action)
    messages = server.bodies[1]["messages"]
    assert [message["role"] for message in messages] == ["system", "user"]
    assert "was invalid" in messages[-1]["content"][-1]["text"]


def test_a_reply_cut_off_is_never_acted_on(tmp_path: Path) -> None:
    cut = {"content": '{"action": "click", "x": 50, "y": 35', "finish_reason": "length"}
    with serve([cut, GOOD]) as server:
        decision = Talk(server, tmp_path).decide()
    assert decision.action == Action(verb="click", point=ShotPoint(x=12, y=34))
    assert server.bodies[1]["max_tokens"] == 4096


def test_a_model_that_thought_until_the_cap_gets_more_room(tmp_path: Path) -> None:
    thinking = {"content": "", "reasoning": "Hm. " * 50, "finish_reason": "length"}
    with serve([thinking, GOOD]) as server:
        Talk(server, tmp_path).decide()
    assert server.bodies[1]["max_tokens"] == 8192


def test_of_two_actions_the_first_is_done_and_the_model_is_told(tmp_path: Path) -> None:
    second = {**CLICK, "x": 99}
    with serve([{"content": f"{json.dumps(CLICK)}\n{json.dumps(second)}"}]) as server:
        decision = Talk(server, tmp_path).decide()
    assert decision.action == Action(verb="click", point=ShotPoint(x=12, y=34))
    assert "first" in decision.note


# --- refusals that something can be done about -------------------------------------------------------------

SCHEMA, OBJECT = r'"type":"json_schema"', r'"type":"json_object"'
UNSUPPORTED = "Unsupported parameter: '{}' is not supported with this model."
MENDED = {
    "openai max_tokens": (
        "some-model",
        r'"max_tokens":',
        400,
        error(
            UNSUPPORTED.format("max_tokens") + " Use 'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        ),
        {"max_completion_tokens": 4096},
    ),
    "gateway max_tokens": (
        "some-model",
        r'"max_tokens":',
        400,
        error(
            UNSUPPORTED.format("max_tokens") + " Use 'max_completion_tokens' instead.",
            code="invalid_request_body",
        ),
        {"max_completion_tokens": 4096},
    ),
    "no max_completion_tokens": (
        "gpt-5.9",
        r'"max_completion_tokens":',
        422,
        {
            "detail": [
                {"type": "extra_forbidden", "loc": ["body", "max_completion_tokens"], "msg": "Extra inputs"}
            ]
        },
        {"max_tokens": 4096},
    ),
    "temperature value": (
        "ui-tars-1.5-7b",
        r'"temperature":',
        400,
        error(
            "Unsupported value: 'temperature' does not support 0 with this model. "
            "Only the default (1) value is supported.",
            code="unsupported_value",
        ),
        {"temperature": None},
    ),
    "temperature detail": (
        "ui-tars-1.5-7b",
        r'"temperature":',
        400,
        {"detail": "Unsupported parameter: temperature"},
        {"temperature": None},
    ),
    "temperature deprecated": (
        "ui-tars-1.5-7b",
        r'"temperature":',
        400,
        {
            "error": {
                "code": "invalid_request_error",
                "message": "`temperature` is deprecated for this model.",
            }
        },
        {"temperature": None},
    ),
    "openai schema": (
        "some-model",
        SCHEMA,
        400,
        error(
            "Invalid schema for response_format 'default': In context=(), 'additionalProperties' is required "
            "to be supplied and to be false.",
            param="response_format",
            code=None,
        ),
        {"response_format": {"type": "json_object"}},
    ),
    "llama.cpp schema": (
        "some-model",
        SCHEMA,
        400,
        error('response_format type must be one of "text" or "json_object", but got: json_schema', code=400),
        {"response_format": {"type": "json_object"}},
    ),
    "lm studio object": (
        "glm-4.6v",
        OBJECT,
        400,
        {"error": "'response_format.type' must be 'json_schema' or 'text'"},
        {"response_format": None},
    ),
    "gemini array": (
        "some-model",
        SCHEMA,
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "Invalid JSON payload received. "
                    'Unknown name "response_format": Cannot find field.',
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        {"response_format": {"type": "json_object"}},
    ),
    "openrouter parameters": (
        "some-model",
        SCHEMA,
        404,
        error("No endpoints found that can handle the requested parameters.", code=404),
        {"response_format": {"type": "json_object"}},
    ),
    "openrouter upstream": (
        "some-model",
        SCHEMA,
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": '{"error":{"message":"grammar: \\"const\\" is not supported"}}'},
            }
        },
        {"response_format": {"type": "json_object"}},
    ),
    "neither format": (
        "some-model",
        r'"response_format":',
        400,
        {"detail": "Unsupported parameter: response_format"},
        {"response_format": None},
    ),
    "dashscope thinking": (
        "some-model",
        r"^(?!.*enable_thinking)",
        400,
        error(
            "parameter.enable_thinking must be set to false for non-streaming calls",
            code="invalid_parameter_error",
        ),
        {"enable_thinking": False},
    ),
    "no enable_thinking": (
        "qwen3-vl-8b",
        r'"enable_thinking":',
        400,
        error("Unrecognized request argument supplied: enable_thinking"),
        {"enable_thinking": None},
    ),
    "json mode and thinking": (
        "some-model",
        r"^(?!.*enable_thinking)",
        400,
        error("Json mode response is not supported when enable_thinking is true"),
        {"enable_thinking": False},
    ),
    "no system role": (
        "some-model",
        r'"role":"system"',
        500,
        {"error": {"code": 500, "message": "System role not supported", "type": "server_error"}},
        {},
    ),
    "nobody knows why": (
        "qwen3-vl-8b",
        r'"enable_thinking":',
        422,
        {"object": "error", "message": "bad request", "code": 422},
        {"enable_thinking": None},
    ),
}


@pytest.mark.parametrize("case", MENDED.values(), ids=MENDED.keys())
def test_what_a_server_refuses_is_left_out_and_remembered(case: Any, tmp_path: Path) -> None:
    model, pattern, status, body, expected = case
    with serve([GOOD], refusals=[{"if": pattern, "status": status, "body": body}]) as server:
        talk = Talk(server, tmp_path, model)
        assert isinstance(talk.decide().action, Action)
        sent = talk.last
        assert {key: sent.get(key) for key in expected} == expected
        assert any(key in sent for key in ("max_tokens", "max_completion_tokens")), "there always is a cap"
        assert sent["messages"][-1]["content"][-1]["text"].endswith("Answer with one JSON object.")
        assert 2 <= len(server.bodies) <= 3
        assert len(talk.watcher.notes) == len(server.bodies) - 1, "each change is seen"
        assert talk.clock.slept == []

        count = len(server.bodies)
        again = Talk(server, tmp_path, model)
        again.decide()
        assert len(server.bodies) == count + 1, "the second run needs no refused call"
        assert talk.last == sent
        assert again.watcher.notes == []


def test_the_system_prompt_moves_into_the_first_message(tmp_path: Path) -> None:
    body = {"error": {"code": 500, "message": "System role not supported", "type": "server_error"}}
    with serve([GOOD], refusals=[{"if": '"role":"system"', "status": 500, "body": body}]) as server:
        talk = Talk(server, tmp_path)
        talk.decide([step(1)])
    assert [message["role"] for message in talk.last["messages"]] == ["user", "assistant", "user"]
    assert talk.last["messages"][0]["content"][0]["text"] == "Be good; answer in JSON."


def test_a_detail_that_is_refused_is_left_out(tmp_path: Path) -> None:
    profile = profile_of("gpt-5.5", "https://api.openai.com/v1")
    assert profile.most == (1920, 1080)
    body = error(
        "Invalid value: 'original'. Supported values are: 'low', 'high', and 'auto'.",
        param="messages[1].content[1].image_url.detail",
    )
    with serve([GOOD], refusals=[{"if": '"detail":"original"', "status": 400, "body": body}]) as server:
        talk = Talk(server, tmp_path)
        talk.chat = replace(talk.chat, profile=profile)
        talk.decide()
    assert '"detail": "original"' in json.dumps(server.bodies[0])
    assert "detail" not in json.dumps(talk.last["messages"][1]["content"])


def test_one_picture_where_a_server_takes_one(tmp_path: Path) -> None:
    body = {
        "object": "error",
        "message": "At most 1 image(s) may be provided in one request.",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
    two = {"if": r"image_url.*\"type\":\"image_url", "status": 400, "body": body}
    with serve([GOOD], refusals=[two]) as server:
        talk = Talk(server, tmp_path)
        talk.decide([step(1), step(2)])
        assert pictures(talk.last) == 1
        Talk(server, tmp_path).decide([step(1), step(2)])
        assert len(server.bodies) == 3


def test_a_context_that_is_too_small_gets_fewer_pictures_then_fewer_steps(tmp_path: Path) -> None:
    def reply(body: dict[str, Any], number: int) -> dict[str, Any]:
        if pictures(body) > 1 or len(body["messages"]) > 8:
            message = (
                "request (9024 tokens) exceeds the available context size (4096 tokens), try increasing it"
            )
            return {"status": 400, "body": error(message, type="exceed_context_size_error", n_ctx=4096)}
        return GOOD

    with serve(reply) as server:
        talk = Talk(server, tmp_path)
        assert isinstance(talk.decide([step(number) for number in range(1, 21)]).action, Action)
    assert len(server.bodies) == 4


def test_groqs_failed_generation_is_a_reply(tmp_path: Path) -> None:
    message = "Failed to generate JSON. Please adjust your prompt. See 'failed_generation' for more details."
    body = error(message, code="json_validate_failed", failed_generation=f"Sure! {json.dumps(CLICK)}")
    with serve([{"status": 400, "body": body}]) as server:
        assert isinstance(Talk(server, tmp_path).decide().action, Action)
        assert len(server.bodies) == 1


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"a": 1}', '{"some-model at URL": {"images": "x", "format": 3, "a": "1"}}']
)
def test_a_broken_memory_is_ignored_and_rewritten(text: str, tmp_path: Path) -> None:
    memory = tmp_path / "servers.json"
    refusal = {"if": SCHEMA, "status": 400, "body": {"detail": "Unsupported parameter: response_format"}}
    with serve([GOOD], refusals=[refusal]) as server:
        memory.write_text(text.replace("URL", server.url), encoding="utf-8")
        Talk(server, tmp_path).decide()
        kept = json.loads(memory.read_text(encoding="utf-8"))
        assert kept[f"some-model at {server.url}"] == {"format": "json_object"}
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600 or os.name == "nt"
    assert list(tmp_path.iterdir()) == [memory]


def test_what_is_remembered_belongs_to_one_server_and_model(tmp_path: Path) -> None:
    refusal = {"if": SCHEMA, "status": 400, "body": {"detail": "Unsupported parameter: response_format"}}
    with serve([GOOD], refusals=[refusal]) as server:
        Talk(server, tmp_path).decide()
        Talk(server, tmp_path, "other-model").decide()
    assert len(server.bodies) == 4
    assert len(json.loads((tmp_path / "servers.json").read_text(encoding="utf-8"))) == 2


# --- refusals that end the run at once ---------------------------------------------------------------------

BLIND, QUOTA, KEY, NAME = (
    "cannot see pictures",
    "nothing left to spend",
    "does not accept the key",
    "not have this model",
)
FATAL = {
    "text only": (400, error("Invalid content type. Only 'text' content type is supported."), BLIND),
    "llama.cpp": (
        500,
        {
            "error": {
                "code": 500,
                "message": "image input is not supported - hint: if this is unexpected, you may need to "
                "provide the mmproj",
                "type": "server_error",
            }
        },
        BLIND,
    ),
    "deepseek": (
        422,
        error(
            "Failed to deserialize the JSON body into the target type: messages[466]: "
            "unknown variant `image_url`, expected `text` at line 1 column 9"
        ),
        BLIND,
    ),
    "openrouter": (404, error("No endpoints found that support image input", code=404), BLIND),
    "ollama vision": (400, error('"qwen3:8b" does not support vision'), BLIND),
    "ollama url": (
        400,
        error("image URLs are not currently supported, please use base64 encoded data instead"),
        BLIND,
    ),
    "vllm no images": (400, {"object": "error", "message": "At most 0 image(s) may be provided."}, BLIND),
    "multimodal": (400, error("multimodal input is not supported"), BLIND),
    "insufficient quota": (
        429,
        error(
            "You exceeded your current quota, please check your plan and billing details.",
            type="insufficient_quota",
            code="insufficient_quota",
        ),
        QUOTA,
    ),
    "payment": (402, error("Insufficient credits"), QUOTA),
    "anthropic credit": (400, error("Your credit balance is too low to access the API."), QUOTA),
    "unauthorised": (401, error(f"Incorrect API key provided: {SECRET}.", code="invalid_api_key"), KEY),
    "forbidden": (403, {"detail": "Forbidden"}, KEY),
    "gemini key": (
        400,
        [{"error": {"code": 400, "message": "API key not valid. Please pass a valid API key."}}],
        KEY,
    ),
    "openai name": (
        404,
        error("The model `gpt-9` does not exist or you do not have access to it.", code="model_not_found"),
        NAME,
    ),
    "ollama name": (404, error('model "llava" not found, try pulling it first'), NAME),
    "azure": (400, error("Missing required query parameter: api-version"), "/openai/v1/"),
    "filter": (400, error("The response was filtered.", code="content_filter"), "filter"),
    "patches": (
        413,
        error("Failed to read the body", code="invalid_value"),
        "Failed to read the body",
    ),
    "no such page": (404, "<html><h1>Not Found</h1></html>", "/v1"),
}


@pytest.mark.parametrize("case", FATAL.values(), ids=FATAL.keys())
def test_what_cannot_be_mended_ends_the_run_at_once(case: Any, tmp_path: Path) -> None:
    status, body, expected = case
    sentence, talk, server = ended([{"status": status, "body": body}], tmp_path)
    assert expected in sentence
    assert SECRET not in sentence
    assert str(status) in sentence
    assert len(server.bodies) <= (2 if status == 413 else 1), "not retried"
    assert talk.clock.slept == []


def test_a_picture_that_is_too_large_is_said_in_the_servers_words(tmp_path: Path) -> None:
    said = "The image you provided requires 41334 patches after processing, exceeding the limit of 30000."
    sentence, _, server = ended([{"status": 400, "body": error(said, code="invalid_value")}], tmp_path)
    assert said in sentence
    assert len(server.bodies) <= 4


def test_a_refusal_without_end_ends(tmp_path: Path) -> None:
    """Whatever is refused, nothing is tried twice."""
    words = (
        "max_tokens temperature response_format enable_thinking system role context length at most 1 image"
    )
    _, talk, server = ended([{"status": 400, "body": error(words)}], tmp_path, model="qwen3-vl")
    assert len(server.bodies) <= 12
    assert talk.clock.slept == []
    assert not (tmp_path / "servers.json").exists(), "only what worked is remembered"


# --- failures that pass ------------------------------------------------------------------------------------

PASSING = {
    "429": {"status": 429, "body": error("Rate limit reached", code="rate_limit_exceeded")},
    "500": {"status": 500, "body": error("The server had an error")},
    "502 html": {"status": 502, "body": "<html><h1>Bad Gateway</h1></html>"},
    "503": {"status": 503, "body": {"error": "loading model"}},
    "html with 200": {"status": 200, "body": "<html>Please log in</html>"},
    "nothing with 200": {"status": 200, "body": ""},
    "no choices": {"body": {"choices": []}},
    "null choices": {"body": {"choices": None}},
    "no message": {"body": {"choices": [{"finish_reason": "stop"}]}},
    "a list": {"body": [1, 2]},
    "odd choices": {"body": {"choices": {"0": {}}}},
    "odd choice": {"body": {"choices": ["hello"]}},
    "200 with error": {"body": {"error": {"message": "Provider returned error", "code": 502}}},
    "200 with error text": {"body": {"error": "overloaded"}},
    "stream": {"status": 200, "body": 'data: {"choices": []}\n\ndata: [DONE]\n\n'},
    "dies": {"die": True},
}


@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING.keys())
def test_a_failure_that_passes_is_waited_for_in_sight(failure: Any, tmp_path: Path) -> None:
    with serve([failure, failure, GOOD]) as server:
        talk = Talk(server, tmp_path)
        decision = talk.decide()
    assert isinstance(decision.action, Action)
    assert len(server.bodies) == 3
    assert [round(wait / 1.125) for wait in talk.clock.slept] == [1, 2]
    assert "2 of 5" in talk.watcher.notes[0]
    assert "3 of 5" in talk.watcher.notes[1]
    assert talk.budget.used.calls == 3


@pytest.mark.parametrize("failure", PASSING.values(), ids=PASSING.keys())
def test_a_failure_that_stays_ends_after_five_calls(failure: Any, tmp_path: Path) -> None:
    sentence, talk, server = ended([failure], tmp_path)
    assert len(server.bodies) == 5
    assert len(talk.clock.slept) == 4
    assert "failed 5 times" in sentence
    body = failure.get("body")
    if isinstance(body, str):
        assert (body.split() or ["nothing"])[0] in sentence, "the server's own words"


@pytest.mark.parametrize(
    ("headers", "body", "least"),
    [
        ({"Retry-After": "7"}, error("slow down"), 7),
        ({"Retry-After": "0.5"}, error("slow down"), 0.5),
        (
            {"Retry-After": "Wed, 21 Oct 2026 07:28:40 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"},
            error("slow down"),
            40,
        ),
        ({"Retry-After": "soon"}, error("slow down"), 1),
        ({}, error("Rate limit reached. Please try again in 12.5s."), 12.5),
        ({}, [{"error": {"message": "Quota", "details": [{"retryDelay": "39s"}]}}], 39),
        ({}, error("slow down"), 1),
    ],
)
def test_the_wait_a_server_asks_for(headers: Any, body: Any, least: float, tmp_path: Path) -> None:
    with serve([{"status": 429, "headers": headers, "body": body}, GOOD]) as server:
        talk = Talk(server, tmp_path)
        talk.decide()
    (slept,) = talk.clock.slept
    assert least <= slept <= least * 1.25


def test_a_wait_of_an_hour_ends_the_run(tmp_path: Path) -> None:
    sentence, talk, _ = ended(
        [{"status": 429, "headers": {"Retry-After": "3600"}, "body": error("later")}], tmp_path
    )
    assert "3600 s" in sentence
    assert talk.clock.slept == []


def test_no_wait_goes_past_the_minutes_allowed(tmp_path: Path) -> None:
    with serve([{"status": 429, "headers": {"Retry-After": "90"}, "body": error("later")}, GOOD]) as server:
        talk = Talk(server, tmp_path, limits=Limits(minutes=1))
        with pytest.raises(LimitReached):
            talk.decide()
    assert talk.clock.slept == []


def test_nobody_at_the_address(tmp_path: Path) -> None:
    with serve([GOOD]) as server:
        url = server.url
    talk = Talk(server, tmp_path, more={"base_url": url})
    with pytest.raises(ModelUnusable, match="no answer"):
        talk.decide()
    assert len(talk.clock.slept) == 4


@pytest.mark.parametrize("url", ["", "localhost:11434", "ftp://x/v1", "http://"])
def test_an_address_that_is_none(url: str, tmp_path: Path) -> None:
    with serve([GOOD]) as server, pytest.raises(Usage):
        Talk(server, tmp_path, more={"base_url": url})


def test_a_stop_ends_the_wait_for_a_server_that_hangs(tmp_path: Path) -> None:
    clock = SystemClock()
    with serve([{**GOOD, "slow": 600}]) as server:
        talk = Talk(server, tmp_path, clock=clock)

        def stop_once_asked() -> None:
            server.asked.wait()
            clock.stop()

        threading.Thread(target=stop_once_asked, daemon=True).start()
        with pytest.raises(Interrupted):
            talk.decide()
        assert not server.over.is_set(), "the server hangs still"


def test_an_answer_without_end_is_a_broken_one() -> None:
    """httpx reads a response by its iter_bytes; here it is one with chunks of a megabyte for ever."""
    clock = FakeClock()
    for seconds, size in ((600.0, 1_000_000), (6.0, 1)):
        response = SimpleNamespace(
            iter_bytes=lambda size=size: (clock.sleep(1) or b" " * size for _ in count())
        )
        bound(response, clock=clock, seconds=seconds)
        with pytest.raises(OSError, match="without end"):
            list(response.iter_bytes())


def test_an_answer_without_end_is_asked_for_again(tmp_path: Path) -> None:
    with serve([{"body": " " * 17_000_000}, GOOD]) as server:
        talk = Talk(server, tmp_path)
        assert isinstance(talk.decide().action, Action)
    assert "an answer without end" in talk.watcher.notes[0]


def test_a_redirection_shows_the_screen_to_nobody(tmp_path: Path) -> None:
    with serve([GOOD]) as stranger:
        there = {"status": 307, "headers": {"Location": f"{stranger.url}/chat/completions"}}
        sentence, _, _ = ended([there], tmp_path)
        assert not stranger.requests
    assert f"it sends on to {stranger.url}" in sentence


def test_half_an_emoji_does_not_stop_the_talk(tmp_path: Path) -> None:
    half = "\ud83d"
    with serve([{"body": json.dumps(completion({"content": half}))}, GOOD]) as server:
        talk = Talk(server, tmp_path)
        told = replace(step(1), decision=Decision(action=Action(verb="wait"), reasoning=f"{half}!"))
        talk.decide([told], note=half)
    past = [m["content"] for m in server.bodies[-1]["messages"] if m["role"] == "assistant"]
    assert '"reasoning": "?!"' in past[0]
    assert past[1] == "?"


def test_brackets_without_end_are_a_failure_that_is_waited_for(tmp_path: Path) -> None:
    with serve([{"body": "[" * 200_000}, {"status": 500, "body": "[" * 200_000}, GOOD]) as server:
        talk = Talk(server, tmp_path)
        assert isinstance(talk.decide().action, Action)
    assert "nested too deep" in talk.watcher.notes[0]


def test_a_server_whose_terms_cannot_be_remembered_is_used(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    refusal = {"if": "json_schema", "status": 400, "body": error("response_format is not supported")}
    with serve([GOOD], refusals=[refusal]) as server:
        assert isinstance(Talk(server, tmp_path / "home").decide().action, Action)


# --- what is known beforehand ------------------------------------------------------------------------------

PX, THOUSAND = Space(), Space(unit="1000")
PROFILES = [
    ("gpt-5.5", PX, (1344, 756), "json_schema"),
    ("gpt-4o", PX, (1344, 756), "json_schema"),
    ("o3", PX, (1344, 756), "json_schema"),
    ("anthropic/claude-opus-4.7", PX, (1920, 1080), "json_schema"),
    ("claude-opus-4-8", PX, (1920, 1080), "json_schema"),
    ("claude-sonnet-5.5", PX, (1920, 1080), "json_schema"),
    ("claude-haiku-4-5-20251001", PX, (1344, 756), "json_schema"),
    ("claude-sonnet-4-20250514", PX, (1344, 756), "json_schema"),
    ("google/gemini-3.8-flash", Space(unit="1000", order="yx"), (1920, 1080), ""),
    ("gemma3:27b", Space(unit="1000", order="yx"), (1344, 756), "json_schema"),
    ("Qwen/Qwen2-VL-7B-Instruct", THOUSAND, (1344, 756), ""),
    ("Qwen/Qwen2.5-VL-72B-Instruct", PX, (1344, 756), ""),
    ("qwen2.5vl:7b", PX, (1344, 756), ""),
    ("qwen3-vl:8b", THOUSAND, (1344, 756), ""),
    ("qwen3.6-plus", THOUSAND, (1344, 756), ""),
    ("ByteDance-Seed/UI-TARS-1.5-7B", PX, (1344, 756), ""),
    ("UI-TARS-7B-DPO", THOUSAND, (1344, 756), ""),
    ("ui-tars-2", THOUSAND, (1344, 756), ""),
    ("doubao-1.5-ui-tars-250328", THOUSAND, (1344, 756), ""),
    ("doubao-seed-1-6-vision", THOUSAND, (1920, 1080), "json_object"),
    ("glm-4.6v", Space(unit="999"), (1344, 756), "json_object"),
    ("autoglm-phone-9b", Space(unit="999"), (1344, 756), ""),
    ("moonshotai/kimi-k2.6", Space(unit="1"), (1344, 756), "json_object"),
    ("OpenCUA-32B", PX, (1344, 756), ""),
    ("OpenCUA-A3B", Space(unit="1"), (1344, 756), ""),
    ("Holo1.5-7B", PX, (1344, 756), ""),
    ("Holo2-8B", THOUSAND, (1344, 756), "json_schema"),
    ("GTA1-32B", PX, (1344, 756), ""),
    ("InternVL3_5-8B", THOUSAND, (1344, 756), "json_schema"),
    ("MolmoPoint-8B", Space(unit="percent"), (1344, 756), ""),
    ("moondream3", Space(unit="1"), (1344, 756), ""),
    ("yutori-n1", THOUSAND, (1344, 756), "json_schema"),
    ("MiMo-VL-7B", PX, (1344, 756), "json_object"),
    ("openbmb/AgentCPM-GUI", THOUSAND, (1344, 756), "json_schema"),
    ("a-model-nobody-knows", PX, (1344, 756), "json_schema"),
]


@pytest.mark.parametrize(("model", "space", "most", "form"), PROFILES, ids=[row[0] for row in PROFILES])
def test_what_is_known_of_a_model(model: str, space: Space, most: tuple[int, int], form: str) -> None:
    profile = profile_of(model)
    assert (profile.space, profile.most, profile.settings.get("format", "json_schema")) == (space, most, form)


def test_openais_own_server_shows_large_pictures_and_wants_its_own_cap() -> None:
    own, azure = (
        profile_of("gpt-6.1-sol", url) for url in ("https://api.openai.com/v1", "https://x.azure.com/v1")
    )
    assert own.most == (1920, 1080)
    assert own.settings == {"cap": "max_completion_tokens", "detail": "original"}
    assert azure.most == (1344, 756)
    assert azure.settings == {"cap": "max_completion_tokens"}
    assert profile_of("gpt-5.4-mini", "https://api.openai.com/v1").most == (1344, 756)


# --- a server on this machine ------------------------------------------------------------------------------


def port(server: Server) -> int:
    return int(server.server_address[1])


def test_a_local_server_with_a_model_that_sees_comes_first() -> None:
    with (
        serve([], models=["llama3:8b"]) as text,
        serve([], models=["bge-embed", "phi4", "qwen3-vl:8b"]) as sees,
    ):
        found = find_local(FakeClock(), [port(text), port(sees)])
        assert found == (sees.url, "qwen3-vl:8b")


def test_a_local_server_is_better_than_none() -> None:
    with serve([], models=["nomic-embed-text", "llama3:8b"]) as server:
        assert find_local(FakeClock(), [port(server)]) == (server.url, "llama3:8b")


def test_no_server_here() -> None:
    with serve([]) as server:
        gone = port(server)
    assert find_local(FakeClock(), [gone]) is None


def test_a_web_server_of_another_kind_is_no_model_server() -> None:
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>[]</html>")

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
            """Say nothing."""

    other = HTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    assert find_local(FakeClock(), [other.server_address[1]]) is None
    other.shutdown()
    other.server_close()


# --- the server as a program -------------------------------------------------------------------------------


def test_the_scripted_server_runs_in_another_process(tmp_path: Path) -> None:
    script, ports, record = tmp_path / "script.json", tmp_path / "port", tmp_path / "record.jsonl"
    script.write_text(json.dumps({"replies": [GOOD], "models": ["a"]}), encoding="utf-8")
    program = Path(__file__).with_name("servers.py")
    process = subprocess.Popen(
        [sys.executable, program, "--port-file", ports, "--record", record, script], stdout=subprocess.DEVNULL
    )
    try:
        while not ports.exists():
            assert process.poll() is None
            threading.Event().wait(0.01)
        with serve([]) as spare:
            url = f"http://127.0.0.1:{ports.read_text(encoding='utf-8')}/v1"
            assert isinstance(Talk(spare, tmp_path, more={"base_url": url}).decide().action, Action)
    finally:
        process.kill()
        process.wait()
    assert json.loads(record.read_text(encoding="utf-8"))["body"]["model"] == "some-model"
