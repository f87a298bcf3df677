"""Chapter 14: MCP servers, well behaved and otherwise, over stdio and HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socketserver
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_solo as solo

FAULTY = Path(__file__).parent / "mcp_servers" / "faulty.py"
NOWHERE = solo.Snapshot(id="s1", time=0.0)
Make = Callable[..., solo.Tools]


def put_away(name: str, data: str | bytes) -> Path:
    """Keeps nothing."""
    return Path("/kept") / name


class RealClock:
    """Real time; `stop` ends every wait."""

    def __init__(self) -> None:
        self.stopped = False

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
        if self.stopped:
            raise solo.Interrupted("Stopped.")


class Notes:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def step(self, step: solo.Step) -> None: ...


def faulty(fault: str, name: str = "desk", calls: Path | None = None, **more: Any) -> solo.ServerConfig:
    """The server of tests/mcp_servers with one fault."""
    command = (sys.executable, str(FAULTY), fault, *([str(calls)] if calls else []))
    return solo.ServerConfig(name=name, command=command, **more)


def call(tools: solo.Tools, name: str, arguments: object = None) -> solo.Receipt:
    """What a permitted `tool` action gives."""
    parameter = json.dumps({"name": name, "arguments": arguments})
    return tools.act(solo.Permit(action=solo.Action(verb="tool", parameter=parameter)), NOWHERE)


def processes(*words: str) -> list[Path]:
    """The folders in /proc of running processes that have all of these in their command lines."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if set(words) <= set((folder / "cmdline").read_bytes().decode(errors="replace").split("\0")):
                found.append(folder)
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Make]:
    """Start tools; they are closed at the end."""
    made: list[solo.Tools] = []

    def keep(name: str, data: str | bytes) -> Path:
        path = tmp_path / f"kept-{name}"
        path.write_bytes(data.encode("utf-8", "replace") if isinstance(data, str) else data)
        return path

    def make(
        *configs: solo.ServerConfig, clock: solo.Clock | None = None, environ: Any = os.environ
    ) -> solo.Tools:
        tools = solo.Tools(configs, clock or RealClock(), Notes(), environ, keep=keep)
        made.append(tools)
        tools.start()
        return tools

    yield make
    for tools in made:
        tools.close()


# -- one server over stdio --------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["none", "banner", "flood", "string-ids", "stray-answers", "oldest"])
def test_a_call_answers_whatever_the_server_does_around_it(start: Make, fault: str) -> None:
    receipt = call(start(faulty(fault)), "desk__echo", {"text": "Zoë 订单 №7 🙂"})
    assert receipt.ok
    assert json.loads(receipt.message) == {"text": "Zoë 订单 №7 🙂"}
    assert (receipt.delivery, receipt.mechanism, receipt.command) == ("delivered_unverified", "tool", "tool")


