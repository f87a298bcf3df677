"""Host: the clock, programs, and what can be known about hands without a screen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_solo import (
    Box,
    CornerWatch,
    Held,
    Interrupted,
    MissingPart,
    ScreenPoint,
    SystemClock,
    TellModel,
    applications,
    batches,
    corners,
    end_program,
    keysym,
    needing,
    patient,
    start_program,
    this_host,
    typable,
)


def test_a_stopped_clock_ends_every_sleep_and_says_why() -> None:
    clock = SystemClock()
    clock.sleep(0)
    threading.Timer(0.05, clock.stop, ["the person waved"]).start()
    with pytest.raises(Interrupted, match="the person waved"):
        clock.sleep(600)
    clock.stop("later")
    with pytest.raises(Interrupted, match="the person waved"):
        clock.sleep(0)


def test_a_signal_waits_for_what_must_stay_whole() -> None:
    clock, done = SystemClock(), list[str]()
    with pytest.raises(KeyboardInterrupt), clock.whole():
        clock.interrupt()
        with clock.whole():
            done.append("inside")
        done.append("outside")
    assert done == ["inside", "outside"]
    with pytest.raises(KeyboardInterrupt):
        clock.interrupt()


def test_another_thread_keeps_no_signal_waiting() -> None:
    clock = SystemClock()
    with pytest.raises(KeyboardInterrupt):
        patient(clock.whole()(clock.interrupt), SystemClock())
    with clock.whole():
        patient(clock.whole()(int), SystemClock())


def test_time_only_grows() -> None:
    clock = SystemClock()
    before = clock.now()
    clock.sleep(0.01)
    assert clock.now() > before


def test_patience_hands_on_what_the_call_returned_or_raised() -> None:
    def fail() -> int:
        raise OSError("no such luck")

    assert patient(lambda: 42, SystemClock()) == 42
    with pytest.raises(OSError, match="no such luck"):
        patient(fail, SystemClock())


def test_patience_ends_when_the_clock_is_stopped_though_the_call_goes_on() -> None:
    clock, never = SystemClock(), threading.Event()
    threading.Timer(0.05, clock.stop).start()
    with pytest.raises(Interrupted):
        patient(lambda: never.wait(600), clock)
    never.set()


@pytest.mark.parametrize(
    "fault", [ImportError("no module"), SystemExit("tkinter, please"), KeyError("DISPLAY")]
)
def test_whatever_an_import_does_becomes_one_sentence_with_a_way_out(fault: BaseException) -> None:
    with pytest.raises(MissingPart, match="mss is needed to see") as missing, needing("mss", "to see"):
        raise fault
    assert str(fault) in missing.value.sentence
    assert "setup" in missing.value.hint


def test_a_program_ends_by_itself_when_its_input_is_closed() -> None:
    process = start_program(["cat"], pipes=True)
    assert process.stdin
    assert process.stdout
    process.stdin.write(b"said\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"said\n"
    end_program(process)
    assert process.returncode == 0


def test_a_program_that_will_not_is_ended_with_all_that_it_started() -> None:
    stubborn = "trap '' TERM; sh -c \"trap '' TERM; echo ready; while :; do sleep 1; done\" & wait; wait"
    process = start_program(["sh", "-c", stubborn], pipes=True)
    assert process.stdout
    process.stdout.readline()
    end_program(process, patience=0.1)
    assert process.returncode == -9
    assert process.stdout.read() == b""  # ends only when nobody holds the other end any more


def test_children_end_though_their_parent_went_first() -> None:
    process = start_program(["sh", "-c", "sleep 600 & echo started; cat"], pipes=True)
    assert process.stdout
    process.stdout.readline()
    end_program(process)
    assert process.stdout.read() == b""


def test_a_program_that_is_not_there_is_told_to_the_model(tmp_path: Path) -> None:
    with pytest.raises(TellModel, match="nonesuch cannot be started: No such file") as missing:
        start_program([str(tmp_path / "nonesuch")])
    assert (missing.value.code, missing.value.delivery) == ("APP_NOT_FOUND", "not_delivered")


def test_a_program_gets_its_folder_and_only_the_environment_it_is_given(tmp_path: Path) -> None:
    process = start_program(
        ["/bin/sh", "-c", "pwd; echo $ONLY$HOME"], pipes=True, cwd=tmp_path, env={"ONLY": "this"}
    )
    assert process.stdout
    assert process.stdout.read() == f"{tmp_path}\nthis\n".encode()
    end_program(process)


def test_corners_are_those_of_every_monitor_and_lead_inwards() -> None:
    found = corners([Box(x=-1920, y=0, width=1920, height=1080), Box(x=0, y=0, width=1280, height=800)])
    assert len(found) == 8
    assert found[ScreenPoint(x=-1920, y=0)] == ScreenPoint(x=-1919, y=1)
    assert found[ScreenPoint(x=1279, y=799)] == ScreenPoint(x=1278, y=798)


class Wanderer:
    """A host whose pointer goes through these places, and stays at the last."""

    def __init__(self, *places: tuple[int, int]) -> None:
        self.places, self.seen = list(places), threading.Event()

    def monitors(self) -> tuple[Box, ...]:
        return (Box(x=0, y=0, width=100, height=100),)

    def pointer(self) -> ScreenPoint:
        x, y = self.places[0]
        if len(self.places) == 1:
            self.seen.set()
        else:
            self.places.pop(0)
        return ScreenPoint(x=x, y=y)


def test_going_into_a_corner_stops_the_clock() -> None:
    clock, host = SystemClock(), Wanderer((50, 50), (99, 99))
    with CornerWatch(host, clock), pytest.raises(Interrupted, match="corner"):  # type: ignore[arg-type]
        clock.sleep(600)


def test_a_pointer_that_rests_in_a_corner_does_not_until_it_comes_back() -> None:
    clock, host = SystemClock(), Wanderer((0, 0), (0, 0), (0, 0))
    with CornerWatch(host, clock):  # type: ignore[arg-type]
        assert host.seen.wait(10)
        clock.sleep(0)
        host.places += [(50, 50), (0, 0)]
        with pytest.raises(Interrupted):
            clock.sleep(600)


def dead_process() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_what_is_held_is_on_disk_for_as_long_as_it_is_held(tmp_path: Path) -> None:
    file = tmp_path / "home" / "held.json"
    held = Held(file)
    held.mark("key ctrl", True)
    held.mark("button left", True)
    assert json.loads(file.read_text())["held"] == ["key ctrl", "button left"]
    held.mark("key ctrl", False)
    assert json.loads(file.read_text())["held"] == ["button left"]
    held.mark("button left", False)
    assert list(file.parent.iterdir()) == []


def test_what_a_killed_run_held_is_taken_over_and_what_a_living_one_holds_is_not(tmp_path: Path) -> None:
    file = tmp_path / "held.json"
    for process, things in ((dead_process(), ["key ctrl"]), (os.getpid(), [])):
        file.write_text(json.dumps({"pid": process, "held": ["key ctrl"]}))
        assert Held(file).things == things
    file.write_text('{"pid": 1')
    assert Held(file).things == []


def test_what_cannot_be_written_down_is_not_held_and_is_let_go_of_all_the_same(tmp_path: Path) -> None:
    held = Held(tmp_path / "home" / "held.json")
    held.mark("key ctrl", True)
    held.mark("key shift", True)
    (tmp_path / "home" / "held.new").symlink_to("/dev/full")
    with pytest.raises(MissingPart, match="No space left"):
        held.mark("button left", True)
    held.mark("key shift", True)
    held.mark("key shift", False)
    assert held.things == ["key ctrl"]
    held.mark("key ctrl", False)
    assert held.things == []


def test_an_argument_that_no_program_can_have_is_told_to_the_model() -> None:
    for word in ("a\0b", "\ud83d"):
        with pytest.raises(TellModel, match="cannot be started"):
            start_program([sys.executable, word])


def test_applications_are_known_by_name_and_started_without_files(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "applications" / "deep"
    folder.mkdir(parents=True)
    entries = {
        "editor": 'Name=Text Editor\nName[de]=Textbearbeitung\nExec="/opt/My Editor/edit" --new %U\n',
        "rate": "Name=Rate\nExec=rate --at 50%% %f\n\n[Desktop Action New]\nName=New\nExec=other\n",
        "broken": "Name=Broken\nExec='unclosed\n",
        "link": "Name=Link\n",
    }
    for name, text in entries.items():
        (folder / f"{name}.desktop").write_text(f"[Desktop Entry]\nType=Application\n{text}")
    found = applications({"XDG_DATA_HOME": str(tmp_path / "none"), "XDG_DATA_DIRS": str(tmp_path / "share")})
    assert found == {"text editor": ["/opt/My Editor/edit", "--new"], "rate": ["rate", "--at", "50%"]}


@given(text=st.lists(st.integers(1, 30)), known=st.sets(st.integers(1, 30)), room=st.integers(1, 6))
def test_batches_are_the_text_in_order_and_never_lack_too_much(
    text: list[int], known: set[int], room: int
) -> None:
    parts = list(batches(text, known, room))
    assert [symbol for part, _ in parts for symbol in part] == text
    for part, lacking in parts:
        assert len(lacking) <= room
        assert set(part) - known == set(lacking)


def test_characters_have_their_x_names() -> None:
    assert [keysym(char) for char in "a<é€🙂\n\t"] == [0x61, 0x3C, 0xE9, 0x10020AC, 0x101F642, 0xFF0D, 0xFF09]


@pytest.mark.parametrize("char", ["\x00", "\x07", "\x1b", "\x7f", "\x85", "\ud800"])
def test_no_key_types_a_control_character(char: str) -> None:
    with pytest.raises(TellModel, match="control character"):
        typable(f"before{char}after")


def test_line_ends_become_one_kind_and_nothing_else_changes() -> None:
    assert typable(" \ta\r\nb\rc\n e\u0301 שלום \u200d ") == " \ta\nb\nc\n e\u0301 שלום \u200d "


@pytest.mark.skipif(sys.platform != "linux", reason="X11")
@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, "DISPLAY is not set"),
        ({"DISPLAY": ""}, "DISPLAY is not set"),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "Wayland"),
        ({"DISPLAY": ":987"}, ":987 does not answer"),
        ({"DISPLAY": "nonsense"}, "nonsense does not answer"),
    ],
)
def test_no_screen_is_one_sentence_and_a_way_out(tmp_path: Path, environ: dict[str, str], said: str) -> None:
    host = this_host(tmp_path, SystemClock(), environ)
    with pytest.raises(MissingPart, match=said) as missing:
        host.open()
    assert "xvfb-run" in missing.value.hint
    host.close()
