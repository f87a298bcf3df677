"""Chapter 14 with real MCP servers: SQLite from PyPI, everything and filesystem from npm; stdio and HTTP."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import agent_solo as solo

sys.path.insert(0, str(Path(__file__).parents[1]))
from test_tools import Notes, RealClock, call, put_away, start

__all__ = ["start"]
Make = Callable[..., solo.Tools]


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the servers; they are installed if CI has not done so."""
    folder = Path(os.environ.get("AGENT_SOLO_TEST_SERVERS") or tmp_path_factory.mktemp("servers"))
    subprocess.run(["bash", str(Path(__file__).with_name("install_servers.sh")), str(folder)], check=True)
    return folder


def node(servers: Path, name: str, *words: str) -> tuple[str, ...]:
    """The command of a server from npm."""
    return ("node", str(servers / f"node_modules/@modelcontextprotocol/server-{name}/dist/index.js"), *words)


def test_rows_written_and_read_through_the_sqlite_server(servers: Path, start: Make, tmp_path: Path) -> None:
    database = tmp_path / "orders.db"
    program = str(servers / "sqlite/bin/mcp-server-sqlite")
    tools = start(solo.ServerConfig(name="sqlite", command=(program, "--db-path", str(database))))
    assert tools.problems == []
    assert call(tools, "create_table", {"query": "CREATE TABLE orders (id INTEGER, who TEXT)"}).ok
    rows = [(7, "Zoë"), (8, "订单 🙂"), (9, "it's")]
    for number, who in rows:
        quoted = who.replace("'", "''")
        assert call(tools, "write_query", {"query": f"INSERT INTO orders VALUES ({number}, '{quoted}')"}).ok
    assert sqlite3.connect(database).execute("SELECT * FROM orders ORDER BY id").fetchall() == rows
    assert "订单 🙂" in call(tools, "sqlite__read_query", {"query": "SELECT who FROM orders"}).message
    assert "syntax error" in call(tools, "read_query", {"query": "SELECT FROM"}).message


def test_the_filesystem_server_serves_the_folder_of_its_command(
    servers: Path, start: Make, tmp_path: Path
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "note.txt").write_text("a\u2028b 入✅", encoding="utf-8")
    (tmp_path / "docs" / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100))
    (tmp_path / "secret.txt").write_text("no")
    tools = start(solo.ServerConfig(name="fs", command=node(servers, "filesystem", str(tmp_path / "docs"))))
    read = call(tools, "read_text_file", {"path": str(tmp_path / "docs" / "note.txt")})
    assert read.message == "a\u2028b 入✅"
    outside = call(tools, "read_text_file", {"path": str(tmp_path / "secret.txt")})
    assert (outside.ok, outside.code) == (False, "TOOL_FAILED")
    assert "Access denied" in outside.message
    call(tools, "write_file", {"path": str(tmp_path / "docs" / "new.txt"), "content": "written"})
    assert (tmp_path / "docs" / "new.txt").read_text() == "written"
    media = call(tools, "read_media_file", {"path": str(tmp_path / "docs" / "shot.png")})
    assert [picture.data[:4] for picture in media.pictures] == [b"\x89PNG"]
    assert tools.tools["fs__read_text_file"].hints["readOnlyHint"] is True


def test_everything_of_the_everything_server_over_stdio(servers: Path, start: Make) -> None:
    check_everything(
        start(solo.ServerConfig(name="all", command=node(servers, "everything", "stdio"), timeout=10))
    )


@pytest.fixture
def address(servers: Path) -> Iterator[str]:
    """server-everything on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        node(servers, "everything", "streamableHttp"),
        env={**os.environ, "PORT": str(port)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    while b"listening" not in (line := process.stderr.readline()):
        assert line, "server-everything ended"
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()
    process.stderr.close()


def test_everything_of_the_everything_server_over_http(address: str, start: Make) -> None:
    check_everything(start(solo.ServerConfig(name="all", url=address, timeout=10)))


def check_everything(tools: solo.Tools) -> None:
    """List it, and call what can be called without being asked back."""
    assert tools.problems == []
    assert call(tools, "all__echo", {"message": "入✅ it's"}).message == "Echo: 入✅ it's"
    assert "42" in call(tools, "get-sum", {"a": 40, "b": 2}).message
    (picture,) = call(tools, "get-tiny-image").pictures
    assert picture.data.startswith(b"\x89PNG")
    links = call(tools, "get-resource-links", {"count": 2}).message
    assert '"type": "resource_link"' in links
    weather = call(tools, "get-structured-content", {"location": "Chicago"}).message
    assert set(json.loads(weather)) == {"temperature", "conditions", "humidity"}
    wrong = call(tools, "get-sum", {"a": "x"})
    assert (wrong.ok, wrong.code) == (False, "TOOL_FAILED")
    assert "Invalid" in wrong.message or "invalid" in wrong.message


def test_three_servers_start_in_the_time_of_one_and_leave_nothing(servers: Path, tmp_path: Path) -> None:
    command = node(servers, "everything", "stdio")
    configs = [solo.ServerConfig(name=name, command=(*command, str(tmp_path / name))) for name in "abc"]
    tools = solo.Tools(configs, RealClock(), Notes(), os.environ, keep=put_away)
    tools.start()
    assert {tool.server for tool in tools.tools.values()} == {"a", "b", "c"}
    tools.close()
    left = [line for line in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in bytes_of(line)]
    assert left == []


def bytes_of(path: Path) -> bytes:
    """What a file of /proc holds, if the process is still there."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_killed_server_is_a_sentence_and_serves_the_next_call(
    servers: Path, start: Make, tmp_path: Path
) -> None:
    mark = str(tmp_path / "mark")
    tools = start(solo.ServerConfig(name="all", command=(*node(servers, "everything", "stdio"), mark)))
    (pid,) = [
        path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in bytes_of(path)
    ]
    os.kill(int(pid), 9)
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)
    receipt = call(tools, "echo", {"message": "again"})
    assert receipt.message == "(all had ended and was started again.)\nEcho: again"