def test_answers_out_of_order_reach_the_right_callers(start: Make) -> None:
    tools = start(faulty("reverse"))
    said: dict[int, str] = {}

    def ask(n: int) -> None:
        said[n] = call(tools, "echo", {"n": n}).message

    crew = [threading.Thread(target=ask, args=(n,)) for n in range(2)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    assert {n: json.loads(text) for n, text in said.items()} == {0: {"n": 0}, 1: {"n": 1}}


def test_an_error_of_the_tool_is_a_receipt(start: Make) -> None:
    receipt = call(start(faulty("none")), "refuse")
    assert (receipt.ok, receipt.code, receipt.message) == (False, "TOOL_FAILED", "no such order")
    assert receipt.envelope()["error"]["disposition"] == {
        "delivery": "delivered_unverified",
        "retry": "unsafe",
    }


def test_an_error_of_the_protocol_is_a_sentence(start: Make) -> None:
    with pytest.raises(solo.TellModel, match=r"\"desk\" answered with MCP error -32602: bad day") as caught:
        call(start(faulty("error")), "echo")
    assert (caught.value.code, caught.value.delivery) == ("TOOL_FAILED", "not_delivered")


def test_a_picture_arrives_as_a_picture_under_its_true_kind(start: Make) -> None:
    receipt = call(start(faulty("none")), "picture")
    assert receipt.message == "a chart"
    assert [picture.mime for picture in receipt.pictures] == ["image/png"]
    assert receipt.pictures[0].data.startswith(b"\x89PNG")


def test_other_content_is_named_and_nothing_is_dropped(start: Make, tmp_path: Path) -> None:
    receipt = call(start(faulty("none")), "sound")
    assert f"(audio/wav, 3 bytes, in {tmp_path / 'kept-desk__sound'})" in receipt.message
    assert '{"type": "new", "x": 1}' in receipt.message
    assert (tmp_path / "kept-desk__sound").read_bytes() == bytes(3)


def test_structured_content_alone_and_no_content(start: Make) -> None:
    tools = start(faulty("none"))
    assert call(tools, "shape").message == '{"rows": [1, 2]}'
    assert call(tools, "empty").message == "(0 pictures and no text)"


def test_a_long_answer_is_cut_and_kept_whole(start: Make, tmp_path: Path) -> None:
    receipt = call(start(faulty("none")), "large")  # one line of 5 MiB
    assert receipt.message.startswith("first word")
    assert "word last\n[" in receipt.message
    assert len(receipt.message) < 8_000
    assert str(tmp_path / "kept-desk__large") in receipt.message
    assert len((tmp_path / "kept-desk__large").read_text()) == 5 * 2**20 + 10


def test_base64_is_never_text(start: Make) -> None:
    message = call(start(faulty("none")), "blob").message
    assert re.match(r"before \(\d+ characters of base64\) after\n\[", message)


def test_line_separators_and_half_characters_survive(start: Make) -> None:
    assert call(start(faulty("none")), "script").message == "a\u2028b\u0085c 入✅ ?"


def test_the_server_may_ask_during_a_call(start: Make, tmp_path: Path) -> None:
    tools = start(faulty("none", calls=tmp_path / "calls", cwd=str(tmp_path)))
    ping, roots, sampling, other, elicited = json.loads(call(tools, "asks").message)
    assert elicited == {"action": "decline"}  # nobody could be asked
    assert ping == {}
    assert roots == {"roots": [{"uri": tmp_path.as_uri(), "name": tmp_path.name}]}
    assert (sampling["code"], other["code"]) == (-32601, -32601)


def test_a_server_inherits_a_short_list_and_never_the_keys(start: Make) -> None:
    environ = {**os.environ, "OPENAI_API_KEY": "sk-1", "LC_TIME": "C", "HTTPS_PROXY": "http://p"}
    seen = json.loads(call(start(faulty("none", env={"TOKEN": "t"}), environ=environ), "environ").message)
    assert "OPENAI_API_KEY" not in seen
    assert (seen["TOKEN"], seen["LC_TIME"], seen["HTTPS_PROXY"]) == ("t", "C", "http://p")
    assert seen["PATH"] == os.environ["PATH"]


# -- ends and silences ------------------------------------------------------------------------


def test_a_server_that_exits_on_start_is_a_problem_and_hurts_no_other(start: Make) -> None:
    tools = start(faulty("exits", "bad"), faulty("none", "good"))
    assert call(tools, "echo", {"a": 1}).ok
    (problem,) = tools.look(acted=False).notes
    assert problem == 'The MCP server "bad" has ended (exit status 1); it said: cannot open the ledger.'


def test_a_missing_program_is_a_problem(start: Make) -> None:
    (problem,) = start(solo.ServerConfig(name="bad", command=("no-such-program",))).problems
    assert problem.startswith(
        'The MCP server "bad" does not start: no-such-program cannot be started: No such file'
    )


def test_an_unknown_revision_is_a_problem(start: Make) -> None:
    assert "speaks revision 2099-01-01" in start(faulty("future")).problems[0]


def test_a_server_that_dies_during_a_call_is_not_called_again(start: Make, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    tools = start(faulty("none", calls=calls))
    with pytest.raises(solo.TellModel) as caught:
        call(tools, "die", {"n": 1})
    assert caught.value.sentence == 'The MCP server "desk" has ended (exit status 7); it said: out of paper.'
    assert (caught.value.code, caught.value.delivery) == ("APP_UNRESPONSIVE", "delivery_uncertain")
    assert calls.read_text() == 'die {"n": 1}\n'


def test_it_is_started_again_at_the_next_call_which_says_so(start: Make, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    tools = start(faulty("none", calls=calls))
    with pytest.raises(solo.TellModel):
        call(tools, "die")
    receipt = call(tools, "echo", {"n": 2})
    assert receipt.message == '(desk had ended and was started again.)\n{"n": 2}'
    assert calls.read_text() == 'die {}\necho {"n": 2}\n'


def test_a_server_that_ends_after_each_call_serves_each_call(start: Make) -> None:
    tools = start(faulty("dies-after"))
    seen = set()
    for _ in range(3):
        server = Path("/proc") / call(tools, "pid").message.split()[-1]
        seen.add(server)
        while server.exists():
            time.sleep(0.01)
    assert len(seen) == 3


def test_silence_is_a_timeout_that_may_have_run_and_is_cancelled(start: Make, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    tools = start(faulty("none", calls=calls, timeout=0.3))
    with pytest.raises(solo.TellModel, match=r"did not answer tools/call within 0.3 s") as caught:
        call(tools, "sleep")
    assert (caught.value.code, caught.value.delivery) == ("TIMEOUT", "delivery_uncertain")
    assert call(tools, "echo", {"still": "here"}).ok
    assert calls.read_text().splitlines()[:2] == ["sleep {}", "notifications/cancelled True"]


def test_a_line_without_an_end_ends_the_server(start: Make) -> None:
    with pytest.raises(solo.TellModel, match="sent a line that has no end") as caught:
        call(start(faulty("none")), "endless")
    assert caught.value.delivery == "delivery_uncertain"


class Hasty(RealClock):
    """A clock on which each look is ten seconds after the last."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0

    def now(self) -> float:
        self.time += 10
        return self.time


def test_a_silent_start_is_given_up_after_a_minute(start: Make) -> None:
    tools = start(faulty("silent"), clock=Hasty())
    while not tools.problems:
        time.sleep(0.01)
    assert tools.problems == ['The MCP server "desk" did not answer initialize within 60 s.']


class Leaping(RealClock):
    """A clock on which each look is a second after the last, until `step` is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.step, self.ahead = 1.0, 0.0

    def now(self) -> float:
        self.ahead += self.step
        return super().now() + self.ahead


def test_a_server_that_takes_long_delays_nobody_and_joins_later(start: Make, tmp_path: Path) -> None:
    gate, clock = tmp_path / "gate", Leaping()
    tools = start(faulty("gated", "slow", calls=gate), faulty("none", "quick"), clock=clock)
    clock.step = 0.0
    late = 'The MCP server "slow" is still starting; its tools join when it is.'
    assert late in tools.look(acted=False).notes
    gate.touch()
    notes: tuple[str, ...] = (late,)
    while late in notes:
        notes = tools.look(acted=False).notes
        time.sleep(0.01)
    assert call(tools, "slow__echo", {"a": 1}).ok


def test_a_stop_during_a_call_is_told_to_the_server(start: Make, tmp_path: Path) -> None:
    clock, calls = RealClock(), tmp_path / "calls"
    tools = start(faulty("none", calls=calls), clock=clock)

    def stop() -> None:
        while not calls.exists():
            time.sleep(0.01)
        clock.stopped = True

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(solo.Interrupted):
        call(tools, "sleep")
    while "notifications/cancelled True" not in calls.read_text():
        time.sleep(0.01)


def test_progress_keeps_a_call_alive_up_to_a_hard_limit() -> None:
    waiting = solo.Pending(30.0, 0.0)
    waiting.alive(20.0)
    assert waiting.end == 50.0
    waiting.alive(599.0)
    assert waiting.end == solo.HARD_LIMIT
    waiting.spared(100.0)
    assert waiting.end == solo.HARD_LIMIT + 100.0


def test_progress_during_a_call_is_heard(start: Make) -> None:
    """The tool says three times that it is at work, and takes longer than the limit in all."""
    assert call(start(faulty("none", timeout=1.0)), "slow").message == "done"


class Yes:
    """Answers every question with its parameters."""

    def asked(self, server: str, method: str, params: Any) -> dict[str, Any]:
        if method == "sampling/createMessage":
            raise solo.TellModel("POLICY_DENIED", f"{server} may not use the model.")
        return {"action": "accept", "content": {"asked": method}}


def test_what_a_server_asks_back_reaches_whoever_answers(tmp_path: Path) -> None:
    tools = solo.Tools([faulty("none")], RealClock(), Notes(), os.environ, keep=put_away, asker=Yes())
    tools.start()
    *_, sampling, _, elicited = json.loads(call(tools, "asks").message)
    tools.close()
    assert elicited == {"action": "accept", "content": {"asked": "elicitation/create"}}
    assert sampling == {"code": -32601, "message": "desk may not use the model."}


def test_a_stop_is_heard_while_servers_start(tmp_path: Path) -> None:
    clock = RealClock()
    tools = solo.Tools([faulty("silent")], clock, Notes(), os.environ, keep=put_away)
    threading.Timer(0.2, lambda: setattr(clock, "stopped", True)).start()
    with pytest.raises(solo.Interrupted):
        tools.start()
    tools.close()


@pytest.mark.parametrize("fault", ["lingers", "deaf"])
def test_a_server_that_ignores_the_end_of_input_is_ended(fault: str, tmp_path: Path) -> None:
    clock = Hasty() if fault == "deaf" else RealClock()
    tools = solo.Tools([faulty(fault)], clock, Notes(), os.environ, keep=put_away)
    tools.start()
    tools.close()
    assert processes(str(FAULTY), fault) == []


def test_a_server_that_reads_nothing_hangs_nobody(start: Make) -> None:
    """The pipe is full long before a megabyte: the call ends by its limit, and so does closing."""
    tools = start(faulty("none", timeout=0.3))
    for arguments in ({}, {"text": "x" * 2**20}):
        with pytest.raises(solo.TellModel, match="did not answer"):
            call(tools, "deaf", arguments)
    tools.close()
    assert processes(str(FAULTY), "none") == []


# -- lists and names --------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["pages", "same-cursor"])
def test_every_page_is_read_and_a_cursor_that_stands_still_ends_it(start: Make, fault: str) -> None:
    names = list(start(faulty(fault)).tools)
    assert names == [f"desk__tool{n}" for n in range(101 if fault == "pages" else 100)]


def test_a_tool_that_appears_later_is_a_note_and_can_be_called(start: Make, tmp_path: Path) -> None:
    tools = start(faulty("changes", calls=tmp_path / "calls"))
    assert "desk__late" not in tools.tools
    call(tools, "echo")
    assert tools.look(acted=True).notes == ("New tool desk__late: does late",)
    assert call(tools, "late", {"a": 1}).message == '{"a": 1}'


def test_names_fit_every_model_api_and_lead_back(start: Make, tmp_path: Path) -> None:
    tools = start(faulty("odd-names", "my server", calls=tmp_path / "calls"))
    assert len(tools.tools) == 6
    for name, tool in tools.tools.items():
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name)
        call(tools, name)
        assert (tmp_path / "calls").read_text().splitlines()[-1] == f"{tool.original} {{}}"


@pytest.mark.parametrize("name", ["desk__echo", "echo", "mcp__desk__echo", "desk.echo", "desk/echo", "Echo"])
def test_a_name_is_taken_in_every_way_models_write_it(start: Make, name: str) -> None:
    assert call(start(faulty("none")), name).data == {"tool": "desk__echo"}


def test_a_name_that_fits_two_tools_or_none_is_asked_back(start: Make) -> None:
    tools = start(faulty("none", "a"), faulty("none", "b"))
    for name, said in (("echo", 'several tools are called "echo"'), ("a_ecco", 'no tool is called "a_ecco"')):
        with pytest.raises(solo.TellModel, match=said) as caught:
            call(tools, name)
        assert caught.value.hint.startswith("There is a__echo, b__echo")


@pytest.mark.parametrize("parameter", ["", "echo", "[]", '{"name": 1}', '{"name": "echo", "arguments": [1]}'])
def test_a_parameter_that_is_no_call_is_told_its_shape(start: Make, parameter: str) -> None:
    with pytest.raises(solo.TellModel, match=r'\{"name": "…", "arguments": \{…\}\}') as caught:
        permit = solo.Permit(action=solo.Action(verb="tool", parameter=parameter))
        start(faulty("none")).act(permit, NOWHERE)
    assert (caught.value.code, caught.value.delivery) == ("INVALID_ARGS", "not_delivered")


# -- anything at all --------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.just("\ud800")
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


def objects(*keys: str) -> st.SearchStrategy[dict[str, Any]]:
    """JSON objects that have some of these keys, with anything in them."""
    return st.dictionaries(st.sampled_from(keys), JSON | st.fixed_dictionaries({}), max_size=len(keys))


class Deaf(solo.Link):
    """A link whose wire writes down what is sent."""

    def __init__(self) -> None:
        super().__init__(solo.ServerConfig(name="desk"), RealClock())
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)


@given(JSON | objects("id", "method", "result", "error", "params"))
def test_no_message_breaks_a_link(message: Any) -> None:
    link = Deaf()
    link.receive(solo.json_in(json.dumps(message)))
    for answer in link.sent:
        assert ("result" in answer) != ("error" in answer)


@given(objects("command", "args", "env", "url", "headers", "cwd", "timeout", "disabled"))
def test_no_entry_breaks_the_reading_of_a_config(entry: dict[str, Any]) -> None:
    config = solo.configure("a", entry, Path("/tmp"), {})
    assert all(isinstance(word, str) for word in (*config.command, *config.env.values(), config.url))
    assert config.timeout > 0


@given(st.lists(objects("type", "text", "data", "resource", "mimeType", "uri") | JSON, max_size=3), JSON)
def test_no_result_breaks_a_receipt(content: list[Any], structured: Any) -> None:
    tool = solo.Tool(name="a__b", server="a", original="b", description="", schema={})
    result = solo.json_in(json.dumps({"content": content, "structuredContent": structured}))
    receipt = solo.receipt_of(tool, result, "", put_away)
    json.dumps(receipt.envelope(), ensure_ascii=False).encode()


# -- HTTP -------------------------------------------------------------------------------------


class Site:
    """A scripted MCP server over HTTP on this machine: `how` names what it does."""

    def __init__(self, how: str) -> None:
        self.how, self.seen, self.sessions = how, [], 0
        self.asked = threading.Event()
        site = self

        class Visit(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0" if how == "unbounded" else "HTTP/1.1"

            def do_POST(self) -> None:
                message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                site.seen.append((message, dict(self.headers)))
                site.reply(self, message)

            def do_DELETE(self) -> None:
                site.seen.append(({"method": "DELETE"}, dict(self.headers)))
                self.send_response(405)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Visit)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/mcp"
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def methods(self) -> list[str]:
        return [message.get("method", "answer") for message, _ in self.seen]

    def body(
        self, visit: BaseHTTPRequestHandler, status: int, body: bytes, kind: str, **headers: str
    ) -> None:
        visit.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **headers}.items():
            visit.send_header(name.replace("_", "-"), value)
        visit.end_headers()
        visit.wfile.write(body)

    def stream(self, visit: BaseHTTPRequestHandler, *pieces: bytes) -> None:
        """Server-sent events in these pieces; the stream stays open until the client leaves."""
        visit.send_response(200)
        visit.send_header("Content-Type", "text/event-stream")
        chunked = visit.protocol_version == "HTTP/1.1"
        visit.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("X-Nothing", "")))
        visit.end_headers()
        for piece in pieces:
            visit.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            visit.wfile.flush()
            if piece.startswith(b": ask"):
                self.asked.wait(5)
        if "open" in self.how or not chunked:
            visit.connection.settimeout(5)
            visit.connection.recv(1)
        else:
            visit.wfile.write(b"0\r\n\r\n")

    def turned_away(self, visit: BaseHTTPRequestHandler) -> bool:
        """Send the visitor elsewhere, or for a key."""
        wants = {"key": 'Bearer realm="ledger"', "key for one": 'Bearer scope="read"'}.get(self.how)
        place = {"moved": "http://elsewhere/mcp", "moved here": "/mcp/"}.get(self.how)
        if wants and visit.headers["Authorization"] != "Bearer new":
            self.body(visit, 401, b"no", "text/plain", WWW_Authenticate=wants)
            return True
        if place and not visit.path.endswith("/"):
            self.body(visit, 307, b"", "text/plain", Location=place)
            return True
        return False

    def reply(self, visit: BaseHTTPRequestHandler, message: dict[str, Any]) -> None:
        method, how = message.get("method"), self.how
        if "id" not in message or method is None:
            self.body(visit, 202, b"", "text/plain")
            if method is None:
                self.asked.set()
            return
        if self.turned_away(visit):
            return
        results: dict[str, Any] = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}},
            "tools/list": {"tools": [{"name": "echo"}]},
            "tools/call": {
                "content": [{"type": "text", "text": f"入✅ {message['params'].get('arguments')}"}]
            },
        }
        whole = {"jsonrpc": "2.0", "id": message["id"], "result": results[method]}
        data = json.dumps(whole, ensure_ascii=False).encode()
        if method == "initialize":
            self.sessions += 1
            self.body(visit, 200, data, "application/json", Mcp_Session_Id=f"session-{self.sessions}")
        elif (
            method == "tools/call"
            and how in ("404", "400")
            and visit.headers["Mcp-Session-Id"] == "session-1"
        ):
            self.body(visit, int(how), b'{"error": {"message": "No valid session ID"}}', "application/json")
        elif method == "tools/call" and how == "500":
            self.body(visit, 500, b"<html>oops</html>", "text/html")
        elif method == "tools/call" and how == "html":
            self.body(visit, 200, b"<html>log in</html>", "text/html")
        elif method == "tools/call" and how == "hangs up":
            visit.close_connection = True
            visit.connection.shutdown(2)
        elif method == "tools/call" and how in ("stream", "stream open", "unbounded"):
            half = data.index("✅".encode()) + 1  # within a character
            first = b'\xef\xbb\xbf: hi\r\nid: 1\r\ndata:\r\n\r\nevent: other\ndata: {"id": 1}\n\n'
            self.stream(
                visit, first, b"event: message\r", b"\ndata: " + data[:half], data[half:] + b"\r", b"\n\r\n"
            )
        elif method == "tools/call" and how == "asks":
            ask = json.dumps({"jsonrpc": "2.0", "id": "q", "method": "ping"}).encode()
            self.stream(visit, b"data: " + ask + b"\n\n", b": ask\n\n", b"data: " + data)
        else:
            self.body(visit, 200, data, "application/json")


