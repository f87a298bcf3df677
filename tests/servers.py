"""A scripted OpenAI-compatible server over real HTTP, which can also refuse, fail, dawdle and die.

In a test, on a thread:

    with serve([{"content": "..."}, {"status": 429, "headers": {"Retry-After": "7"}}]) as server:
        ...  # server.url, server.requests

In another process:

    python tests/servers.py --port-file FILE [--record FILE] script.json

where the script is a list of replies, or {"replies": [...], "refusals": [...], "models": [...]}.

A reply is one of
    {"content": "...", "finish_reason": "stop", "tool_calls": [...], "reasoning": "...", "usage": {...}}
    {"action": {...}}                         the same, with this object as the content
    {"status": 400, "body": ..., "headers": {...}}   the body is JSON, or a text sent as it is
    {"die": true}                             half an answer, then a closed connection
with "slow": SECONDS beside any of it. When the replies are used up the last one is given again. `replies` may
be a function of the request's body and its number. A refusal, {"if": PATTERN, "status": ..., "body": ...},
goes before any reply, as long as its pattern is found in the request's JSON; pictures are shortened there.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Reply = Mapping[str, Any]
Replies = Sequence[Reply] | Callable[[dict[str, Any], int], Reply]
USAGE = {"prompt_tokens": 1000, "completion_tokens": 50, "total_tokens": 1050}


def completion(reply: Reply) -> dict[str, Any]:
    """A reply as chat.completion."""
    message = {"role": "assistant", "content": reply.get("content")}
    if "action" in reply:
        message["content"] = json.dumps(reply["action"], ensure_ascii=False)
    message |= {
        key: reply[key] for key in ("tool_calls", "reasoning", "reasoning_content", "refusal") if key in reply
    }
    choice = {"index": 0, "message": message, "finish_reason": reply.get("finish_reason", "stop")}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [choice],
        "usage": reply.get("usage", USAGE),
    }


def wire(reply: Reply) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and bytes of a reply."""
    body = reply["body"] if "body" in reply else "" if "status" in reply else completion(reply)
    kind = "text/html" if isinstance(body, str) else "application/json"
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return reply.get("status", 200), {"Content-Type": kind, **reply.get("headers", {})}, text.encode()


class Server(ThreadingHTTPServer):
    """Every request is kept in `requests`: path, headers and body."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        replies: Replies,
        *,
        refusals: Sequence[Reply] = (),
        models: Sequence[str] = ("scripted-vl",),
        record: str = "",
    ) -> None:
        super().__init__(("127.0.0.1", 0), Wire)
        self.replies, self.refusals, self.models, self.record = replies, refusals, models, record
        self.requests: list[dict[str, Any]] = []
        self.answered = 0  # replies given, refusals not counted
        self.asked = threading.Event()  # set once there was a request
        self.over = threading.Event()  # ends every dawdling
        self.turn = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        """The chat requests' bodies."""
        return [request["body"] for request in self.requests if request["body"] is not None]

    def answer(self, body: dict[str, Any]) -> Reply:
        """The refusal or reply that is next."""
        text = re.sub(
            r"(base64,.{20})[^\"]*", r"\1", json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        )
        for refusal in self.refusals:
            if re.search(refusal["if"], text):
                return refusal
        self.answered += 1
        if callable(self.replies):
            return self.replies(body, self.answered)
        return self.replies[min(self.answered, len(self.replies)) - 1]

    def keep(self, path: str, headers: Mapping[str, str], body: dict[str, Any] | None) -> None:
        """Remember a request, on disk if that was asked for."""
        lowered = {name.lower(): value for name, value in headers.items()}
        request = {"path": path, "headers": lowered, "body": body}
        self.requests.append(request)
        if self.record:
            with Path(self.record).open("a", encoding="utf-8") as file:
                file.write(json.dumps(request, ensure_ascii=False) + "\n")
        self.asked.set()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no error."""


class Wire(BaseHTTPRequestHandler):
    """HTTP around Server.answer."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.keep(self.path, self.headers, None)
        if self.path != "/v1/models":
            self.send(404, {"Content-Type": "application/json"}, b'{"error":{"message":"no such path"}}')
            return
        models = [{"id": name, "object": "model"} for name in self.server.models]
        self.send(
            200, {"Content-Type": "application/json"}, json.dumps({"object": "list", "data": models}).encode()
        )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.turn:
            self.server.keep(self.path, self.headers, body)
            reply = self.server.answer(body)
        self.server.over.wait(reply.get("slow", 0))
        status, headers, data = wire(reply)
        if reply.get("die"):
            self.send(
                200, {"Content-Type": "application/json"}, b'{"id":"chatcmpl-1","choices":[{"mess', short=True
            )
        else:
            self.send(status, headers, data)

    def send(self, status: int, headers: Mapping[str, str], data: bytes, *, short: bool = False) -> None:
        """`short` promises more bytes than come."""
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) + (1000 if short else 0)))
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = self.close_connection or short

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
        """Say nothing."""


@contextmanager
def serve(replies: Replies, **more: Any) -> Iterator[Server]:
    """A server on a thread of this process, until the block ends."""
    server = Server(replies, **more)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    """Serve until killed; the port is in the file as soon as the server listens."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("script")
    parser.add_argument("--port-file", required=True)
    parser.add_argument("--record", default="")
    args = parser.parse_args()
    script = json.loads(Path(args.script).read_text(encoding="utf-8"))
    script = {"replies": script} if isinstance(script, list) else script
    server = Server(**script, record=args.record)
    draft = Path(args.port_file + ".new")
    draft.write_text(str(server.server_address[1]), encoding="utf-8")
    draft.replace(args.port_file)
    server.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
