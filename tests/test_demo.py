"""Demo: the script looks at what it is sent, the tool server speaks MCP, and the check believes nobody."""

from __future__ import annotations

import base64
import io
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from agent_solo import (
    ADDED,
    CUSTOMER,
    DEMO_RESULT,
    NOTE,
    ORDERS,
    STOCK,
    TWICE,
    Action,
    Box,
    Frame,
    Permit,
    Picture,
    Policy,
    Question,
    Refusal,
    Rules,
    Script,
    ScriptedPerson,
    Shot,
    ShotPoint,
    Snapshot,
    Space,
    Window,
    as_file,
    demo_faults,
    demo_move,
    parse_reply,
    picture_size,
    serve_model,
    serve_stock,
)

TOOLS = "You may call mcp.stock__in_stock."


class Instant:
    """A clock on which waiting takes no time."""

    def __init__(self) -> None:
        self.slept = 0.0

    def now(self) -> float:
        return self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds


def desk(**changes: Any) -> dict[str, Any]:
    """What the order desk says of itself when it has just been opened."""
    boxes = {"customer": [100, 100, 400, 30], "list": [100, 300, 400, 300], "delete": [400, 650, 100, 40]}
    shown = {"screen": [0, 0, 1280, 800], "boxes": boxes, "typed": {"customer": "", "note": ""}, "focus": ""}
    return {**shown, "selected": [], "numbers": [order["number"] for order in ORDERS], **changes}


ALL = [*(order["number"] for order in ORDERS), ADDED["number"]]
ROW = {"row": [90, 400, 400, 30], **desk()["boxes"]}
STAGES = (
    desk(),
    desk(focus="customer"),
    desk(typed={"customer": CUSTOMER, "note": ""}),
    desk(typed={"customer": CUSTOMER, "note": NOTE}),
    desk(numbers=ALL),
    desk(numbers=ALL, boxes=ROW),
    desk(numbers=ALL, boxes=ROW, selected=[str(TWICE)]),
)


def picture(width: int, height: int, kind: str) -> bytes:
    made = io.BytesIO()
    Image.radial_gradient("L").resize((width, height)).convert("RGB").save(made, kind)
    return made.getvalue()


def request(*, data: bytes, text: str = TOOLS) -> dict[str, Any]:
    url = f"data:image/jpeg;base64,{base64.b64encode(data).decode()}"
    now = [{"type": "text", "text": "Now."}, {"type": "image_url", "image_url": {"url": url}}]
    return {
        "model": "scripted",
        "messages": [{"role": "system", "content": text}, {"role": "user", "content": now}],
    }


def chosen(answer: dict[str, Any]) -> dict[str, Any]:
    action: dict[str, Any] = json.loads(answer["choices"][0]["message"]["content"])
    return action


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_the_size_is_read_from_the_picture(kind: str) -> None:
    assert picture_size(picture(1204, 756, kind)) == (1204, 756)
    assert picture_size(picture(28, 1344, kind)) == (28, 1344)


def test_what_is_no_picture_is_refused() -> None:
    with pytest.raises(LookupError):
        picture_size(b"GIF89a")


def test_the_script_points_into_the_picture_it_was_sent(tmp_path: Path) -> None:
    (tmp_path / "desk.json").write_text(as_file(desk()), "utf-8")
    script = Script(tmp_path, Instant())
    half = chosen(script.answer(request(data=picture(640, 400, "jpeg"))))
    full = chosen(script.answer(request(data=picture(1280, 800, "jpeg"))))
    assert (half["action"], half["x"], half["y"]) == ("click", 150, 57)
    assert (full["action"], full["x"], full["y"]) == ("click", 300, 115)


def test_the_program_reads_the_script_as_it_reads_any_model(tmp_path: Path) -> None:
    (tmp_path / "desk.json").write_text(as_file(desk(focus="customer")), "utf-8")
    message = Script(tmp_path, Instant()).answer(request(data=picture(1204, 756, "jpeg")))["choices"][0][
        "message"
    ]
    decision = parse_reply(message, space=Space(unit="px"), width=1204, height=756)
    assert decision.action == Action(verb="input", point=ShotPoint(x=282, y=109), parameter=CUSTOMER)
    assert decision.reasoning == "The field has the cursor."


def test_the_guards_ask_about_delete_and_about_nothing_else() -> None:
    """Tk names none of its parts, so the guards go by the script's own words."""
    window = Window(
        id="w", title="Order desk", app="tk", pid=1, box=Box(x=0, y=0, width=1280, height=800), focused=True
    )
    shot = Shot(width=1204, height=756, area=Box(x=0, y=0, width=1280, height=800))
    frame = Frame(shot=shot, picture=Picture(data=b"", mime="image/png"), digest=0, cells=b"", columns=0)
    seen = Snapshot(id="s1", time=0, frame=frame, windows=(window,))
    policy = Policy(Rules(patterns=("Order desk",), any_window=False, confirm="risky"), {})
    asked = []
    for shown in STAGES:
        verb, _, parameter, why = demo_move(shown, TOOLS)
        action = Action(verb=verb, point=ShotPoint(x=600, y=300), parameter=parameter)
        verdict = policy.judge(action, seen, (window,), said=why)
        asked += [why] if isinstance(verdict, Question) else []
        assert not isinstance(verdict, Refusal)
    assert asked == [f"Order {TWICE} is selected; I click Delete."]


