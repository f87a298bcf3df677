"""Chapter 16: what a run leaves on disk."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import agent_solo as solo

KEY = "sk-test-0123456789abcdefghij"
ODD = 'pass"word\\入'  # a secret that JSON must escape
PIXELS = b"\xff\xd8\xff pixels"


def frame(digest: int) -> solo.Frame:
    """A picture of the screen with this digest."""
    shot = solo.Shot(width=28, height=28, area=solo.Box(x=0, y=0, width=56, height=56))
    picture = solo.Picture(data=PIXELS + bytes([digest]), mime="image/jpeg")
    return solo.Frame(shot=shot, picture=picture, digest=digest, cells=bytes(4), columns=2)


def snapshot(name: str, digest: int, title: str = "Ledger") -> solo.Snapshot:
    """A screen with one window and one element."""
    box = solo.Box(x=1, y=2, width=3, height=4)
    window = solo.Window(id="w1", title=title, app="ledger", pid=7, box=box)
    element = solo.Element(ref="e12", role="button", name="Save", value=KEY, box=box, window="w1")
    return solo.Snapshot(id=name, time=1.5, frame=frame(digest), windows=(window,), elements=(element,))


def step(number: int, before: solo.Snapshot, after: solo.Snapshot, **more: Any) -> solo.Step:
    """One click that worked."""
    action = solo.Action(
        verb="input", ref="e12", parameter=f"Zoë 订单 {KEY}", point=solo.ShotPoint(x=1.5, y=2)
    )
    permit = solo.Permit(action=action, aim=solo.ScreenPoint(x=3, y=4), window=before.windows[0])
    receipt = solo.Receipt(
        command="input",
        ok=True,
        delivery="delivered_verified",
        data={"headers": {"Authorization": f"Bearer {KEY}", KEY: [KEY, (ODD,)]}, "nan": float("nan")},
        pictures=(solo.Picture(data=b"\x89PNG tool", mime="image/png"),),
    )
    parts: dict[str, Any] = {
        "number": number,
        "before": before,
        "decision": solo.Decision(
            action=action,
            reasoning=f"it says {json.dumps({'k': ODD}, ensure_ascii=False)}",
            used=solo.Spent(tokens_in=5),
        ),
        "verdict": permit,
        "receipt": receipt,
        "after": after,
        "change": solo.Change(moved=True, text="A line appeared.", box=before.windows[0].box),
        "seconds": 0.25,
    }
    return solo.Step(**(parts | more))


def begin(home: Path, **more: Any) -> solo.Journal:
    """A journal with two secrets."""
    return solo.Journal(home, [KEY, ODD], task=f"Enter {KEY} into the Zoë/../ledger: now, please", **more)


def lines(journal: solo.Journal) -> list[dict[str, Any]]:
    """The journal, read as a stranger would."""
    text = (journal.folder / "journal.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def recorded(home: Path) -> solo.Journal:
    """A run of two steps; the second changed nothing on the screen."""
    journal = begin(home, settings={"model": "m", "key": KEY, "limits": {"steps": 60}})
    one, two, three = snapshot("s1", 1), snapshot("s2", 2), snapshot("s3", 2)
    for made in (step(1, one, two), step(2, two, three)):
        assert isinstance(made.verdict, solo.Permit)
        journal.intend(made.number, made.verdict)
        assert journal.record(made) is made
    return journal


def test_the_order_of_the_lines_is_the_order_of_the_run(tmp_path: Path) -> None:
    journal = recorded(tmp_path)
    journal.end(solo.Outcome(word="done", status=0, message="Done.", result={"total": 3}))
    assert [line["line"] for line in lines(journal)] == [
        *("run", "intend", "seen", "seen", "step"),
        *("intend", "seen", "step", "end"),
    ]
    first = lines(journal)[0]
    assert (first["version"], first["settings"]["limits"]) == (solo.__version__, {"steps": 60})


def test_an_intent_is_on_disk_before_the_act(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    made = step(1, snapshot("s1", 1), snapshot("s2", 2))
    assert isinstance(made.verdict, solo.Permit)
    journal.intend(1, made.verdict)
    last = lines(journal)[-1]
    assert (last["number"], last["permit"]["action"]["verb"], last["permit"]["aim"]) == (
        1,
        "input",
        {"x": 3, "y": 4},
    )
    assert last["permit"]["window"]["title"] == "Ledger"


def test_a_step_is_whole(tmp_path: Path) -> None:
    line = next(line for line in lines(recorded(tmp_path)) if line["line"] == "step")
    assert (line["number"], line["before"], line["after"], line["allowed"]) == (1, "s1", "s2", True)
    assert line["decision"]["used"]["tokens_in"] == 5
    assert line["receipt"]["data"]["disposition"] == {"delivery": "delivered_verified", "retry": "unsafe"}
    assert line["receipt"]["data"]["nan"] == "nan"
    assert line["change"]["text"] == "A line appeared."
    assert line["seconds"] == 0.25


def test_a_snapshot_is_written_once_and_whole(tmp_path: Path) -> None:
    seen = [line["snapshot"] for line in lines(recorded(tmp_path)) if line["line"] == "seen"]
    assert [one["id"] for one in seen] == ["s1", "s2", "s3"]
    assert (seen[0]["windows"][0]["title"], seen[0]["elements"][0]["ref"]) == ("Ledger", "e12")
    assert seen[0]["frame"]["shot"]["area"]["width"] == 56


def test_a_refused_and_an_unreadable_reply_are_steps_too(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    bad = solo.Unreadable(code="INVALID_ARGS", message="no action", raw="\ud800 hm")
    verdict = solo.Refusal(action=bad, code="INVALID_ARGS", message="no action")
    journal.record(
        step(1, snapshot("s1", 1), snapshot("s1", 1), decision=solo.Decision(action=bad), verdict=verdict)
    )
    last = lines(journal)[-1]
    assert (last["allowed"], last["verdict"]["code"], last["decision"]["action"]["raw"]) == (
        *(False, "INVALID_ARGS"),
        "\ud800 hm",
    )


def test_pictures_are_files_and_the_same_screen_is_one_file(tmp_path: Path) -> None:
    journal = recorded(tmp_path)
    seen = [line["snapshot"]["frame"]["picture"] for line in lines(journal) if line["line"] == "seen"]
    assert seen == ["frames/0001.jpg", "frames/0002.jpg", "frames/0002.jpg"]
    assert (journal.folder / seen[0]).read_bytes() == PIXELS + b"\x01"
    step_line = next(line for line in lines(journal) if line["line"] == "step")
    assert (journal.folder / step_line["pictures"][0]).read_bytes() == b"\x89PNG tool"


def test_no_secret_is_in_any_file_or_name(tmp_path: Path) -> None:
    journal = recorded(tmp_path)
    journal.keep(f"of {KEY}", f"long {KEY} text")
    journal.end(solo.Outcome(word="done", status=0, message=KEY, result={"key": KEY, KEY: ODD}))
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) >= 5
    for path in written:
        data = path.read_bytes()
        for secret in (KEY, ODD, json.dumps(ODD)[1:-1], json.dumps(ODD, ensure_ascii=False)[1:-1]):
            assert secret.encode() not in data, path
            assert secret not in str(path)


def test_it_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal = recorded(tmp_path / "home")
        journal.keep("a", b"b")
    finally:
        os.umask(before)
    for path in (tmp_path / "home").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_the_folder_says_when_and_what(tmp_path: Path) -> None:
    journal, other = begin(tmp_path), begin(tmp_path)
    assert journal.folder.parent == tmp_path / "runs"
    assert journal.folder.name.split("-", 1)[1].startswith("enter-")
    assert "zoë-ledger" in journal.folder.name
    assert journal.folder != other.folder


def test_the_end_has_the_result_and_the_last_picture(tmp_path: Path) -> None:
    journal = recorded(tmp_path)
    journal.end(solo.Outcome(word="done", status=0, message="Done.", result=[{"名": 1}]))
    result = json.loads((journal.folder / "result.json").read_text(encoding="utf-8"))
    assert (result["word"], result["status"], result["result"]) == ("done", 0, [{"名": 1}])
    assert Path(result["picture"]).read_bytes() == PIXELS + b"\x02"


def test_what_is_kept_can_be_opened(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    text, data = journal.keep("desk__read all/../x", "Zoë\ud800"), journal.keep("b", b"\0")
    assert (text.name, text.read_text(encoding="utf-8")) == ("001-desk__read-all-x.txt", "Zoë?")
    assert (data.name, data.read_bytes()) == ("002-b", b"\0")
    hidden = journal.keep("b", b"\0" + KEY.encode() + b"\xff").read_bytes()
    assert hidden == b"\0" + b"*" * len(KEY) + b"\xff", "and as long as before"


def test_a_disk_that_is_full_is_one_sentence(tmp_path: Path) -> None:
    journal = begin(tmp_path)
    (journal.folder / "journal.jsonl").unlink()
    (journal.folder / "journal.jsonl").symlink_to("/dev/full")
    with pytest.raises(
        solo.StopRun, match=r"cannot be written to .*journal\.jsonl: No space left on device\."
    ):
        journal.record(step(1, snapshot("s1", 1), snapshot("s2", 2)))


def test_a_home_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file")
    with pytest.raises(solo.StopRun, match="cannot be written"):
        begin(tmp_path / "home")


def test_what_is_nested_without_end_is_recorded_in_part(tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    assert json.dumps(begin(tmp_path).clean(deep)).count("[") == 100


def test_cleaning_goes_into_everything(tmp_path: Path) -> None:
    cleaned = begin(tmp_path).clean({KEY: [KEY, {"path": Path("/tmp") / ODD}, 5, None, True]})
    assert KEY not in json.dumps(cleaned)
    assert ODD not in json.dumps(cleaned, ensure_ascii=False)
    assert next(iter(cleaned.values()))[2:] == [5, None, True]
