"""What the program makes of a model's reply: three replies, one action, the same pixel.

You will see: each reply, and under it the action that was read from it, or what the model would be told.
Touched: nothing. No screen, no network, no file.

    python3 examples/02_parse.py
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from agent_solo import Space, Unreadable, action_fields, parse_reply

REPLIES = (
    # The form that the program asks for, from a model that counts pixels.
    (
        Space(unit="px"),
        '{"reasoning": "Save is here.", "action": "click", "x": 672, "y": 378, "parameter": ""}',
    ),
    # A model that counts in thousandths, with prose and a fence around its answer.
    (Space(unit="1000"), 'I will save it.\n```json\n{"action": "click", "x": 500, "y": 500}\n```'),
    # The words of other tools are understood too.
    (Space(unit="px"), '{"action": "left_click", "coordinate": [672, 378]}'),
    # A reply that was cut off is never completed by guessing: 37 might have been 378.
    (Space(unit="px"), '{"action": "click", "x": 672, "y": 37'),
    # A key that does not exist is an error with the nearest names.
    (Space(unit="px"), '{"action": "keypress", "parameter": "ctrl+retrun"}'),
)


def main() -> None:
    for space, reply in REPLIES:
        action = parse_reply(reply, space=space, width=1344, height=756).action
        print(reply)
        if isinstance(action, Unreadable):
            print(f"  the model is told: {action.code}: {action.message}\n")
        else:
            print(f"  read as: {json.dumps(action_fields(action))}\n")


if __name__ == "__main__":
    main()