@pytest.fixture
def site() -> Iterator[Callable[[str], Site]]:
    made: list[Site] = []

    def make(how: str) -> Site:
        made.append(Site(how))
        return made[-1]

    yield make
    for one in made:
        one.server.shutdown()
        one.server.server_close()


def remote(site: Site, **more: Any) -> solo.ServerConfig:
    return solo.ServerConfig(name="desk", url=site.url, **more)


@pytest.mark.parametrize("how", ["json", "stream", "stream open", "unbounded", "asks"])
def test_http_answers_as_json_and_as_a_stream(start: Make, site: Callable[[str], Site], how: str) -> None:
    there = site(how)
    environ = {**os.environ, "HTTP_PROXY": "http://127.0.0.1:9"}
    tools = start(remote(there, headers={"Authorization": "Bearer t"}), environ=environ)
    assert call(tools, "echo", {"a": 1}).message == "入✅ {'a': 1}"
    first, last = there.seen[0][1], there.seen[-1][1]
    assert "Mcp-Session-Id" not in first
    assert "MCP-Protocol-Version" not in first
    assert (last["Mcp-Session-Id"], last["MCP-Protocol-Version"]) == ("session-1", "2025-06-18")
    assert {headers["Authorization"] for _, headers in there.seen} == {"Bearer t"}
    assert ("answer" in there.methods()) == (how == "asks")


