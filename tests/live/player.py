"""A scripted model in a process of its own: an OpenAI-compatible server that plays one scenario by what it is shown.

    python player.py SCENARIO ARGUMENTS.json     prints its base URL, then serves until it is ended

A scenario is a generator: it is sent the text of each observation and yields the next action. It names elements as a
model would, by the refs in the list it was given, and reads results where a model reads them. Beside them, "refuse" answers
with the status and the body given, and "hang" never answers.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import threading
import time
from collections.abc import Callable, Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Play = Generator[dict[str, Any], str, None]


def act(action: str, parameter: str = "", **more: Any) -> dict[str, Any]:
    """One step as a model writes it."""
    blank = {"reasoning": "", "ref": None, "x": None, "y": None, "x2": None, "y2": None, "expect": ""}
    return {**blank, "action": action, "parameter": parameter, **more}


def ref(text: str, role: str, name: str) -> str:
    """The ref of the one element of that role and name in the list."""
    found = re.findall(rf'^(e\d+) {role} "{re.escape(name)}"', text, re.M)
    assert found, f"no {role} {name!r} in:\n{text}"
    return found[-1]


def database(arguments: dict[str, str]) -> Play:
    """Start DB Browser, open the table through its window, read the newest users through the SQLite server."""
    text = yield act("launch", f"sqlitebrowser {arguments['file']}")
    for _ in range(20):
        if re.search(r'^e\d+ tab "Browse Data"', text, re.M):
            break
        text = yield act("wait", "0.3")
    text = yield act("click", ref=ref(text, "tab", "Browse Data"))
    for _ in range(20):
        if re.search(r'^e\d+ cell "user1@example.org"', text, re.M):
            break
        text = yield act("wait", "0.3")
    assert re.search(r"- \d+ of 500", text), f"the table is not shown:\n{text}"
    query = "SELECT id, name, email FROM users ORDER BY id DESC LIMIT 10"
    tool = re.findall(r"[\w-]*read_query", text + arguments["system"])[0]
    text = yield act("tool", json.dumps({"name": tool, "arguments": {"query": query}}))
    rows = ast.literal_eval(re.search(r"\[\{.*?\}\]", text, re.S)[0])
    yield act("finish", json.dumps(rows))


def editor(arguments: dict[str, str]) -> Play:
    """Type a page into an editor and save it under a new name through the file dialog."""
    yield act("launch", "mousepad")
    yield act("input", arguments["page"])
    text = yield act("keypress", "ctrl+shift+s")
    for _ in range(20):
        if '"Save As" of' in text:
            break
        text = yield act("wait", "0.3")
    yield act("keypress", "ctrl+a")
    yield act("input", arguments["path"])
    yield act("keypress", "Return")
    for _ in range(20):
        if Path(arguments["path"]).exists():
            break
        yield act("wait", "0.3")
    yield act("finish", json.dumps({"saved": arguments["path"]}))


def steps(arguments: dict[str, Any]) -> Play:
    """The steps as written, over and over; one with a gate says that it was asked, and comes when the gate is there."""
    while True:
        for step in arguments["steps"]:
            if gate := step.pop("gate", None):
                Path(f"{gate}.asked").touch()
                while not Path(gate).exists():
                    time.sleep(0.02)
            yield act(**step)


SCENARIOS: dict[str, Callable[[dict[str, Any]], Play]] = {
    "database": database,
    "editor": editor,
    "steps": steps,
}


class Player:
    """Plays a scenario: one action for each request that asks for one."""

    def __init__(self, scenario: str, arguments: dict[str, Any]) -> None:
        self.scenario, self.arguments, self.play = scenario, arguments, None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What the server says to this request."""
        contents = [message["content"] for message in request["messages"]]
        texts = [c if isinstance(c, str) else "\n".join(p.get("text", "") for p in c) for c in contents]
        try:
            if self.play is None:
                self.play = SCENARIOS[self.scenario]({**self.arguments, "system": texts[0]})
                step = next(self.play)
            else:
                step = self.play.send("\n".join(texts[-2:]))
        except (AssertionError, TypeError, IndexError, SyntaxError) as lost:
            step = act("fail", f"the script is lost: {lost}")
        message = {"role": "assistant", "content": json.dumps(step, ensure_ascii=False)}
        usage = {
            "prompt_tokens": sum(map(len, texts)) // 4,
            "completion_tokens": len(message["content"]) // 4,
        }
        return {"id": "x", "object": "chat.completion", "created": 0, "model": "player", "usage": usage,
                "choices": [{"index": 0, "finish_reason": "stop", "message": message}]}  # fmt: skip


def main() -> None:
    """Serve until ended."""
    scenario, arguments = sys.argv[1], json.loads(Path(sys.argv[2]).read_text("utf-8"))
    player = Player(scenario, arguments)

    class Exchange(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if scenario == "hang":
                Path(arguments["asked"]).touch()
                threading.Event().wait()
            refused = scenario == "refuse"
            data = json.dumps(arguments["body"] if refused else player.answer(request)).encode()
            self.send_response(arguments["status"] if refused else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exchange)
    print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
