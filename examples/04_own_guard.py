"""What the guards make of six actions, with a rule of your own on top: nothing is sent, whatever you say.

You will see: each action, and whether it is permitted, refused, or asked about, and why.
Touched: nothing. The windows and the picture are made up.

    python3 examples/04_own_guard.py
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import agent_solo as solo
from agent_solo import Action, Box, ShotPoint, Window

MAIL = Window(id="1", title="Mail", app="mail", pid=7, box=Box(x=0, y=0, width=640, height=480), focused=True)
BANK = Window(id="2", title="Bank", app="bank", pid=8, box=Box(x=640, y=0, width=640, height=480))
BUTTON = Box(x=10, y=10, width=80, height=30)
SEND = solo.Element(ref="e1", role="button", name="Send", box=BUTTON, window="1")
SHOT = solo.Shot(width=1280, height=480, area=Box(x=0, y=0, width=1280, height=480))
PICTURE = solo.Picture(data=b"", mime="image/png")
FRAME = solo.Frame(shot=SHOT, picture=PICTURE, digest=0, cells=b"", columns=0)
SEEN = solo.Snapshot(id="s1", time=0, frame=FRAME, windows=(MAIL, BANK), elements=(SEND,))
ACTIONS = (
    Action(verb="click", point=ShotPoint(x=300, y=300)),
    Action(verb="click", point=ShotPoint(x=900, y=300)),
    Action(verb="click", ref="e1"),
    Action(verb="input", parameter="See you on Monday. 到时见"),
    Action(verb="input", parameter="rm -rf ~/mail"),
    Action(verb="keypress", parameter="ctrl+q"),
)


class Silent(solo.Policy):
    """The program's own rules, and one more; it can only be stricter, for nobody else makes a Permit."""

    def judge(self, action, seen, windows, *, said=""):
        verdict = super().judge(action, seen, windows, said=said)
        if isinstance(verdict, solo.Question) and "Send" in verdict.what:
            return solo.Refusal(action=action, code="POLICY_DENIED", message="nothing is sent")
        return verdict


def main() -> None:
    policy = Silent(solo.Rules(patterns=("Mail",)), {})
    for action in ACTIONS:
        verdict = policy.judge(action, SEEN, SEEN.windows)
        word = {"Permit": "permitted", "Refusal": "refused", "Question": "asked about"}[
            type(verdict).__name__
        ]
        why = getattr(verdict, "message", "") or getattr(verdict, "why", "")
        what = action.parameter or action.ref or f"{action.point.x}, {action.point.y}"
        print(f"{action.verb} {what}: {word}{': ' if why else ''}{why}")


if __name__ == "__main__":
    main()