def test_the_session_is_given_back(site: Callable[[str], Site]) -> None:
    there = site("json")
    tools = solo.Tools([remote(there)], RealClock(), Notes(), os.environ, keep=put_away)
    tools.start()
    tools.close()
    assert there.methods() == ["initialize", "notifications/initialized", "tools/list", "DELETE"]


@pytest.mark.parametrize("how", ["404", "400"])
def test_a_forgotten_session_is_begun_again_once(start: Make, site: Callable[[str], Site], how: str) -> None:
    there = site(how)
    receipt = call(start(remote(there)), "echo", {"a": 1})
    assert receipt.message.endswith("入✅ {'a': 1}")
    assert there.methods().count("initialize") == 2
    assert there.methods().count("tools/call") == 2  # the first was refused before it ran


@pytest.mark.parametrize(
    ("how", "code", "sentence"),
    [
        ("500", "ACTION_FAILED", "answered HTTP 500: <html>oops</html>"),
        ("html", "APP_UNRESPONSIVE", "answered without a result"),
        ("hangs up", "APP_UNRESPONSIVE", "broke the connection"),
    ],
)
def test_what_may_have_run_is_never_sent_again(
    start: Make, site: Callable[[str], Site], how: str, code: str, sentence: str
) -> None:
    there = site(how)
    with pytest.raises(solo.TellModel, match=re.escape(sentence)) as caught:
        call(start(remote(there)), "echo")
    assert (caught.value.code, caught.value.delivery) == (code, "delivery_uncertain")
    assert there.methods().count("tools/call") == 1


