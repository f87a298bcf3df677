"""The job as a person runs it: the program, real windows, and a scripted model's server in another process."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import Desk

import agent_solo as solo

SOLO, FIXTURES = Path(solo.__file__), Path(__file__).with_name("fixtures")
DEBIAN = "/usr/bin/python3"  # has gi
FORMS = {"tk": sys.executable, "gtk3": DEBIAN, "gtk4": DEBIAN, "qt": sys.executable, "web": sys.executable}
NAME = "  <b>Zoë e\u0301 & שלום 订单 №7 👩‍🚀 C:\\new"
NOTE = "def f(x):\n\treturn {'a': \"b\"}  # 删除?\n\n    - שלום, Ünïcödé ß ñ\n\t\t中文 🙂👍🏽 ~`^ @#$%\n"
PAGE = NOTE + "Ελληνικά русский ไทย 한국어 العربية\n" + "    four\n\ttab\n" + NOTE + "last line, no end"


def ended(process: subprocess.Popen[bytes], limit: float = 120) -> tuple[int, str, str]:
    """The exit status of a run, and what it printed."""
    out, err = process.communicate(timeout=limit)
    return process.returncode, out.decode(), err.decode()


class Job:
    """Starts the agent with a model that plays a scenario."""

    def __init__(self, desk: Desk, folder: Path) -> None:
        self.desk, self.folder = desk, folder

    def start(self, scenario: str, arguments: dict[str, Any], *words: str | Path) -> subprocess.Popen[bytes]:
        """The agent, with a server of its own."""
        given = self.folder / "arguments.json"
        given.write_text(json.dumps(arguments), "utf-8")
        player = [sys.executable, Path(__file__).with_name("player.py"), scenario, given]
        server = self.desk.start(player, stdout=subprocess.PIPE)
        assert server.stdout
        address = server.stdout.readline().decode().strip()
        agent = [sys.executable, SOLO, "--task", "the job", "--model", "player", "--base-url", address]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return self.desk.start([*agent, *words], env={"OPENAI_API_KEY": "test-key"}, **pipes)

    def run(self, scenario: str, arguments: dict[str, Any], *words: str | Path) -> tuple[int, str, str]:
        """The whole run."""
        return ended(self.start(scenario, arguments, *words))

    def play(self, steps: list[dict[str, Any]], *words: str | Path) -> tuple[int, dict[str, Any], str]:
        """The whole run of steps as written, points as fractions of the screen; what --json printed."""
        status, out, err = self.run("steps", {"steps": steps}, "--coords", "1", "--json", *words)
        assert out, err
        return status, json.loads(out), err


@pytest.fixture
def job(desk: Desk, tmp_path: Path) -> Job:
    return Job(desk, tmp_path)


class Form:
    """A form that is open and has the keyboard in its first field."""

    def __init__(self, desk: Desk, folder: Path, kind: str = "tk") -> None:
        self.desk, self.file = desk, folder / "form.json"
        desk.start([FORMS[kind], FIXTURES / f"form_{kind}.py", self.file])
        desk.wait(self.file.exists, 30)
        self.title = next(title for title in desk.titles() if title.startswith("Form"))
        self.number = desk.run("xdotool", "search", "--name", f"^{self.title}$").split()[-1]

    def at(self, right: int, down: int) -> dict[str, float]:
        """A point of the form, in fractions of the screen."""
        told = self.desk.run("xdotool", "getwindowgeometry", "--shell", self.number)
        box = dict(line.split("=") for line in told.split())
        return {"x": (int(box["X"]) + right) / 1280, "y": (int(box["Y"]) + down) / 800}

    def state(self) -> dict[str, Any]:
        """What it holds."""
        held: dict[str, Any] = json.loads(self.file.read_text("utf-8"))
        return held


@pytest.fixture
def form(desk: Desk, tmp_path: Path) -> Form:
    return Form(desk, tmp_path)


def held_down(desk: Desk) -> str:
    """Whether any key or button is down, as the X server sees it: "True" or "False"."""
    code = (
        "import os; os.environ['XAUTHORITY'] = os.devnull\n"
        "from Xlib.display import Display\n"
        "screen = Display()\n"
        "buttons = screen.screen().root.query_pointer().mask & 0x1F00\n"
        "print('down', any(screen.query_keymap()) or bool(buttons))"
    )
    return desk.run(sys.executable, "-c", code).split("down ")[-1].strip()


def test_the_newest_users_of_a_database_opened_in_its_browser(job: Job, tmp_path: Path) -> None:
    folder = os.environ.get("AGENT_SOLO_TEST_SERVERS")
    if not folder:
        pytest.skip("AGENT_SOLO_TEST_SERVERS names no folder of servers")
    database, config = tmp_path / "shop.db", tmp_path / "mcp.json"
    with sqlite3.connect(database) as store:
        store.execute("CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, email TEXT)")
        users = [(n, f"Zoë 订单 {n}", f"user{n}@example.org") for n in range(1, 501)]
        store.executemany("INSERT INTO users VALUES (?, ?, ?)", users)
    program = str(Path(folder, "sqlite/bin/mcp-server-sqlite"))
    server = {"command": program, "args": ["--db-path", str(database)]}
    config.write_text(json.dumps({"mcpServers": {"sqlite": server}}))
    status, out, err = job.run("database", {"file": str(database)}, "--mcp", config)
    assert status == 0, err
    select = "SELECT id, name, email FROM users ORDER BY id DESC LIMIT 10"
    rows = sqlite3.connect(database).execute(select).fetchall()
    assert json.loads(out) == [dict(zip(("id", "name", "email"), row, strict=True)) for row in rows]
    assert "refused" not in err


def test_a_page_typed_into_an_editor_and_saved_under_a_new_name(job: Job, tmp_path: Path) -> None:
    path = tmp_path / "new page é.txt"
    status, out, err = job.run("editor", {"page": PAGE, "path": str(path)}, "--confirm", "never")
    assert (status, json.loads(out)) == (0, {"saved": str(path)}), err
    assert path.read_bytes() == PAGE.encode()


@pytest.mark.parametrize("kind", FORMS)
def test_each_field_holds_what_was_typed(job: Job, desk: Desk, tmp_path: Path, kind: str) -> None:
    form = Form(desk, tmp_path, kind)
    note = NOTE.replace("\t", "  ") if kind == "web" else NOTE  # a browser's tab leaves the field
    steps = [
        {"action": "input", "parameter": NAME},
        {"action": "click", **form.at(200, 110)},
        {"action": "input", "parameter": note},
        {"action": "finish", "parameter": "{}"},
    ]
    status, told, err = job.play(steps, "--window", form.title, "--confirm", "never")
    assert status == 0, (told, err)
    desk.wait(lambda: (form.state()["name"], form.state()["note"]) == (NAME, note))


def meanwhile(job: Job, form: Form, happen: Callable[[], object]) -> dict[str, Any]:
    """Let something happen after the look that a click on the form's box is decided on; the click's receipt."""
    gate = job.folder / "gate"
    click = {"action": "click", **form.at(20, 200), "gate": str(gate)}
    steps = {"steps": [click, {"action": "fail", "parameter": "refused"}]}
    run = job.start("steps", steps, "--coords", "1", "--json", "--window", form.title)
    job.desk.wait(Path(f"{gate}.asked").exists)
    happen()
    gate.touch()
    status, out, err = ended(run)
    assert status == 1, err
    receipt: dict[str, Any] = json.loads(out)["receipts"][0]
    return receipt


def test_a_window_that_came_over_the_target_is_not_clicked(job: Job, desk: Desk, form: Form) -> None:
    def cover() -> None:
        desk.start(["xterm", "-T", "Cover", "-geometry", "150x50+0+0"])
        desk.wait(lambda: desk.titles()[-1:] == ["Cover"])

    before = desk.run("xdotool", "getmouselocation", "--shell").split("SCREEN")[0]
    receipt = meanwhile(job, form, cover)
    assert (receipt["ok"], receipt["error"]["code"]) == (False, "POLICY_DENIED")
    assert desk.run("xdotool", "getmouselocation", "--shell").split("SCREEN")[0] == before


def test_a_window_that_was_renamed_is_not_clicked(job: Job, desk: Desk, form: Form) -> None:
    def rename() -> None:
        desk.run("xdotool", "set_window", "--name", "Bank", form.number)
        desk.wait(lambda: "Bank" in desk.titles())

    before = form.state()
    receipt = meanwhile(job, form, rename)
    assert (receipt["ok"], receipt["error"]["code"]) == (False, "POLICY_DENIED")
    assert form.state() == before


def test_a_question_that_nobody_can_be_asked_ends_the_run(job: Job, desk: Desk, form: Form) -> None:
    before = form.state()
    steps = [{"action": "keypress", "parameter": "alt+F4"}]
    status, told, err = job.play(steps, "--window", form.title)
    assert (status, told["outcome"]) == (5, "person_needed"), err
    assert form.title in desk.titles()
    assert form.state() == before


def test_what_a_killed_run_held_is_let_go_of_by_the_next(job: Job, desk: Desk) -> None:
    code = (
        "import os, pathlib, time, agent_solo as solo\n"
        "host = solo.this_host(pathlib.Path(os.environ['AGENT_SOLO_HOME']), solo.SystemClock(), os.environ)\n"
        "host.open()\n"
        "host.key('ctrl', down=True)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    holder = desk.start([sys.executable, "-c", code], cwd=SOLO.parent, stdout=subprocess.PIPE)
    assert holder.stdout
    assert any(line == b"held\n" for line in holder.stdout)
    assert held_down(desk) == "True"
    holder.kill()
    holder.wait()
    assert held_down(desk) == "True"
    assert job.play([{"action": "fail", "parameter": "enough"}])[0] == 1
    assert held_down(desk) == "False"


def test_a_run_killed_in_a_drag_leaves_no_button_down(job: Job, desk: Desk, form: Form) -> None:
    start, stop = form.at(100, 110), form.at(200, 110)
    drag = {"action": "drag", **start, "x2": stop["x"], "y2": stop["y"]}
    record = Path(desk.env["AGENT_SOLO_HOME"], f"held{desk.display}.json")
    run = job.start("steps", {"steps": [drag]}, "--coords", "1", "--window", form.title)
    desk.wait(lambda: record.exists() and "button left" in record.read_text())
    run.kill()
    run.wait()
    assert "button left" in record.read_text()
    assert job.play([{"action": "fail", "parameter": "enough"}])[0] == 1
    assert held_down(desk) == "False"


def test_the_same_click_again_and_again_ends_stuck(job: Job, form: Form) -> None:
    click = {"action": "click", **form.at(240, 340)}
    status, told, err = job.play([click] * 10, "--window", form.title)
    assert (status, told["outcome"]) == (1, "stuck"), err
    assert 3 <= told["steps"] < 10


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, {"message": "Incorrect API key provided.", "code": "invalid_api_key"}),
        (429, {"message": "You exceeded your current quota.", "code": "insufficient_quota"}),
        (400, {"message": "image input is not supported by this model", "code": None}),
    ],
)
def test_a_server_that_will_not_serve_is_one_sentence(job: Job, status: int, error: dict[str, Any]) -> None:
    body = {"error": {"type": "invalid_request_error", "param": None, **error}}
    code, out, err = job.run("refuse", {"status": status, "body": body})
    assert (code, out) == (4, "")
    assert "Traceback" not in err
    assert err.count("model_unusable") == 1


def test_the_object_of_json(job: Job, form: Form) -> None:
    steps = [{"action": "input", "parameter": "Zoë"}, {"action": "finish", "parameter": '{"n": 1}'}]
    status, told, err = job.play(steps, "--window", form.title)
    assert (status, told["status"], told["outcome"], told["result"]) == (0, 0, "done", {"n": 1}), err
    assert (told["steps"], len(told["receipts"]), told["calls"]) == (2, 2, 2)
    assert told["tokens"]["in"] > told["tokens"]["out"] > 0
    assert Path(told["folder"]).is_dir()
    assert "cost" in told


def test_the_limit_of_steps_ends_the_run(job: Job) -> None:
    status, told, _ = job.play([{"action": "wait", "parameter": "0.01"}], "--max-steps", "2")
    assert (status, told["outcome"], told["steps"]) == (1, "limit_reached", 2)


def test_a_dry_run_touches_nothing(job: Job, desk: Desk, form: Form) -> None:
    before = form.state(), desk.run("xdotool", "getmouselocation", "--shell")
    steps = [
        {"action": "input", "parameter": "no"},
        {"action": "click", **form.at(240, 110)},
        {"action": "finish", "parameter": "{}"},
    ]
    status, told, err = job.play(steps, "--window", form.title, "--dry-run")
    assert status == 0, err
    assert "dry run" in told["receipts"][0]["data"]["message"]
    assert (form.state(), desk.run("xdotool", "getmouselocation", "--shell")) == before


def test_ctrl_c_ends_a_run_whose_server_hangs(job: Job, desk: Desk, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    run = job.start("hang", {"asked": str(asked)}, "--json")
    desk.wait(asked.exists)
    run.send_signal(signal.SIGINT)
    status, out, err = ended(run, 5)
    assert (status, json.loads(out)["outcome"]) == (130, "interrupted"), err
    assert "Traceback" not in err
    assert held_down(desk) == "False"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_stopped_while_it_types_gives_the_keyboard_back(
    job: Job, desk: Desk, form: Form, number: signal.Signals
) -> None:
    before = desk.run("xmodmap", "-pke")
    record = Path(desk.env["AGENT_SOLO_HOME"], f"held{desk.display}.json")
    steps = [{"action": "input", "parameter": "Zoë 中文 test " * 50_000}]
    run = job.start("steps", {"steps": steps}, "--window", form.title, "--json")
    desk.wait(lambda: record.exists() and "中" in form.file.read_text("utf-8"))
    run.send_signal(number)
    status, out, err = ended(run, 10)
    assert (status, json.loads(out)["outcome"]) == (130, "interrupted"), err
    assert desk.run("xmodmap", "-pke") == before
    assert held_down(desk) == "False"


def test_a_display_that_dies_ends_the_run_with_one_sentence(tmp_path: Path) -> None:
    with Desk(tmp_path / "own", manager="", bus=False) as own:
        steps = [{"action": "wait", "parameter": "0.2"}] * 50
        agent = Job(own, tmp_path).start("steps", {"steps": steps})
        own.wait(lambda: any(b'"step"' in path.read_bytes() for path in own.home.rglob("journal.jsonl")))
        own._screen = None  # the test's own connection dies with the server
        own._servers[0].kill()
        status, _, err = ended(agent)
    assert status == 3
    assert "The display has gone away." in err
    assert "Traceback" not in err
