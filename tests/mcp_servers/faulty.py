"""An MCP server over stdio with one fault, named by its first argument; standard library only.

    python faulty.py FAULT [FILE]

Each call of a tool adds a line to FILE, so that a test can see what was run and how often.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FAULT = sys.argv[1] if len(sys.argv) > 1 else "none"
CALLS = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(os.devnull)
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(2000)).decode()
NAMES = [
    "echo",
    "refuse",
    "picture",
    "sound",
    "shape",
    "empty",
    "large",
    "blob",
    "script",
    "die",
    "sleep",
    "asks",
    "environ",
    "pid",
    "deaf",
    "endless",
    "slow",
]
held: list[dict[str, Any]] = []  # requests kept back, to be answered in reverse


def write(message: object) -> None:
    """One line, in UTF-8 whatever the locale."""
    sys.stdout.buffer.write(
        json.dumps(message, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
    )
    sys.stdout.buffer.flush()


def answer(request: dict[str, Any], result: object) -> None:
    """The result of a request, under its id or what the fault makes of it."""
    number = str(request["id"]) if FAULT == "string-ids" else request["id"]
    if FAULT == "stray-answers":
        write({"jsonrpc": "2.0", "id": 9999, "result": {}})
        write({"jsonrpc": "2.0", "id": [1], "result": {}})
        write([1, None, "x"])
    write({"jsonrpc": "2.0", "id": number, "result": result})
    if FAULT == "stray-answers":
        write({"jsonrpc": "2.0", "id": number, "result": {"content": [{"type": "text", "text": "twice"}]}})


def requests() -> Iterator[dict[str, Any]]:
    """What the client writes, until it hangs up."""
    for line in sys.stdin.buffer:
        yield json.loads(line)


def text(words: str, **more: object) -> dict[str, Any]:
    """A result of one text."""
    return {"content": [{"type": "text", "text": words}], **more}


def listed(params: dict[str, Any]) -> dict[str, Any]:
    """One page of tools."""
    names = [f"tool{n}" for n in range(101)] if FAULT in ("pages", "same-cursor") else list(NAMES)
    if FAULT == "changes" and CALLS.exists():
        names.append("late")
    if FAULT == "odd-names":
        names = ["a.b/c d", "入", "出", "x" * 80, "x" * 81, "a.b/c_d"]
    tools: list[Any] = [
        {"name": n, "description": f"does {n}", "inputSchema": {"type": "object"}} for n in names
    ]
    tools += [{"name": "chore", "execution": {"taskSupport": "required"}}, {"name": None}, "junk"]
    start = int(params.get("cursor") or 0)
    page: dict[str, Any] = {"tools": tools[start : start + 50]}
    if FAULT == "same-cursor":
        page["nextCursor"] = "50"
    elif start + 50 < len(tools):
        page["nextCursor"] = str(start + 50)
    return page


def asked(method: str) -> Any:
    """What the client answers when it is asked something during a call."""
    write({"jsonrpc": "2.0", "id": f"s-{method}", "method": method})
    reply = next(requests())
    return reply.get("result", reply.get("error"))


def called(request: dict[str, Any]) -> dict[str, Any]:
    """Run one tool."""
    name, arguments = request["params"]["name"], request["params"]["arguments"]
    with CALLS.open("a", encoding="utf-8") as file:
        file.write(f"{name} {json.dumps(arguments, ensure_ascii=False)}\n")
    if name == "die":
        sys.stderr.write("\x1b[31mout of paper\x1b[0m\n")
        sys.stderr.flush()
        os._exit(7)
    if name == "endless":
        sys.stdout.buffer.write(b"x" * (64 * 2**20 + 1))
        sys.stdout.buffer.flush()
    if name == "deaf":
        time.sleep(3600)
    if name == "sleep":
        note = next(requests())  # the cancellation
        with CALLS.open("a", encoding="utf-8") as file:
            file.write(f"{note['method']} {note['params']['requestId'] == request['id']}\n")
    if name == "slow":
        token = request["params"]["_meta"]["progressToken"]
        for n in range(3):
            time.sleep(0.5)
            params = {"progressToken": token, "progress": n}
            write({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return text("done")
    if name == "asks":
        return text(
            json.dumps(
                [
                    asked(method)
                    for method in (
                        "ping",
                        "roots/list",
                        "sampling/createMessage",
                        "x/y",
                        "elicitation/create",
                    )
                ]
            )
        )
    results = {
        "refuse": text("no such order", isError=True),
        "picture": {
            "content": [
                text("a chart")["content"][0],
                {"type": "image", "data": PNG, "mimeType": "image/jpeg"},
            ],
            "structuredContent": {"data": PNG},
        },
        "sound": {
            "content": [{"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}, {"type": "new", "x": 1}]
        },
        "shape": {"content": [], "structuredContent": {"rows": [1, 2]}},
        "empty": {},
        "large": text("first " + "word " * 2**20 + "last"),
        "blob": text("before data:image/png;base64," + PNG + " after"),
        "script": text("a\u2028b\u0085c 入✅ \ud800"),
        "pid": text(str(os.getpid())),
        "environ": text(json.dumps(dict(os.environ))),
    }
    return results[name] if name in results else text(json.dumps(arguments, ensure_ascii=False))


def handle(request: dict[str, Any]) -> None:
    """Answer one request; notifications are listened to in silence."""
    method = request.get("method")
    if method == "initialize":
        if FAULT == "silent":
            return
        version = {"future": "2099-01-01", "oldest": "2024-11-05"}.get(
            FAULT, request["params"]["protocolVersion"]
        )
        server = {"name": "faulty", "version": "1"}
        answer(request, {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server})
    elif method == "tools/list":
        if FAULT == "changes":
            write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        answer(request, listed(request.get("params", {})))
    elif method == "tools/call" and FAULT == "reverse" and len(held) < 1:
        held.append(request)
    elif method == "tools/call":
        if FAULT == "error":
            write({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32602, "message": "bad day"}})
            return
        for one in (request, *held):
            answer(one, called(one))
        held.clear()
        if FAULT == "dies-after":
            os._exit(3)
        if FAULT == "changes":
            write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})


def main() -> None:
    """Serve until the client hangs up."""
    if FAULT == "exits":
        sys.exit("cannot open the ledger")
    while FAULT == "gated" and not CALLS.exists():
        time.sleep(0.01)
    if FAULT == "banner":
        sys.stdout.buffer.write(b"\xef\xbb\xbf* ready *\n\n42\n[]\n{bad\n\x1b[32mlog\x1b[0m\n\xff\xfe\n")
        sys.stdout.buffer.flush()
    if FAULT == "flood":
        sys.stderr.write("warning\n" * (2**18 // 8))
        sys.stderr.flush()
    if FAULT == "deaf":
        sys.stdin.buffer.readline()
        time.sleep(3600)
    for request in requests():
        handle(request)
    if FAULT == "lingers":
        time.sleep(3600)


main()
