"""The vocabulary: every recorded reply, the shapes around them, every key's names, the schema."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_solo import (
    BUTTONS,
    KEYS,
    MODIFIERS,
    VERBS,
    Action,
    Reader,
    ShotPoint,
    Space,
    TellModel,
    Unreadable,
    action_fields,
    action_schema,
    channel_of,
    describe_verbs,
    held_keys,
    parse_click,
    parse_command,
    parse_keys,
    parse_reply,
    parse_scroll,
    parse_space,
)

FOLDER = Path(__file__).with_name("cases")
RECORDED = json.loads(FOLDER.joinpath("model_replies.json").read_text("utf-8"))["cases"]
MORE = json.loads(FOLDER.joinpath("more_replies.json").read_text("utf-8"))["cases"]
PX = Space()


def parsed(case: dict[str, Any]) -> dict[str, Any]:
    """What `parse` prints for a case."""
    told = case["space"]
    width, height = told["size"]
    space = parse_space(f"{told['space']},{told['order']}")
    shown, status = parse_command(json.dumps(case["reply"]), space=space, width=width, height=height)
    assert status == (1 if "error" in shown else 0)
    if status:
        assert set(shown) == {"error"}
        assert shown["error"]["message"]
    return shown


@pytest.mark.parametrize("case", RECORDED, ids=[case["id"] for case in RECORDED])
def test_recorded_reply(case: dict[str, Any]) -> None:
    """Judged as the file's own "about" says."""
    expected, shown = case["expect"], parsed(case)
    if "error" in expected:
        assert expected["error"] in ("any", shown["error"]["code"]), shown
        return
    for name, value in expected.items():
        if name == "direction":
            right, down = parse_scroll(shown["parameter"])
            assert {"down": down > 0, "up": down < 0, "left": right < 0, "right": right > 0}[value]
        elif isinstance(value, (int, float)):
            assert abs(shown[name] - value) <= 1, (name, shown)
        elif name == "parameter" and shown["action"] == "keypress":
            assert set(parse_keys(shown[name])) == set(parse_keys(value))
        else:
            assert shown[name] == value, (name, shown)


@pytest.mark.parametrize("case", MORE, ids=[case["id"] for case in MORE])
def test_reply(case: dict[str, Any]) -> None:
    shown = parsed(case)
    if "error" in shown:
        assert {"error": shown["error"]["code"]} == case["expect"], shown
    else:
        assert {name: value for name, value in shown.items() if value is not None} == case["expect"]


BARE = [
    case
    for case in RECORDED
    if set(case["reply"]) == {"content"} and isinstance(case["reply"]["content"], str)
]


@pytest.mark.parametrize("case", BARE, ids=[case["id"] for case in BARE])
def test_a_bare_text_a_message_and_a_response_mean_the_same(case: dict[str, Any]) -> None:
    reply, told = case["reply"], case["space"]
    response = {"choices": [{"message": {"role": "assistant", **reply}, "finish_reason": "stop"}]}
    place = {"space": parse_space(f"{told['space']},{told['order']}"), "width": 1280, "height": 720}
    texts = (reply["content"], json.dumps(reply), json.dumps(response))
    bare, message, whole = (parse_command(text, **place) for text in texts)
    assert bare == message == whole


def test_reasoning_expectation_and_notes_come_along() -> None:
    reply = {"reasoning": "r", "action": {"type": "wait"}, "expect": "e"}
    decision = parse_reply(json.dumps(reply), space=PX, width=10, height=10)
    assert (decision.reasoning, decision.expect, decision.note) == ("r", "e", "")
    decision = parse_reply("Thought: why\nAction: wait()\nfinished()", space=PX, width=10, height=10)
    assert decision.reasoning == "why"
    assert "first" in decision.note
    decision = parse_reply('[{"action":"wait"},{"action":"fail"}]', space=PX, width=10, height=10)
    assert "first" in decision.note
    decision = parse_reply({"content": "", "reasoning": '{"action":"wait"}'}, space=PX, width=10, height=10)
    assert "reasoning" in decision.note


