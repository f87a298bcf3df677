"""Pages: a debugging port, spoken to over real sockets; the browser behind it only plays its part."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agent_solo import Action, Numbers, Page, Pages, Permit, Snapshot, TellModel, Usage, listing

ROWS = [
    [1, "text field", "Name", "Zoë", ["focused"], ""],
    [2, "password field", "PIN", "", [], ""],
    [3, "check box", "Express", "", [], ""],
    [4, "combo box", "Colour", "red", [], ""],
    [5, "button", "Save", "", [], ""],
]


class Clock:
    """Real time, in steps no test has to wait for: each sleep is ten seconds."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += 10


class Browser:
    """One page behind a port. `script` answers for functions of the page script; `heard` is every call."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, dict[str, Any]]] = []
        self.script: dict[str, Any] = {
            "look": {"rows": ROWS, "whole": True, "since": "1.5", "above": 0, "below": 0, "suspects": 0},
            "aim": {"x": 5, "y": 6},
        }
        self.before: Callable[[str, dict[str, Any]], list[dict[str, Any]]] = lambda method, params: []
        self.mute: set[str] = set()
        self.fatal: set[str] = set()  # calls at which the socket dies
        self.heads: list[str] = []
        self.targets: Any = None
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = str(self._server.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def calls(self, *methods: str) -> list[dict[str, Any]]:
        return [params for method, params in self.heard if method in methods]

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(line,), daemon=True).start()

    def _serve(self, line: socket.socket) -> None:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with line, line.makefile("rb") as stream:
            head = b"".join(iter(stream.readline, b"\r\n")).decode()
            self.heads.append(head)
            if head.startswith("GET /json/list"):
                body = json.dumps(self._listed()).encode()
                line.sendall(
                    b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
                    % (len(body), body)
                )
                return
            key = next(
                row.split(": ")[1] for row in head.split("\r\n") if row.startswith("Sec-WebSocket-Key")
            )
            proof = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()).digest()
            line.sendall(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Accept: %b\r\n\r\n" % base64.b64encode(proof)
            )
            while message := self._heard(stream):
                if message["method"] in self.fatal:
                    return
                for answer in self._answers(message):
                    data = json.dumps(answer).encode()
                    size = bytes([len(data)]) if len(data) < 126 else struct.pack(">BH", 126, len(data))
                    line.sendall(b"\x81" + size + data)

    def _heard(self, stream: Any) -> dict[str, Any]:
        head = stream.read(2)
        if len(head) < 2 or head[0] & 15 == 8:
            return {}
        size = head[1] & 127
        size = struct.unpack(">H", stream.read(2))[0] if size == 126 else size
        mask, data = stream.read(4), stream.read(size)
        return dict(json.loads(bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))))

    def _listed(self) -> Any:
        url = f"ws://127.0.0.1:{self.port}/devtools/page/A1"
        page = {
            "id": "A1",
            "type": "page",
            "title": "Orders &amp; bills",
            "url": "http://desk/?a&amp;b",
            "webSocketDebuggerUrl": url,
        }
        strange = [{**page, "id": "B", "type": "service_worker"}, {**page, "id": "C", "url": "devtools://x"}]
        return [page, *strange] if self.targets is None else self.targets

    def _answers(self, message: dict[str, Any]) -> Iterator[dict[str, Any]]:
        method, params = message["method"], message["params"]
        self.heard.append((method, params))
        yield from self.before(method, params)
        if method in self.mute:
            return
        result: dict[str, Any] = {}
        if method == "Page.getFrameTree":
            result = {"frameTree": {"frame": {"id": "F"}}}
        elif method == "Page.createIsolatedWorld":
            result = {"executionContextId": 7}
        elif method == "Runtime.callFunctionOn":
            wanted, *given = (argument["value"] for argument in params["arguments"])
            told = self.script.get(wanted)
            result = {"result": {"value": told(*given) if callable(told) else told}}
        yield {"id": message["id"], "result": result}


@pytest.fixture
def browser() -> Iterator[Browser]:
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def pages(browser: Browser) -> Iterator[Pages]:
    made = Pages(Clock(), browser.port)
    yield made
    made.close()


def see(pages: Pages) -> Snapshot:
    sight = pages.look(acted=False)
    elements = Numbers().number(sight.elements)
    return Snapshot(id="s1", time=0, elements=elements, notes=sight.notes, complete=sight.complete)


def act(pages: Pages, verb: str, name: str, parameter: str = "") -> Any:
    seen = see(pages)
    ref = next(element.ref for element in seen.elements if element.name == name)
    return pages.act(Permit(action=Action(verb=verb, ref=ref, parameter=parameter)), seen)


def refused(call: Callable[[], object]) -> TellModel:
    with pytest.raises(TellModel) as told:
        call()
    return told.value


def test_the_elements_of_a_page_stand_under_its_title(pages: Pages) -> None:
    seen = see(pages)
    assert listing(seen.elements, ()).split("\n") == [
        'w1 page "Orders & bills" = "http://desk/?a&b"',
        'w2 text field "Name" = "Zoë" [focused]',
        'w3 password field "PIN"',
        'w4 check box "Express"',
        'w5 combo box "Colour" = "red"',
        'w6 button "Save"',
    ]
    assert (seen.notes, seen.complete) == ((), True)


def test_a_whole_url_reaches_other_machines_and_a_bare_host_does_not(browser: Browser) -> None:
    assert len(see(Pages(Clock(), f"http://localhost:{browser.port}/")).elements) == 6
    for address in ("desk:9222", "ws://x", "", "127.0.0.1"):
        with pytest.raises(Usage):
            Pages(Clock(), address)


def test_no_origin_is_sent(browser: Browser, pages: Pages) -> None:
    see(pages)
    assert len(browser.heads) == 2
    assert not any("origin:" in head.lower() for head in browser.heads)


def test_the_script_runs_in_a_world_of_its_own_and_gets_text_as_data(browser: Browser, pages: Pages) -> None:
    browser.script |= {"write": "type", "holds": True}
    act(pages, "input", "Name", '"); evil("')
    assert {call["worldName"] for call in browser.calls("Page.createIsolatedWorld")} == {"agent_solo"}
    assert not any("evil" in call["functionDeclaration"] for call in browser.calls("Runtime.callFunctionOn"))
    assert browser.calls("Input.insertText") == [{"text": '"); evil("'}]


def test_nobody_at_the_port_is_a_note() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
    seen = see(Pages(Clock(), port))
    assert seen.notes == (f"No debugging port answers at http://127.0.0.1:{port}.",)
    assert not seen.complete


def test_a_page_that_is_silent_is_a_note_and_asked_again_later(browser: Browser, pages: Pages) -> None:
    browser.mute = {"Runtime.callFunctionOn"}
    seen = see(pages)
    assert [element.role for element in seen.elements] == ["page"]
    assert seen.notes == ('"Orders & bills": the page does not answer; a dialog may stop it',)
    browser.mute = set()
    assert len(see(pages).elements) == 6


def test_what_is_left_out_is_said(browser: Browser, pages: Pages) -> None:
    browser.script["look"] = {**browser.script["look"], "rows": ROWS[:1], "whole": False}
    assert see(pages).notes == ('The list of the page "Orders & bills" is not complete.',)


def test_a_click_is_three_mouse_events_where_the_element_is(browser: Browser, pages: Pages) -> None:
    receipt = act(pages, "click", "Save", "ctrl")
    kinds = [(call["type"], call["x"], call["y"]) for call in browser.calls("Input.dispatchMouseEvent")]
    assert kinds == [("mouseMoved", 5, 6), ("mousePressed", 5, 6), ("mouseReleased", 5, 6)]
    assert {call["modifiers"] for call in browser.calls("Input.dispatchMouseEvent")} == {2}
    assert (receipt.delivery, receipt.mechanism) == ("delivered_unverified", "page")
    assert receipt.message == 'click: w6 button "Save"'


@pytest.mark.parametrize(
    ("verb", "button", "counts"),
    [
        ("double_click", "left", [1, 1, 2, 2]),
        ("right_click", "right", [1, 1]),
        ("middle_click", "middle", [1, 1]),
    ],
)
def test_other_clicks(browser: Browser, pages: Pages, verb: str, button: str, counts: list[int]) -> None:
    act(pages, verb, "Save")
    pressed = [call for call in browser.calls("Input.dispatchMouseEvent") if "button" in call]
    assert [call["clickCount"] for call in pressed] == counts
    assert {call["button"] for call in pressed} == {button}


def test_the_wheel_turns_over_the_page(browser: Browser, pages: Pages) -> None:
    act(pages, "scroll", "Orders & bills", "down 3")
    (call,) = browser.calls("Input.dispatchMouseEvent")
    assert (call["type"], call["deltaX"], call["deltaY"]) == ("mouseWheel", 0, 300)


def test_what_is_covered_or_gone_is_not_clicked(browser: Browser, pages: Pages) -> None:
    browser.script["aim"] = {"cover": "dialog Cookies"}
    told = refused(lambda: act(pages, "click", "Save"))
    assert (told.code, told.sentence) == ("ACTION_FAILED", '"dialog Cookies" is in front of w6 button "Save"')
    browser.script["aim"] = {}
    assert refused(lambda: act(pages, "click", "Save")).code == "STALE_REF"
    assert browser.calls("Input.dispatchMouseEvent") == []


def test_a_page_that_was_closed_is_stale(browser: Browser, pages: Pages) -> None:
    seen = see(pages)
    pages.close()
    save = Permit(action=Action(verb="click", ref=seen.elements[-1].ref))
    assert refused(lambda: pages.act(save, seen)).code == "STALE_REF"


def test_typing_is_read_back_inside_the_page(browser: Browser, pages: Pages) -> None:
    browser.script |= {
        "write": "type",
        "holds": lambda key, text, whole: (
            (key, text, whole) == ([2, "password field", "PIN", "1.5"], "7", False)
        ),
    }
    receipt = act(pages, "input", "PIN", "7")
    assert (receipt.delivery, receipt.message) == ("delivered_verified", 'input: w3 password field "PIN"')
    told = refused(lambda: act(pages, "set_value", "Name", "7"))
    assert (told.code, told.delivery) == ("ACTION_FAILED", "delivered_unverified")


def test_clearing_presses_delete_on_what_is_selected(browser: Browser, pages: Pages) -> None:
    browser.script |= {"write": "type", "holds": True}
    assert act(pages, "clear", "Name").delivery == "delivered_verified"
    assert [call["key"] for call in browser.calls("Input.dispatchKeyEvent")] == ["Delete", "Delete"]


def test_an_option_that_does_not_exist_is_refused(browser: Browser, pages: Pages) -> None:
    browser.script["write"] = "no"
    assert refused(lambda: act(pages, "select", "Colour", "pink")).code == "ACTION_NOT_SUPPORTED"


def test_check_is_one_click_and_a_look_at_the_tick(browser: Browser, pages: Pages) -> None:
    clicks = lambda: len(browser.calls("Input.dispatchMouseEvent")) // 3  # noqa: E731
    browser.script["states"] = lambda key: ["checked"] if clicks() else []
    assert act(pages, "check", "Express").delivery == "delivered_verified"
    assert act(pages, "check", "Express").delivery == "not_delivered"
    assert clicks() == 1
    browser.script["states"] = None
    assert refused(lambda: act(pages, "check", "Express")).code == "STALE_REF"


ALERT = {"method": "Page.javascriptDialogOpening", "params": {"type": "confirm", "message": "Really?"}}


def test_a_dialog_is_part_of_the_receipt_and_the_next_thing_seen(browser: Browser, pages: Pages) -> None:
    browser.before = lambda method, params: [ALERT] if params.get("type") == "mouseReleased" else []
    receipt = act(pages, "click", "Save")
    assert receipt.message == 'click: w6 button "Save"; it opened a dialog: "Really?"'
    browser.before = lambda method, params: []
    seen = see(pages)
    assert [(e.role, e.name) for e in seen.elements[1:]] == [
        ("dialog", "Really?"),
        ("button", "OK"),
        ("button", "Cancel"),
    ]
    closed = [{"method": "Page.javascriptDialogClosed", "params": {"result": False}}]
    browser.before = lambda method, params: closed if method == "Page.handleJavaScriptDialog" else []
    act(pages, "click", "Cancel")
    assert browser.calls("Page.handleJavaScriptDialog") == [{"accept": False}]
    assert len(see(pages).elements) == 6


def test_a_dialog_that_a_person_closed_is_noticed(browser: Browser, pages: Pages) -> None:
    answered = [ALERT, {"method": "Page.javascriptDialogClosed", "params": {}}]
    browser.before = lambda method, params: answered if params.get("type") == "mouseReleased" else []
    act(pages, "click", "Save")
    assert len(see(pages).elements) == 6


def test_a_socket_that_dies_is_a_sentence(browser: Browser, pages: Pages) -> None:
    seen = see(pages)
    browser.fatal = {"Input.dispatchMouseEvent"}
    told = refused(lambda: act(pages, "click", "Save"))
    assert (told.code, told.delivery) == ("APP_UNRESPONSIVE", "delivery_uncertain")
    browser.fatal = {"Runtime.callFunctionOn"}
    told = refused(lambda: pages.act(Permit(action=Action(verb="click", ref="w6")), seen))
    assert (told.code, told.delivery) == ("APP_UNRESPONSIVE", "not_delivered")


def test_another_service_behind_the_port_is_a_sentence(browser: Browser, pages: Pages) -> None:
    browser.targets = {"error": "not found"}
    assert see(pages).notes == (f"What answers at http://127.0.0.1:{browser.port} is no debugging port.",)


def test_an_error_of_the_browser_is_a_sentence(browser: Browser) -> None:
    url = f"ws://127.0.0.1:{browser.port}/x"
    page = Page(url, Clock())
    browser.before = lambda method, params: [{"id": 4, "error": {"message": "not found"}}]
    assert refused(lambda: page.call("Browser.getVersion")).sentence == "the page said: not found"
    page.close()