def test_a_redirect_is_told_and_not_followed(start: Make, site: Callable[[str], Site]) -> None:
    there = site("moved")
    (problem,) = start(remote(there, headers={"Authorization": "Bearer t"})).problems
    assert "answered HTTP 307: its address is now http://elsewhere/mcp" in problem
    assert there.methods() == ["initialize"]


def test_a_redirect_on_the_same_site_is_followed(start: Make, site: Callable[[str], Site]) -> None:
    assert call(start(remote(site("moved here"))), "echo", {"a": 1}).ok


def test_a_401_is_answered_by_whoever_authorizes(site: Callable[[str], Site]) -> None:
    asked: list[tuple[str, str]] = []

    def authorize(server: solo.ServerConfig, wants: str) -> dict[str, str]:
        asked.append((server.name, wants))
        return {"Authorization": "Bearer new"}

    there = remote(site("key for one"))
    tools = solo.Tools([there], RealClock(), Notes(), os.environ, keep=put_away, authorize=authorize)
    tools.start()
    assert call(tools, "echo", {"a": 1}).ok
    tools.close()
    assert asked == [("desk", 'Bearer scope="read"')]


def test_a_missing_key_says_which_server_and_what_to_set(start: Make, site: Callable[[str], Site]) -> None:
    (problem,) = start(remote(site("key"))).problems
    assert '"desk" answered HTTP 401: Bearer realm="ledger"; its "headers" in the config file' in problem


