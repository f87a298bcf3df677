"""Record what real applications answer over AT-SPI, for tests/test_tree.py: python tests/record.py

Each file in tests/recorded holds the windows, and every call with its answer, of one look.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "live")]

from desk import Desk  # noqa: E402

from agent_solo import Bus, Clock, SystemClock, Tree, this_host  # noqa: E402

PROGRAMS: dict[str, tuple[str, list[str]]] = {
    "gtk3": ("Express", ["/usr/bin/python3", str(HERE / "live/fixtures/tree_gtk.py"), "3.0", os.devnull]),
    "gtk4": ("Express", ["/usr/bin/python3", str(HERE / "live/fixtures/tree_gtk.py"), "4.0", os.devnull]),
    "qt5": ("Execute SQL", ["sqlitebrowser"]),
    "qt6": ("Express", [sys.executable, str(HERE / "live/fixtures/tree_qt.py"), os.devnull]),
}


class Recorder(Bus):
    """A bus that writes down what it hears."""

    def __init__(self, environ: Mapping[str, str], clock: Clock) -> None:
        self.heard: dict[str, Any] = {}
        super().__init__(environ, clock)

    def ask(self, calls: Sequence[Any], *, until: float) -> list[Any]:
        """As the real one."""
        answers = super().ask(calls, until=until)
        heard = {json.dumps(call): answer for call, answer in zip(calls, answers, strict=True)}
        self.heard |= {
            call: answer for call, answer in heard.items() if "GetAddress" not in call
        }  # a path here
        return answers


def record(name: str, waited: str, argv: list[str], desk: Desk) -> None:
    """One look at one application, as soon as it shows what is waited for."""
    host = this_host(desk.home, SystemClock(), os.environ)
    host.open()
    desk.start(argv)

    def look() -> dict[str, Any]:
        recorders: list[Recorder] = []

        def connect(environ: Mapping[str, str], clock: Clock) -> Recorder:
            recorders.append(Recorder(environ, clock))
            return recorders[0]

        plugs: dict[str, Any] = {"touch": None, "allowed": lambda _: True, "environ": os.environ}
        tree = Tree(host, SystemClock(), connect=connect, **plugs)
        windows, sight = [asdict(window) for window in host.windows()], tree.look(acted=False)
        tree.close()
        ready = any(element.name == waited for element in sight.elements)
        return {"id": recorders[0].id, "windows": windows, "calls": recorders[0].heard} if ready else {}

    desk.wait(look)
    told = desk.wait(look)  # again: by now it answers in bulk, if it ever does
    lines = [f"  {json.dumps(call)}: {json.dumps(answer)}" for call, answer in told["calls"].items()]
    head = f'{{"id": {json.dumps(told["id"])},\n "windows": {json.dumps(told["windows"])},\n "calls": {{\n'
    (HERE / "recorded" / f"{name}.json").write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    desk.clear()
    host.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, Desk(Path(folder)) as made:
        os.environ.update(made.env)
        for name, (waited, argv) in PROGRAMS.items():
            record(name, waited, argv, made)
