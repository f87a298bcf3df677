"""Commands: the command line as a person types it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import agent_solo

FILE = Path(__file__).parents[1] / "agent_solo.py"


def solo(tmp_path: Path, *argv: str, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the file with a home of its own, no display and no key."""
    dropped = (
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "AGENT_SOLO_MODEL",
        "PYTHONPATH",
    )
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env |= {"AGENT_SOLO_HOME": str(tmp_path / "home"), **environ}
    command = [sys.executable, str(FILE), *argv]
    ran = subprocess.run(
        command,
        env=env,
        input=given,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert "Traceback" not in ran.stderr
    return ran


MODEL = ("--model", "m", "--base-url", "http://127.0.0.1:9/v1")


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (["--tsak", "x"], "--task"),
        (["snapshto"], "no command 'snapshto'"),
        (["dcotor"], "Did you mean doctor?"),
        (["--task", ""], "the task is empty"),
        (["--task", "@missing.txt"], "missing.txt"),
        (["--task", "x", "--max-steps", "0"], "--max-steps"),
        (["--task", "x", "--max-cost", "nan"], "--max-cost"),
        (["--task", "x", "--confirm", "maybe"], "--confirm"),
        (["--task", "x", *MODEL, "--coords", "inches"], "--coords"),
        (["--task", "x", *MODEL, "--monitor", "left"], "--monitor"),
        (["--task", "x", *MODEL, "--monitor", "²"], "--monitor"),
        (["--task", "x", *MODEL, "--max-cost", "1", "--price", "nan,1"], "--price"),
        (["--task", "x", *MODEL, "--price", "1,-1"], "--price"),
        (["--task", "x", *MODEL, "--schema", "missing.json"], "missing.json"),
        (["--task", "x", *MODEL, "--mcp", "missing.json"], "missing.json"),
        (["--task", "x", *MODEL, "--max-cost", "1"], "--price"),
        (["--task", "x", "--base-url", "http://127.0.0.1:9/v1"], "--model"),
        (["parse", "--size", "big"], "--size"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_status_2(
    tmp_path: Path, argv: Sequence[str], told: str
) -> None:
    ran = solo(tmp_path, *argv)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert told in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
    "argv", [["--help"], [], ["guide"], ["setup", "--help"], ["doctor", "--help"], ["parse", "--help"]]
)
def test_help_needs_nothing(tmp_path: Path, argv: Sequence[str]) -> None:
    probe = f"import sys; sys.argv[1:] = {list(argv)!r}; import runpy; runpy.run_path({str(FILE)!r}, run_name='__main__')"
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", probe], env=env, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout


def test_the_guide_and_help_name_every_command_and_every_verb(tmp_path: Path) -> None:
    from agent_solo import COMMANDS, VERBS

    guide, shown = solo(tmp_path, "guide").stdout, solo(tmp_path, "--help").stdout
    assert not [verb for verb in VERBS if verb not in guide]
    assert not [name for name, command in COMMANDS.items() if command.meaning and name not in shown]
    assert "exit status" in shown


def test_no_model_is_one_sentence_with_three_ways_out(tmp_path: Path) -> None:
    ran = solo(tmp_path, "--task", "x")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert all(way in ran.stderr for way in ("Ollama", "OPENAI_API_KEY", "demo"))


def test_no_display_is_one_sentence(tmp_path: Path) -> None:
    ran = solo(tmp_path, "--task", "x", *MODEL)
    assert (ran.returncode, ran.stdout) == (3, "")
    assert "DISPLAY is not set" in ran.stderr


def test_with_json_even_what_stops_it_before_it_begins_is_an_object(tmp_path: Path) -> None:
    ran = solo(tmp_path, "--task", "x", *MODEL, "--json")
    told = json.loads(ran.stdout)
    assert (told["outcome"], told["status"], told["result"]) == ("missing_part", 3, None)


def test_parse_reads_a_reply_and_prints_the_action(tmp_path: Path) -> None:
    ran = solo(
        tmp_path,
        "parse",
        "--coords",
        "1000",
        "--size",
        "1344x756",
        given='{"action":"click","x":500,"y":500}',
    )
    told = json.loads(ran.stdout)
    assert (ran.returncode, told["action"], told["x"], told["y"]) == (0, "click", 672, 378)


def test_parse_says_what_is_wrong(tmp_path: Path) -> None:
    ran = solo(tmp_path, "parse", given='{"action":"click","x":5000,"y":1}')
    assert (ran.returncode, json.loads(ran.stdout)["error"]["code"]) == (1, "out_of_range")


@pytest.mark.parametrize("given", ["", "\x00", "\udcff", "{" * 9000, '{"content": 5}'])
def test_parse_never_falls_over(tmp_path: Path, given: str) -> None:
    ran = solo(tmp_path, "parse", given=given.encode("utf-8", "replace").decode())
    assert ran.returncode == 1
    assert json.loads(ran.stdout)["error"]["message"]


def test_a_console_of_cp1252_does_not_break(tmp_path: Path) -> None:
    ran = solo(tmp_path, "parse", given='{"action":"input","parameter":"订单 🙂"}', PYTHONIOENCODING="cp1252")
    assert ran.returncode == 0
    assert json.loads(ran.stdout)["parameter"] == "订单 🙂"


def test_doctor_without_a_display_says_what_to_do(tmp_path: Path) -> None:
    ran = solo(tmp_path, "doctor")
    assert ran.returncode == 3
    assert "display" in ran.stdout
    assert "->" in ran.stdout


def test_setup_with_nobody_to_ask_changes_nothing(tmp_path: Path) -> None:
    ran = solo(tmp_path, "setup")
    assert ran.returncode == 2
    assert not (tmp_path / "home" / "venv").exists()


def test_with_json_a_wrong_option_is_an_object_too(tmp_path: Path) -> None:
    ran = solo(tmp_path, "--task", "x", "--confirm", "nevr", "--json")
    assert (ran.returncode, json.loads(ran.stdout)["outcome"]) == (2, "usage")


def test_a_sentence_ends_before_the_next_move_begins(tmp_path: Path) -> None:
    assert "'dcotor'. Did you mean doctor?" in solo(tmp_path, "dcotor").stderr


def test_doctor_goes_into_the_private_environment_as_soon_as_it_is_ready(tmp_path: Path) -> None:
    from agent_solo import environment_stamp

    folder = tmp_path / "home" / "venv" / "bin"
    folder.mkdir(parents=True)
    python = folder / "python"
    python.write_text('#!/bin/sh\necho moved in "$@"\n')
    python.chmod(0o755)
    (folder.parent / "agent_solo.stamp").write_text(environment_stamp(tmp_path / "home", FILE))
    bare = [sys.executable, "-I", "-S", str(FILE), "doctor"]  # an interpreter without packages
    env = {"PATH": os.environ["PATH"], "AGENT_SOLO_HOME": str(tmp_path / "home")}
    ran = subprocess.run(bare, env=env, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"moved in {FILE} doctor\n")


# -- mcp: servers without a run ---------------------------------------------------------------

FAULTY = Path(__file__).parent / "mcp_servers" / "faulty.py"


def config(tmp_path: Path, **faults: str) -> str:
    """A config file with one server for each fault."""
    path = tmp_path / "mcp.json"
    servers = {
        name: {"command": sys.executable, "args": [str(FAULTY), fault]} for name, fault in faults.items()
    }
    path.write_text(json.dumps({"mcpServers": servers}))
    return str(path)


def test_mcp_list_and_doctor_name_servers_tools_and_faults(tmp_path: Path) -> None:
    file = config(tmp_path, desk="none", bad="exits")
    listed = solo(tmp_path, "mcp", "list", "--mcp", file)
    assert (listed.returncode, listed.stderr) == (1, "")
    assert "    echo: " in listed.stdout
    assert (
        'bad: MEND: The MCP server "bad" has ended (exit status 1); it said: cannot open the' in listed.stdout
    )
    checked = solo(tmp_path, "mcp", "doctor", "--mcp", file, "--json")
    desk, bad = json.loads(checked.stdout)
    assert (desk["ready"], desk["problem"], "echo" in [tool["name"] for tool in desk["tools"]]) == (
        True,
        "",
        True,
    )
    assert desk["seconds"] > 0
    assert (bad["ready"], bad["said"], bad["tools"]) == (False, "cannot open the ledger", [])
    assert solo(tmp_path, "mcp", "doctor", "--mcp", config(tmp_path, desk="none")).returncode == 0


def test_mcp_call_prints_the_answer_and_its_status_says_whether_it_failed(tmp_path: Path) -> None:
    file = config(tmp_path, desk="none", bad="exits")
    told = solo(tmp_path, "mcp", "call", "desk", "echo", '{"text": "订单"}', "--mcp", file)
    assert (told.returncode, told.stdout, told.stderr) == (0, '{"text": "订单"}\n', "")
    refused = solo(tmp_path, "mcp", "call", "desk", "refuse", "--mcp", file, "--json")
    assert (refused.returncode, json.loads(refused.stdout)["error"]["message"]) == (1, "no such order")
    (picture,) = json.loads(solo(tmp_path, "mcp", "call", "desk", "picture", "--mcp", file, "--json").stdout)[
        "pictures"
    ]
    assert Path(picture).read_bytes().startswith(b"\x89PNG")
    dead = solo(tmp_path, "mcp", "call", "bad", "echo", "--mcp", file)
    assert (dead.returncode, "cannot open the ledger" in dead.stderr) == (1, True)
    unknown = solo(tmp_path, "mcp", "call", "desk", "nothing", "--mcp", file)
    assert (unknown.returncode, 'no tool is called "nothing"' in unknown.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["list"], "no MCP config is named"),
        (["call", "desk"], "mcp call does not take these words"),
        (["call", "desk", "echo", "[1]"], "the arguments are no JSON object"),
        (["call", "dsek", "echo"], "there is no MCP server"),
        (["start"], "invalid choice"),
    ],
)
def test_mcp_words_that_do_not_fit_are_usage(tmp_path: Path, words: list[str], told: str) -> None:
    files = ["--mcp", config(tmp_path, desk="none")] if words[0] == "call" else []
    ran = solo(tmp_path, "mcp", *words, *files)
    assert (ran.returncode, told in ran.stderr) == (2, True), ran.stderr


class Someone:
    """A person who gives one answer and remembers the questions; None: nobody is there."""

    def __init__(self, answer: str | None) -> None:
        self.answer, self.asked = answer, []

    def allows(self, question: agent_solo.Question) -> bool:
        raise NotImplementedError

    def answers(self, question: str) -> str:
        self.asked.append(question)
        if self.answer is None:
            raise agent_solo.PersonNeeded("nobody is there")
        return self.answer


@pytest.mark.parametrize(("answer", "taken"), [("y", 1), ("", 0), ("no", 0), (None, 0)])
def test_a_projects_own_servers_start_only_with_a_yes(tmp_path: Path, answer: str | None, taken: int) -> None:
    Path(config(tmp_path, desk="none")).rename(tmp_path / ".mcp.json")
    someone = Someone(answer)
    files = agent_solo.project_files(tmp_path, someone)
    assert files == [str(tmp_path / ".mcp.json")][:taken]
    (question,) = someone.asked
    assert ".mcp.json" in question
    assert f"{FAULTY} none" in question