def test_a_refused_connection_is_tried_three_times(start: Make, site: Callable[[str], Site]) -> None:
    there = site("json")
    tools = start(remote(there))
    there.server.shutdown()
    there.server.server_close()
    pauses: list[float] = []

    class Counting(RealClock):
        def sleep(self, seconds: float) -> None:
            pauses.append(seconds)

    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as unused:
        address = f"http://127.0.0.1:{unused.server_address[1]}/mcp"
    gone = solo.Server(solo.ServerConfig(name="desk", url=address), Counting(), os.environ)
    with pytest.raises(solo.TellModel, match="cannot be reached") as caught:
        gone.call("echo", {})
    assert (caught.value.code, caught.value.delivery) == ("APP_UNRESPONSIVE", "not_delivered")
    assert [pause for pause in pauses if pause] == [0.2, 1.0]
    assert tools.tools


@given(st.lists(st.text(alphabet="ab \u2028入", max_size=5), min_size=1, max_size=4), st.data())
def test_events_are_the_same_however_the_stream_is_cut(texts: list[str], data: st.DataObject) -> None:
    end = data.draw(st.sampled_from(["\n", "\r", "\r\n"]))
    raw = "".join(f": c{end}data: x{end}data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert list(solo.events(chunks)) == [f"x\n{text}".encode() for text in texts]


# -- configuration ----------------------------------------------------------------------------


def read(tmp_path: Path, text: str | bytes, **environ: str) -> tuple[solo.ServerConfig, ...]:
    path = tmp_path / "servers.json"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return solo.read_servers(path, environ)


def test_a_file_with_comments_commas_and_a_mark_is_read(tmp_path: Path) -> None:
    text = (
        '{ // mine\n "mcpServers": { /* two\nlines */ "a": {"command": "x//y", "args": ["/*", "a,]",],}, },}'
    )
    for mark in ("", "\ufeff"):
        (config,) = read(tmp_path, mark + text)
        assert config.command == ("x//y", "/*", "a,]")
    assert read(tmp_path, json.dumps({"servers": {"b": {"command": ["p", "q"]}}}).encode("utf-16"))[
        0
    ].command == ("p", "q")


@pytest.mark.parametrize("root", ["mcpServers", "servers", "mcp_servers"])
@pytest.mark.parametrize("key", ["url", "serverUrl", "httpUrl"])
def test_every_clients_names_are_known(tmp_path: Path, root: str, key: str) -> None:
    entry = {key: "http://h/mcp", "headers": {"X": "1"}, "type": "streamable-http", "alwaysAllow": []}
    (config,) = read(tmp_path, json.dumps({root: {"a": entry}}))
    assert (config.url, config.headers) == ("http://h/mcp", {"X": "1"})


def test_variables_are_filled_in(tmp_path: Path) -> None:
    entry = {
        "command": "${BIN}",
        "args": ["${env:A}", "${NOT:-d}", "${userHome}", "${workspaceFolder}", "$A", "${EMPTY}", 5],
        "env": {"K": "x${A}y", "N": 1, "B": True},
        "cwd": "sub",
    }
    (config,) = read(tmp_path, json.dumps({"mcpServers": {"a": entry}}), BIN="p", A="1", EMPTY="")
    assert config.command == ("p", "1", "d", str(Path.home()), str(tmp_path), "$A", "", "5")
    assert config.env == {"K": "x1y", "N": "1", "B": "true"}
    assert config.cwd == str(tmp_path / "sub")


def test_an_unset_variable_fails_that_server_by_name(tmp_path: Path, start: Make) -> None:
    entries = {"a": {"command": "x", "env": {"T": "${TOKEN}"}}, "b": {"url": "http://h"}}
    a, b = read(tmp_path, json.dumps({"mcpServers": entries}))
    assert not b.problem
    assert start(a).problems == ['The MCP server "a" cannot be used: TOKEN is not set.']


def test_a_server_with_nothing_to_start_is_a_problem_and_a_disabled_one_is_none(tmp_path: Path) -> None:
    entries = {
        "a": {},
        "b": {"command": "x", "disabled": True},
        "c": {"command": "x", "enabled": False},
        "d": 5,
    }
    problems = {config.name: config.problem for config in read(tmp_path, json.dumps({"mcpServers": entries}))}
    assert problems == {"a": "it has no command and no url", "d": "it has no command and no url"}


@pytest.mark.parametrize(
    ("written", "seconds"), [(45, 45.0), (60000, 60.0), (None, 30.0), ("x", 30.0), (-1, 30.0)]
)
def test_a_timeout_may_be_seconds_or_milliseconds(tmp_path: Path, written: object, seconds: float) -> None:
    (config,) = read(tmp_path, json.dumps({"mcpServers": {"a": {"command": "x", "timeout": written}}}))
    assert config.timeout == seconds


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            '{\n  "mcpServers": {"a" 1}}',
            "servers.json cannot be read: Expecting ':' delimiter: line 2 column 22",
        ),
        ("{}", "names no servers"),
        ("[1]", "names no servers"),
        (b'{"a": "\xff\xff"}', "can't decode byte 0xff in position 7"),
    ],
)
def test_a_bad_file_says_where(tmp_path: Path, text: str | bytes, sentence: str) -> None:
    with pytest.raises(solo.Usage) as caught:
        read(tmp_path, text)
    assert sentence in caught.value.sentence