def test_an_error_quotes_the_reply_and_says_what_to_write() -> None:
    action = parse_reply("I will press the button.", space=PX, width=10, height=10).action
    assert isinstance(action, Unreadable)
    assert "I will press the button." in action.message
    assert '{"action"' in action.message
    assert action.raw == "I will press the button."
    told = parse_reply('{"action":"click","x":11,"y":3}', space=PX, width=10, height=10).action
    assert isinstance(told, Unreadable)
    assert "x 0 to 9" in told.message


def test_every_action_reads_back_from_its_own_fields() -> None:
    at, to = ShotPoint(x=5, y=6), ShotPoint(x=7, y=8)
    shown = {
        "keypress": "ctrl+s",
        "scroll": "ctrl+down 3",
        "wait": "2",
        "tool": '{"name": "a", "arguments": {"b": 1}}',
    }
    for verb in VERBS.values():
        ref = "e3" if "ref" in verb.needs else ""
        parameter = shown.get(verb.name, "ctrl" if verb.name.endswith("click") else "some text")
        action = Action(
            verb=verb.name,
            ref=ref,
            snapshot="s1" if ref else "",
            point=at if "point" in verb.fields else None,
            to=to if "to" in verb.fields else None,
            parameter=parameter if "parameter" in verb.fields else "",
        )
        again = parse_reply(json.dumps(action_fields(action)), space=PX, width=100, height=100).action
        assert again == action


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda key: key == key.strip()), inner),
    max_leaves=20,
)


@given(
    st.dictionaries(st.sampled_from(["a", "b c", "", 'd"e']), json_values) | st.lists(json_values),
    st.booleans(),
)
def test_what_is_json_is_read_as_json(value: Any, ascii_only: bool) -> None:
    assert Reader(json.dumps(value, ensure_ascii=ascii_only)).value() == value
    assert Reader(json.dumps(value, indent=1)).value() == value


KEY_NAMES = {
    "enter": "Return enter ENTER KP_Enter return \n",
    "esc": "Escape esc ESC",
    "backspace": "BackSpace Backspace back_space",
    "delete": "Delete del Del",
    "pagedown": "Page_Down PageDown pgdn page-down Next",
    "pageup": "Page_Up PageUp pgup Prior",
    "left": "ArrowLeft Left left KP_Left Left_Arrow",
    "up": "ArrowUp Up",
    "ctrl": "ctrl Ctrl Control Control_L control",
    "command": "cmd Cmd command Command",
    "win": "super Super_L Meta win Windows",
    "alt": "alt Alt_L option Option",
    "altright": "AltGr ISO_Level3_Shift",
    "tab": "Tab tab ISO_Left_Tab",
    "space": "space Space",
    "capslock": "Caps_Lock CapsLock",
    "apps": "Menu ContextMenu apps",
    "printscreen": "Print PrintScreen print_screen Prt_Sc",
    "num7": "KP_7 numpad7 num7 Numpad7",
    "add": "KP_Add NumpadAdd",
    "volumeup": "XF86AudioRaiseVolume VolumeUp volume_up AudioVolumeUp",
    "playpause": "XF86AudioPlay playpause MediaPlayPause",
    "f12": "F12 f12",
    "f24": "F24",
    "+": "plus + Plus",
    "-": "minus - hyphen",
    "/": "slash / Slash",
    ".": "period dot .",
    ",": "comma ,",
    "[": "bracketleft [ BracketLeft",
    "\\": "backslash \\ Backslash",
    "_": "underscore _",
    "=": "equal Equal =",
    "a": "a A",
    "é": "é",
    "5": "5",
}


@pytest.mark.parametrize("name", KEY_NAMES)
def test_key_names(name: str) -> None:
    for alias in KEY_NAMES[name].split(" "):
        if alias.strip():
            assert parse_keys(alias) == (name,), alias


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("ctrl+shift+s", ("ctrl", "shift", "s")),
        ("Ctrl + Shift + S", ("ctrl", "shift", "s")),
        ("ctrl++", ("ctrl", "+")),
        ("ctrl+plus", ("ctrl", "+")),
        ("ctrl + +", ("ctrl", "+")),
        ("ctrl+-", ("ctrl", "-")),
        ("ctrl-c", ("ctrl", "c")),
        ("ctrl c", ("ctrl", "c")),
        ("ctrl shift Page_Down", ("ctrl", "shift", "pagedown")),
        ("ctrl+page down", ("ctrl", "pagedown")),
        ("Page Down", ("pagedown",)),
        ("alt+F4", ("alt", "f4")),
        (" ", ("space",)),
        ("ctrl+a+b", ("ctrl", "a", "b")),
    ],
)
def test_chords(text: str, keys: tuple[str, ...]) -> None:
    assert parse_keys(text) == keys
    assert parse_keys("+".join(keys)) == keys


