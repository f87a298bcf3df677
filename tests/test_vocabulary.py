"""The vocabulary: every recorded reply, every key's names, the schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agent_solo import parse_command, parse_keys, parse_scroll, parse_space

CASES = json.loads(Path(__file__).with_name("cases").joinpath("model_replies.json").read_text("utf-8"))[
    "cases"
]


def parsed(case: dict[str, Any]) -> tuple[dict[str, Any], int]:
    told = case["space"]
    width, height = told["size"]
    space = parse_space(f"{told['space']},{told['order']}")
    return parse_command(json.dumps(case["reply"]), space=space, width=width, height=height)


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_recorded_reply(case: dict[str, Any]) -> None:
    """Judged as the file's own "about" says."""
    expected = case["expect"]
    action, status = parsed(case)
    if "error" in expected:
        assert status == 1, action
        assert set(action) == {"error"}
        assert action["error"]["message"]
        assert expected["error"] in ("any", action["error"]["code"]), action
        return
    assert status == 0, action
    for name, value in expected.items():
        if name == "direction":
            right, down = parse_scroll(action["parameter"])
            assert {"down": down > 0, "up": down < 0, "left": right < 0, "right": right > 0}[value]
        elif isinstance(value, (int, float)):
            assert abs(action[name] - value) <= 1, (name, action)
        elif name == "parameter" and action["action"] == "keypress":
            assert set(parse_keys(action[name])) == set(parse_keys(value))
        else:
            assert action[name] == value, (name, action)