def test_a_missing_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(solo.Usage, match=r"cannot be read: .*No such file"):
        solo.read_servers(tmp_path / "none.json", {})


@pytest.mark.parametrize(
    "root",
    [
        {"context_servers": {"a": {"command": {"path": "p", "args": ["q"], "env": {"K": "v"}}}}},
        {"mcp": {"a": {"type": "local", "command": ["p", "q"], "environment": {"K": "v"}}}},
        {"mcp": {"inputs": [], "servers": {"a": {"command": "p", "args": ["q"], "env": {"K": "v"}}}}},
        {"mcp.servers": {"a": {"command": "p", "args": ["q"], "env": {"K": "v"}}}},
    ],
)
def test_every_clients_shape_is_read(tmp_path: Path, root: dict[str, Any]) -> None:
    (config,) = read(tmp_path, json.dumps(root))
    assert (config.name, config.command, config.env, config.problem) == ("a", ("p", "q"), {"K": "v"}, "")


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python reads TOML from 3.11 on")
def test_codex_toml_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(
        '[mcp_servers.a]\nurl = "http://h"\nbearer_token_env_var = "T"\ntool_timeout_sec = 90\n'
        'env_http_headers = { X = "XV" }\nenabled_tools = ["one"]\n'
    )
    (config,) = solo.read_servers(path, {"T": "secret", "XV": "x"})
    assert config.headers == {"Authorization": "Bearer secret", "X": "x"}
    assert (config.timeout, config.only) == (90, ("one",))
    assert solo.read_servers(path, {"XV": "x"})[0].problem == "T is not set"