def test_the_script_goes_through_the_whole_task() -> None:
    moves = [demo_move(shown, TOOLS)[:3] for shown in STAGES]
    assert moves == [
        ("click", "customer", ""),
        ("input", "customer", CUSTOMER),
        ("input", "note", NOTE),
        ("click", "save", ""),
        ("scroll", "list", "down 3"),
        ("click", "row", ""),
        ("click", "delete", ""),
    ]
    done = desk(numbers=[number for number in ALL if number != TWICE])
    verb, _, call, _ = demo_move(done, TOOLS)
    assert (verb, json.loads(call)) == (
        "tool",
        {"name": "mcp.stock__in_stock", "arguments": {"article": "KK-7"}},
    )
    verb, _, answer, _ = demo_move(done, f"{TOOLS} KK-7: {STOCK['KK-7']} in stock")
    assert (verb, json.loads(answer)) == ("finish", DEMO_RESULT)


def test_the_stock_in_the_answer_is_the_one_the_tool_told() -> None:
    done = desk(numbers=[ADDED["number"]])
    assert json.loads(demo_move(done, "KK-7: 12 in stock")[2])["in_stock"] == 12


def test_a_desk_that_is_slow_gets_a_second(tmp_path: Path) -> None:
    (tmp_path / "desk.json").write_text(as_file(desk()), "utf-8")
    clock = Instant()
    script = Script(tmp_path, clock)
    script.answer(request(data=picture(640, 400, "png")))
    assert clock.slept == 0
    script.answer(request(data=picture(640, 400, "png")))
    assert clock.slept == pytest.approx(1)
    (tmp_path / "desk.json").write_text(as_file(desk(focus="customer")), "utf-8")
    assert chosen(script.answer(request(data=picture(640, 400, "png"))))["action"] == "input"
    assert clock.slept == pytest.approx(1)


def ask(url: str, body: Any) -> Any:
    sent = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode())
    with urllib.request.urlopen(sent) as answer:
        return json.load(answer)


def test_the_model_is_served_over_http_and_wants_a_picture(tmp_path: Path) -> None:
    (tmp_path / "desk.json").write_text(as_file(desk()), "utf-8")
    with serve_model(Script(tmp_path, Instant()).answer) as url:
        with urllib.request.urlopen(f"{url}/models") as answer:
            assert json.load(answer)["data"][0]["id"] == "scripted"
        reply = ask(url, request(data=picture(1280, 800, "png")))
        assert chosen(reply)["action"] == "click"
        assert reply["usage"]["total_tokens"] > 0
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(url, {"model": "scripted", "messages": [{"role": "user", "content": "What do you see?"}]})
        assert refused.value.code == 400
        assert json.load(refused.value)["error"]["message"] == "this is not a request with a picture"
    with pytest.raises(urllib.error.URLError):
        ask(url, {})


def speak(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    said: list[str] = []
    serve_stock([json.dumps({"jsonrpc": "2.0", **message}) for message in messages], said.append)
    assert all("\n" not in line for line in said)
    return [json.loads(line) for line in said]


def test_the_stock_server_speaks_mcp() -> None:
    hello, pong, listed, unknown = speak(
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}}},
        {"method": "notifications/initialized"},
        {"id": "two", "method": "ping"},
        {"id": 3, "method": "tools/list"},
        {"id": 4, "method": "server/discover"},
    )
    assert hello["result"]["protocolVersion"] == "2025-06-18"
    assert pong == {"jsonrpc": "2.0", "id": "two", "result": {}}
    assert listed["result"]["tools"][0]["annotations"] == {"readOnlyHint": True}
    assert unknown["error"]["code"] == -32601


def test_the_stock_server_counts() -> None:
    call = {"method": "tools/call", "params": {"name": "in_stock", "arguments": {"article": "KK-7"}}}
    strange = {"method": "tools/call", "params": {"name": "in_stock", "arguments": {"article": "no such"}}}
    known, other = speak({"id": 1, **call}, {"id": 2, **strange})
    assert known["result"] == {"content": [{"type": "text", "text": "KK-7: 41 in stock"}], "isError": False}
    assert other["result"]["isError"]


def good(folder: Path) -> Path:
    path = folder / "orders.json"
    path.write_bytes(as_file([*(order for order in ORDERS if order["number"] != TWICE), ADDED]).encode())
    return path


def test_the_check_is_content_with_the_right_bytes(tmp_path: Path) -> None:
    good(tmp_path)
    assert demo_faults(tmp_path, DEMO_RESULT) == []


def test_the_check_sees_one_wrong_byte_anywhere(tmp_path: Path) -> None:
    whole = good(tmp_path).read_bytes()
    for at in range(0, len(whole), 97):
        (tmp_path / "orders.json").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        assert f"byte {at}:" in demo_faults(tmp_path, DEMO_RESULT)[0]
    for broken in (whole[:-1], whole + b"\n", whole.replace(b"\n", b"\r\n"), b""):
        (tmp_path / "orders.json").write_bytes(broken)
        assert len(demo_faults(tmp_path, DEMO_RESULT)) == 1


def test_the_check_sees_a_wrong_result(tmp_path: Path) -> None:
    good(tmp_path)
    assert demo_faults(tmp_path, {**DEMO_RESULT, "in_stock": 40}) == [
        f"the result is {dict(DEMO_RESULT, in_stock=40)!r}"
    ]
    assert demo_faults(tmp_path, None) == ["the result is None"]


def test_the_scripted_person_is_seen_answering() -> None:
    said: list[str] = []
    question = Question(
        permit=Permit(action=Action(verb="click")), what="click Delete", where="Order desk", why="it deletes"
    )
    assert ScriptedPerson(said.append).allows(question)
    assert "click Delete" in said[0]
    assert "yes" in said[1]
