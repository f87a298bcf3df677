"""Setup: a private environment that is finished or not there, and a doctor that never stumbles."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agent_solo
from agent_solo import (
    Box,
    Check,
    Frame,
    MissingPart,
    Picture,
    ScreenPoint,
    Shot,
    Sight,
    Usage,
    Window,
    doctor,
    environment_ready,
    packages,
    pip_fault,
    private_python,
    setup,
)

SOLO = Path(agent_solo.__file__)


def wheel(folder: Path, name: str) -> Path:
    """A package with nothing in it but a module that says its name."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr(f"{name}.py", f"NAME = {name!r}\n")
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", "")
    return path


def program(path: Path, *requirements: str) -> Path:
    """A file like agent_solo.py: a PEP 723 block, and a body that goes on in the private environment."""
    listed = "".join(f'#   "{requirement}",\n' for requirement in requirements)
    path.write_text(
        f"# /// script\n# dependencies = [\n{listed}# ]\n# ///\n"
        "import sys\nfrom pathlib import Path\n"
        f"sys.path.append({str(SOLO.parent)!r})\nimport agent_solo\n"
        "home, module, *rest = sys.argv[1:]\n"
        "try:\n    agent_solo.relaunch(Path(home), Path(__file__), sys.argv[1:], [module])\n"
        "except agent_solo.MissingPart as fault:\n    sys.exit(f'{fault.sentence} {fault.hint}')\n"
        "print(__import__(module).NAME, sys.prefix, rest)\nsys.exit(7)\n",
        "utf-8",
    )
    return path


class Place:
    """A home with a finished environment, the file it was made for, and what set-up said."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.file = program(folder / "solo.py", f"tinypart @ {wheel(folder, 'tinypart').as_uri()}")
        self.said: list[str] = []

    def setup(self, **changes: Any) -> int:
        given: dict[str, Any] = {"system": [], "say": self.said.append, "ask": lambda _: True, **changes}
        self.said.clear()
        return setup(self.home, self.file, **given)

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, str(self.file), str(self.home), *argv]
        return subprocess.run(words, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("setup"))
    assert made.setup() == 0
    yield made


def test_the_list_of_packages_is_the_one_in_the_file() -> None:
    tomllib = pytest.importorskip("tomllib", reason="new in Python 3.11")
    lines = SOLO.read_text("utf-8").split("# ///")[1].splitlines()[1:]
    block = tomllib.loads("\n".join(line.removeprefix("#").removeprefix(" ") for line in lines))
    assert packages(SOLO) == block["dependencies"]
    assert len(packages(SOLO)) > 5


def test_set_up_makes_an_environment_that_has_the_packages(place: Place) -> None:
    found = subprocess.run(
        [private_python(place.home), "-c", "import tinypart; print(tinypart.NAME)"],
        capture_output=True,
        text=True,
    )
    assert found.stdout == "tinypart\n"


def test_a_second_set_up_changes_nothing_and_says_so(place: Place) -> None:
    before = {path: path.stat().st_mtime_ns for path in place.home.rglob("*")}
    assert place.setup() == 0
    assert len(place.said) == 1
    assert place.said[0].startswith("Nothing to do")
    assert {path: path.stat().st_mtime_ns for path in place.home.rglob("*")} == before


def test_one_that_was_cut_off_is_mended_by_the_next(tmp_path: Path) -> None:
    place = Place(tmp_path)
    half = place.home / "venv" / "lib"
    half.mkdir(parents=True)
    (half / "rest").write_text("left by a run that was ended")
    assert not environment_ready(place.home, place.file)
    assert "solo.py setup --yes" in place.run("tinypart").stderr
    assert place.setup() == 0
    assert environment_ready(place.home, place.file)
    assert not (half / "rest").exists()
    assert place.run("tinypart").returncode == 7


def test_another_list_of_packages_is_not_taken_for_finished(place: Place) -> None:
    other = program(place.home.parent / "newer.py", "tinypart", "another")
    assert environment_ready(place.home, place.file)
    assert not environment_ready(place.home, other)


def test_the_file_goes_on_in_its_environment_with_its_arguments_and_exit_status(place: Place) -> None:
    went = place.run("tinypart", "--task", "two words", "*")
    assert went.returncode == 7
    assert went.stdout.split() == [
        "tinypart",
        str(place.home / "venv"),
        "['--task',",
        "'two",
        "words',",
        "'*']",
    ]


def test_it_goes_there_once_and_not_round_in_circles(place: Place) -> None:
    went = place.run("no_such_module")
    assert went.returncode == 1
    assert went.stderr == "Not installed: no_such_module. python3 solo.py setup --yes\n"


def test_without_an_environment_the_sentence_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingPart) as fault:
        agent_solo.relaunch(tmp_path, SOLO, [], ["json", "no_such_module"])
    assert fault.value.sentence == "Not installed: no_such_module."
    assert fault.value.hint == "python3 agent_solo.py setup --yes"
    agent_solo.relaunch(tmp_path, SOLO, [], ["json"])  # nothing lacks, so nothing happens


def test_nothing_is_done_before_the_person_said_yes(tmp_path: Path) -> None:
    place, asked = Place(tmp_path), []

    def no(question: str) -> bool:
        asked.append(list(place.said))
        return False

    assert place.setup(ask=no, system=["apt-get", "install", "xvfb"]) == 1
    assert "as root: apt-get install xvfb" in "\n".join(asked[0])
    assert "with tinypart" in "\n".join(asked[0])
    assert place.said[-1] == "Nothing was changed."
    with pytest.raises(Usage) as fault:
        place.setup(ask=None)
    assert fault.value.status == 2
    assert "--yes" in fault.value.hint
    assert not place.home.exists()


def test_what_it_may_not_install_is_a_command_to_type_and_the_rest_is_done(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with pytest.raises(MissingPart) as fault:
        place.setup(system=["dnf", "install", "-y", "openbox"])
    assert fault.value.status == 3
    assert fault.value.hint == "sudo dnf install -y openbox && python3 solo.py setup --yes"
    assert environment_ready(place.home, place.file)


def test_a_package_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    place = Place(tmp_path)
    program(place.file, f"ghost @ {(tmp_path / 'ghost-1.0-py3-none-any.whl').as_uri()}")
    with pytest.raises(MissingPart) as fault:
        place.setup()
    assert "ghost-1.0-py3-none-any.whl" in fault.value.sentence
    assert "\n" not in fault.value.sentence
    assert not environment_ready(place.home, place.file)


# What pip really printed (pip 23.2.1), shortened to what matters.
PIP_SAID = {
    "the package index cannot be reached; is this machine offline?": """\
WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after connection \
broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPConnection object at 0x7f>: Failed to \
establish a new connection: [Errno 111] Connection refused')': /simple/mss/
ERROR: Could not find a version that satisfies the requirement mss>=10.1 (from versions: none)
ERROR: No matching distribution found for mss>=10.1""",
    "no mss>=99 fits this Python on this system": """\
ERROR: Could not find a version that satisfies the requirement mss>=99 (from versions: 10.0.0, 10.1.0)
ERROR: No matching distribution found for mss>=99""",
    "brk2 could not be built here": """\
      error: Command '['gcc', '-c', 'x.c']' returned non-zero exit status 1.
  note: This error originates from a subprocess, and is likely not a problem with pip.
  ERROR: Failed building wheel for brk2
Failed to build brk2
ERROR: Could not build wheels for brk2, which is required to install pyproject.toml-based projects""",
    "pyscreeze could not be built here": """\
Collecting mss>=10.1
Collecting pyscreeze>=0.1.21 (from pyautogui>=0.9.54)
  Getting requirements to build wheel: started
  error: subprocess-exited-with-error
  × Getting requirements to build wheel did not run successfully.
error: subprocess-exited-with-error""",
    "the disk is full": "ERROR: Could not install packages due to an OSError: [Errno 28] No space left",
}


@pytest.mark.parametrize("meaning", PIP_SAID)
def test_what_pip_says_becomes_half_a_sentence(meaning: str) -> None:
    assert pip_fault(PIP_SAID[meaning]) == meaning


class FakeHost:
    """A host with one monitor, whose pointer goes where it is sent, or stays."""

    name = "fake"

    def __init__(self, *, moves: bool) -> None:
        self.at, self.moves, self.closed = ScreenPoint(x=0, y=0), moves, False

    def monitors(self) -> tuple[Box, ...]:
        return (Box(x=0, y=0, width=800, height=600),)

    def windows(self) -> tuple[Window, ...]:
        return ()

    def pointer(self) -> ScreenPoint:
        return self.at

    def move(self, point: ScreenPoint) -> None:
        self.at = point if self.moves else self.at

    def close(self) -> None:
        self.closed = True


class FakeChannel:
    """A channel that sees one thing."""

    def __init__(self, sight: Sight) -> None:
        self.sight = sight

    def look(self, *, acted: bool) -> Sight:
        return self.sight

    def close(self) -> None:
        pass


def frame(cells: bytes) -> Frame:
    shot = Shot(width=784, height=588, area=Box(x=0, y=0, width=800, height=600))
    return Frame(
        shot=shot, picture=Picture(data=b"x" * 5000, mime="image/png"), digest=1, cells=cells, columns=2
    )


def examine(opened: Callable[[], Any], **changes: Any) -> dict[str, Check]:
    given: dict[str, Any] = {
        "home": Path("/nowhere/at/all"),
        "file": SOLO,
        "environ": {"OPENAI_API_KEY": "sk-secret"},
        "local": lambda: None,
    }
    return {check.name: check for check in doctor(opened=opened, **{**given, **changes})}


def absent() -> Any:
    raise MissingPart("There is no display.", "start one")


def test_doctor_without_a_display_says_so_in_one_line() -> None:
    checks = examine(absent)
    assert checks["display"] == Check(
        name="display", ok=False, found="There is no display.", todo="start one"
    )
    assert "pointer" not in checks


def test_doctor_names_every_package_of_this_system_and_no_other() -> None:
    checks = examine(absent)
    assert {"mss", "pyautogui", "pillow", "openai"} <= set(checks)
    assert ("jeepney" in checks) == (sys.platform == "linux")
    assert all(check.found for check in checks.values())


def test_doctor_tries_picture_and_pointer() -> None:
    host = FakeHost(moves=True)
    pixels, tree = FakeChannel(Sight(frame=frame(b"\x00\xff"))), FakeChannel(Sight(notes=("No bus.",)))
    checks = examine(lambda: (host, pixels, tree))
    assert checks["display"].found == "fake, 800x600+0+0"
    assert checks["picture"].found == "800x600, sent as 784x588, 4 KB"
    assert checks["pointer"].found == "moved to 4,4, read back, and put back"
    assert checks["accessibility"] == Check(name="accessibility", ok=None, found="No bus.")
    assert host.at == ScreenPoint(x=0, y=0)
    assert host.closed


def test_doctor_believes_neither_a_blank_picture_nor_a_stuck_pointer() -> None:
    blank = FakeChannel(Sight(frame=frame(b"\x00\x00")))
    checks = examine(lambda: (FakeHost(moves=False), blank, FakeChannel(Sight())))
    assert not checks["picture"].ok
    assert checks["picture"].todo
    assert checks["pointer"].found == "sent to 4,4, it went to 0,0"


def test_doctor_shows_no_key() -> None:
    checks = examine(absent)
    assert checks["model"].ok
    assert "sk-secret" not in str(checks)


def test_doctor_looks_for_a_server_on_this_machine_and_else_names_three_ways() -> None:
    here = ("http://127.0.0.1:11434/v1", "qwen3-vl")
    assert (
        examine(absent, environ={}, local=lambda: here)["model"].found
        == "qwen3-vl at http://127.0.0.1:11434/v1"
    )
    nothing = examine(absent, environ={})["model"]
    assert not nothing.ok
    assert all(way in nothing.todo for way in ("OPENAI_API_KEY", "--base-url", "local server"))


def test_doctor_reads_the_config_of_the_tool_servers(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"files": {"command": "npx"}, "notes": {"url": "http://127.0.0.1:9"}}}')
    assert examine(absent, mcp=path)["tools"].found == "files, notes"
    path.write_text('{"mcpServers": {"files": {}}}')
    assert examine(absent, mcp=path)["tools"].found.startswith("files: ")
    path.write_text("{")
    assert not examine(absent, mcp=path)["tools"].ok


@pytest.mark.skipif(os.name != "posix" or os.getuid() == 0, reason="root may write anywhere")
def test_doctor_says_when_home_cannot_be_written_to() -> None:
    assert examine(absent)["home"].todo == "name another folder in AGENT_SOLO_HOME"


def test_with_nothing_installed_doctor_still_has_a_sentence_for_each_part(tmp_path: Path) -> None:
    """In an environment without a single package: no import error, no traceback."""
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bare], check=True)
    code = (
        "import agent_solo, pathlib\n"
        "def absent(): raise agent_solo.MissingPart('no display')\n"
        "file, home, key = pathlib.Path(agent_solo.__file__), pathlib.Path.home(), {'OPENAI_API_KEY': 'x'}\n"
        "checks = agent_solo.doctor(home=home, file=file, environ=key, local=None, opened=absent)\n"
        "for check in checks: print(check.name, check.ok, check.todo)\n"
    )
    inner = bare / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    told = subprocess.run(
        [inner, "-c", code], cwd=SOLO.parent, capture_output=True, text=True, check=True
    ).stdout
    assert "mss False python3 agent_solo.py setup --yes" in told