def test_a_token_in_the_environment_is_sent_unless_one_is_configured(tmp_path: Path) -> None:
    entries = {
        "my ledger": {"url": "http://h"},
        "own": {"url": "http://h", "headers": {"authorization": "Basic x"}},
        "local": {"command": "x"},
    }
    environ = {"MCP_MY_LEDGER_TOKEN": "t", "MCP_OWN_TOKEN": "t", "MCP_LOCAL_TOKEN": "t"}
    headers = [config.headers for config in read(tmp_path, json.dumps({"mcpServers": entries}), **environ)]
    assert headers == [{"Authorization": "Bearer t"}, {"authorization": "Basic x"}, {}]


def test_an_env_file_is_read_and_a_missing_one_spoils_only_its_server(tmp_path: Path) -> None:
    (tmp_path / "keys.env").write_text("# mine\nexport A=1\nB='two words'\n")
    entries = {
        "a": {"command": "x", "envFile": "keys.env", "env": {"A": "2"}},
        "b": {"command": "x", "envFile": "no"},
    }
    a, b = read(tmp_path, json.dumps({"mcpServers": entries}))
    assert a.env == {"A": "2", "B": "two words"}
    assert b.problem.startswith("its envFile cannot be read")


def test_tools_that_the_config_leaves_out_are_not_offered(tmp_path: Path, start: Make) -> None:
    some = start(faulty("none", "a", only=("echo", "refuse"), without=("refuse",)))
    assert list(some.tools) == ["a__echo"]