@pytest.mark.parametrize(
    "text", ["", "entr", "ctrl+", "a b", "hello world", "ctrl+foo", "F25", "Down Down", "\x00"]
)
def test_no_chord(text: str) -> None:
    with pytest.raises(TellModel) as told:
        parse_keys(text)
    assert told.value.code == "INVALID_ARGS"


def test_an_unknown_key_is_told_its_neighbours() -> None:
    with pytest.raises(TellModel, match=r"pagedown"):
        parse_keys("ctrl+PageDwn")


def test_keys_are_names_that_pyautogui_has() -> None:
    names = Path(__file__).with_name("recorded").joinpath("pyautogui_keys.txt")
    known = set(names.read_text("utf-8").split())
    assert {key for key in KEYS.values() if len(key) > 1} <= known


def test_click_parameters() -> None:
    assert parse_click("") == ("left", ())
    assert parse_click("ctrl+shift") == ("left", ("ctrl", "shift"))
    assert parse_click("back") == ("back", ())
    assert parse_click("Super+wheel") == ("middle", ("win",))
    for wrong in ("a", "ctrl+left+right", "the OK button", "crtl"):
        with pytest.raises(TellModel):
            parse_click(wrong)
    assert set(BUTTONS.values()) == {"left", "right", "middle", "back", "forward"}


def test_scroll_parameters() -> None:
    assert parse_scroll("down 3") == (0, 3)
    assert parse_scroll("up") == (0, -3)
    assert parse_scroll("Left, 2 notches") == (-2, 0)
    assert parse_scroll("ctrl+right 1") == (1, 0)
    assert held_keys(Action(verb="scroll", parameter="ctrl+shift+down 2")) == ("ctrl", "shift")
    assert held_keys(Action(verb="click", parameter="alt")) == ("alt",)
    for wrong in ("", "3", "down 0", "down 101", "downward", "q+down", "down 99999999999999999999"):
        with pytest.raises(TellModel):
            parse_scroll(wrong)


def test_schema_is_one_that_every_strict_server_takes() -> None:
    schema = action_schema()
    properties = schema["properties"]
    assert next(iter(properties)) == "reasoning"
    assert schema["required"] == list(properties)
    assert schema["additionalProperties"] is False
    assert properties["action"]["enum"] == list(VERBS)
    assert properties["x"]["type"] == ["number", "null"]
    told = json.dumps(schema)
    assert not re.search(r"minimum|maximum|minLength|pattern|format|oneOf|anyOf|\$ref", told)


def test_every_verb_is_described_once_and_well_formed() -> None:
    lines = describe_verbs().splitlines()
    assert [line.split(":")[0] for line in lines] == list(VERBS)
    for verb in VERBS.values():
        assert set(verb.fields) <= {"ref", "point", "to", "parameter"}
        assert set(verb.needs) <= {*verb.fields, "target"}
        assert verb.channel in ("pixels", "tree", "host", "tools", "aside")
        assert verb.risk in ("label", "text", "keys", "start", "tool", "none")
        assert bool(verb.takes) == ("parameter" in verb.fields)
        assert verb.meaning
    assert set(KEYS.values()) >= MODIFIERS


def test_channels() -> None:
    at = ShotPoint(x=1, y=1)
    assert channel_of(Action(verb="click", point=at)) == "pixels"
    assert channel_of(Action(verb="click", ref="e1")) == "tree"
    assert channel_of(Action(verb="right_click", ref="e1")) == "pixels"
    assert channel_of(Action(verb="right_click", ref="w1")) == "pages"
    assert channel_of(Action(verb="click", ref="o1")) == "pixels"
    assert channel_of(Action(verb="set_value", ref="w1", parameter="x")) == "pages"
    assert channel_of(Action(verb="input", parameter="x")) == "pixels"
    assert channel_of(Action(verb="launch", parameter="x")) == "pixels"
    assert channel_of(Action(verb="tool", parameter="{}")) == "tools"
    assert channel_of(Action(verb="finish")) == "aside"
