"""Chapter 19: commands on a desktop of fakes; what the envelope says is what was done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import DESK, OTHER, FakeClock, FakeHost, FakePerson

from agent_solo import (
    SPECS,
    Box,
    Desktop,
    Element,
    Permit,
    Picture,
    Pixels,
    Policy,
    Receipt,
    Rules,
    Sight,
    Snapshot,
    Store,
    TellModel,
    Window,
    identity,
)

AT = Box(x=150, y=150, width=80, height=20)
SAVE = Element(
    ref="e",
    role="button",
    name="Save",
    box=AT,
    window="w1",
    native=(":1", "/save", "b"),
    path=(0, 0),
    actions=("click",),
)
BAR = Element(
    ref="e", role="group", name="", box=AT, window="w1", native=(":1", "/bar", "b"), path=(0,), children=3
)
NAME = Element(
    ref="e",
    role="text field",
    name="Name",
    value="Ada",
    box=AT,
    window="w1",
    native=(":1", "/name", "b"),
    path=(0, 1),
)
AGREE = Element(
    ref="e", role="check box", name="Agree", box=AT, window="w1", native=(":1", "/agree", "b"), path=(0, 2)
)
DELETE = replace(SAVE, name="Delete", native=(":1", "/delete", "b"), path=(1,))


class FakeTree:
    """An application of elements that can change under the hand."""

    def __init__(self, *elements: Element, complete: bool = True) -> None:
        self.elements, self.complete, self.acts = list(elements), complete, []
        self.delivery = "delivered_verified"

    def survey(self, window: Window, **how: Any) -> Sight:
        kept = [e for e in self.elements if e.window == window.id]
        top = how["root"].path if how.get("root") else ()
        kept = [e for e in kept if e.path[: len(top)] == top]
        return Sight(elements=tuple(kept), complete=self.complete)

    def resolve(self, element: Element) -> Element:
        found = [e for e in self.elements if identity(e) == identity(replace(element, ref="e"))]
        if not found:
            raise TellModel("STALE_REF", f"{element.ref} is gone", "look again")
        return replace(found[0], ref=element.ref)

    def act(self, permit: Permit, seen: Snapshot) -> Receipt:
        self.acts.append((permit.action.verb, permit.action.parameter))
        self.headed = permit.headed
        return Receipt(
            command=permit.action.verb, ok=True, delivery=self.delivery, mechanism="semantic", message="done"
        )

    def reachable(self) -> bool:
        return True


class FakePixels(Pixels):
    """Hands that write down."""

    def picture(self, area: Box) -> tuple[Picture, Box]:
        return Picture(data=b"\x89PNG", mime="image/png"), area


class Work:
    """A desktop of fakes."""

    def __init__(
        self, home: Path, *elements: Element, windows: Sequence[Window] = (DESK, OTHER), person: Any = None
    ) -> None:
        self.clock, self.host = FakeClock(), FakeHost(*windows)
        self.tree: Any = FakeTree(*(elements or (BAR, SAVE, NAME, AGREE, DELETE)))
        host: Any = self.host
        pixels = FakePixels(host, self.clock)
        policy = Policy(Rules(any_window=True), {})
        self.desktop = Desktop(
            host, self.clock, tree=self.tree, pixels=pixels, policy=policy, store=Store(home), person=person
        )

    def ref(self, name: str) -> str:
        answer = self.desktop.find(name=name, first=True)
        return str(answer["data"]["match"]["ref_id"])

    def fails(self, code: str, command: str, *places: object, **words: object) -> dict[str, Any]:
        answer = self.desktop.do(command, *places, **words)
        assert (answer["ok"], answer["error"]["code"]) == (False, code), answer
        return dict(answer["error"])


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return Work(tmp_path)


def test_a_snapshot_is_a_tree_with_refs(work: Work) -> None:
    answer = work.desktop.snapshot(app="desk", include_bounds=True)
    data = answer["data"]
    assert (answer["version"], answer["ok"], answer["command"]) == ("1.0", True, "snapshot")
    assert {key: data[key] for key in ("app", "window", "ref_count", "complete")} == {
        "app": "desk", "window": {"id": "w1", "title": "Order desk"}, "ref_count": 5, "complete": True,
    }  # fmt: skip
    bar, delete = data["tree"]["children"]
    assert [node["name"] for node in bar["children"]] == ["Save", "Name", "Agree"]
    assert bar["children"][0] == {
        "ref_id": f"@{data['snapshot_id']}:e2", "role": "button", "name": "Save", "available_actions": ["click"],
        "bounds": {"x": 150, "y": 150, "width": 80, "height": 20},
    }  # fmt: skip
    assert delete["name"] == "Delete"


def test_a_cut_tree_says_so(work: Work) -> None:
    work.tree.complete = False
    data = work.desktop.snapshot()["data"]
    assert (data["complete"], data["truncated"], data["nodes_observed"]) == (False, True, 5)


def test_interactive_and_compact_leave_out_what_says_nothing(work: Work) -> None:
    assert work.desktop.snapshot(interactive=True)["data"]["ref_count"] == 4
    assert work.desktop.snapshot(compact=True)["data"]["ref_count"] == 4


def test_below_a_root(work: Work) -> None:
    name = work.desktop.snapshot()["data"]["snapshot_id"]
    data = work.desktop.snapshot(root=f"@{name}:e1")["data"]
    assert (data["tree"]["role"], data["ref_count"]) == ("group", 4)


def test_find_counts_limits_and_says_what_is_there(work: Work) -> None:
    assert work.desktop.find(role="button", count=True)["data"] == {"count": 2, "complete": True}
    data = work.desktop.find(role="button", limit=1)["data"]
    assert (data["total_matches"], data["truncated"], len(data["matches"])) == (2, True, 1)
    assert data["matches"][0]["path"] == ["group"]
    missing = work.desktop.find(name="Nope")["data"]
    assert (missing["matches"], missing["roles_present"]) == (
        [],
        ["button", "check box", "group", "text field"],
    )
    assert work.desktop.find(role="button", nth=9)["data"]["match"] is None
    assert work.desktop.find(role="button", last=True)["data"]["match"]["name"] == "Delete"
    assert work.desktop.find(text="ada")["data"]["matches"][0]["role"] == "text field"
    assert work.desktop.find(name="Sav", exact=True)["data"]["matches"] == []
    assert work.desktop.find(state=["checked=false"], role="check box", count=True)["data"]["count"] == 1


def test_get_and_is_read_the_live_element(work: Work) -> None:
    field, box = work.ref("Name"), work.ref("Agree")
    assert work.desktop.get(field)["data"] == {"ref": field, "property": "text", "value": "Ada"}
    assert work.desktop.is_(box, property="checked")["data"]["result"] is False
    work.tree.elements[2] = replace(NAME, value="Bob")
    work.tree.elements[3] = replace(AGREE, states=("checked",))
    assert work.desktop.get(field, property="value")["data"]["value"] == "Bob"
    assert work.desktop.is_(box, property="checked")["data"] == {
        "ref": box, "property": "checked", "applicable": True, "result": True,
    }  # fmt: skip
    assert work.desktop.is_(field, property="checked")["data"]["applicable"] is False
    work.fails("INVALID_ARGS", "get", field, property="checked")


def test_an_element_that_is_gone_is_never_another(work: Work) -> None:
    ref = work.ref("Save")
    work.tree.elements.remove(SAVE)
    error = work.fails("STALE_REF", "click", ref, headed=True)
    assert error["disposition"] == {"delivery": "not_delivered", "retry": "safe"}
    assert error["recovery"]["requires_fresh_snapshot"] is True
    assert work.tree.acts == []


def test_an_application_started_anew_is_another_one(work: Work) -> None:
    ref = work.ref("Save")
    work.host.birth = lambda pid: "later"
    work.fails("STALE_REF", "click", ref, headed=True)


def test_an_act_is_done_once_and_its_receipt_is_the_answer(work: Work) -> None:
    answer = work.desktop.set_value(work.ref("Name"), "Eve")
    assert answer["data"]["disposition"] == {"delivery": "delivered_verified", "retry": "unsafe"}
    assert (answer["data"]["action"], work.tree.acts) == ("set-value", [("set_value", "Eve")])


def test_without_headed_neither_pointer_nor_focus_is_touched(work: Work) -> None:
    assert work.desktop.click(work.ref("Save"))["ok"]
    assert (work.tree.acts.pop(), work.tree.headed) == (("click", ""), False)
    for command in ("scroll", "hover"):
        error = work.fails("POLICY_DENIED", command, work.ref("Save"))
        assert error["recovery"]["strategy"] == "request_explicit_policy_then_retry_original"
    work.fails("POLICY_DENIED", "mouse-click", xy="500,400")
    work.fails("POLICY_DENIED", "press", "ctrl+s")
    assert (work.tree.acts, [done for done in work.host.done if done[0] != "release"]) == ([], [])


def test_what_cannot_be_taken_back_needs_force_or_a_person(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.fails("POLICY_DENIED", "click", work.ref("Delete"), headed=True)
    assert work.tree.acts == []
    assert work.desktop.click(work.ref("Delete"), headed=True, force=True)["ok"]
    asked = Work(tmp_path, person=FakePerson(True, False))
    assert asked.desktop.click(asked.ref("Delete"), headed=True)["ok"]
    asked.fails("POLICY_DENIED", "click", asked.ref("Delete"), headed=True)
    assert asked.tree.acts == [("click", "")]


def test_the_own_terminal_is_never_touched(tmp_path: Path) -> None:
    own = replace(DESK, own=True)
    work = Work(tmp_path, windows=(own, OTHER))
    work.fails("POLICY_DENIED", "mouse-click", xy="500,400", headed=True)
    work.fails("APP_NOT_FOUND", "snapshot", app="desk")


def test_it_waits_until_it_can_be_done_and_then_does_it_once(work: Work) -> None:
    ref = work.ref("Name")
    work.tree.elements[2] = replace(NAME, states=("disabled",))
    error = work.fails("TIMEOUT", "set-value", ref, "x", timeout_ms=300)
    assert error["details"]["kind"] == "actionability_timeout"
    assert work.clock.time == pytest.approx(0.3)
    work.fails("ACTION_FAILED", "set-value", ref, "x", timeout_ms=0)
    assert work.tree.acts == []

    def later(seconds: float) -> None:
        work.clock.time += seconds
        if work.clock.time > 1:
            work.tree.elements[2] = NAME

    work.clock.sleep = later
    assert work.desktop.set_value(ref, "x")["ok"]
    assert work.tree.acts == [("set_value", "x")]


def test_a_wait_that_fails_after_an_act_tells_what_was_delivered(work: Work) -> None:
    answer = work.desktop.set_value(work.ref("Name"), "x", wait_for="button:Save")
    assert answer["data"]["matched_selector"] == "button:Save"
    assert answer["data"]["after_action"]["action"] == "set-value"
    error = work.fails(
        "TIMEOUT", "set-value", work.ref("Name"), "x", wait_for="button:Nope", wait_timeout=300
    )
    assert error["disposition"] == {"delivery": "delivered_verified", "retry": "unsafe"}
    assert error["details"]["after_action"]["action"] == "set-value"
    assert work.desktop.set_value(work.ref("Name"), "x", wait_for_gone="button:Nope")["ok"]


def test_waiting_without_acting_is_safe_to_do_again(work: Work) -> None:
    error = work.fails("TIMEOUT", "wait", text="Nope", timeout=300)
    assert error["disposition"] == {"delivery": "not_delivered", "retry": "safe"}
    assert work.desktop.wait(text="save")["data"]["role"] == "button"
    assert work.desktop.wait(text="Nope", count=0)["data"]["count"] == 0
    assert work.desktop.wait(window="order")["data"]["window"]["id"] == "w1"
    assert work.desktop.wait(250)["data"] == {"waited_ms": 250}
    work.fails("INVALID_ARGS", "wait")
    work.fails("INVALID_ARGS", "wait", 5, text="x")
    ref = work.ref("Agree")
    work.fails("TIMEOUT", "wait", element=ref, predicate="checked", timeout=100)
    work.tree.elements.remove(AGREE)
    assert work.desktop.wait(element=ref, predicate="gone")["ok"]


def test_a_batch_uses_earlier_answers_and_sees_what_its_own_acts_opened(work: Work) -> None:
    sheet = replace(DESK, id="w9", title="Really?", dialog=True)
    act = work.tree.act

    def opens(permit: Permit, seen: Snapshot) -> Receipt:
        work.host.stack.insert(0, sheet)
        return act(permit, seen)

    work.tree.act = opens
    answer = work.desktop.batch(
        [
            {"command": "find", "args": {"name": "Name", "first": True}},
            {"command": "set-value", "args": {"ref_id": "${0.data.match.ref_id}", "value": "Z"}},
            {"command": "wait", "args": {"event": "surface-appeared", "timeout": 200}},
        ]
    )
    assert [one["ok"] for one in answer["data"]["results"]] == [True, True, True]
    assert answer["data"]["results"][2]["data"]["event"]["title"] == "Really?"
    assert (answer["data"]["all_ok"], work.tree.acts) == (True, [("set_value", "Z")])


def test_a_batch_is_checked_before_anything_is_done(work: Work) -> None:
    orders = [{"command": "set-value", "args": {"ref": work.ref("Name"), "value": "Z"}}, {"command": "wiat"}]
    error = work.fails("INVALID_ARGS", "batch", orders)
    assert "entry 1" in error["message"]
    assert work.tree.acts == []
    answer = work.desktop.batch(
        [{"command": "get", "args": {"ref": "${0.data.x}"}}, {"command": "status"}], stop_on_error=True
    )
    assert (answer["data"]["all_ok"], answer["data"]["not_started_entries"]) == (False, 1)


def test_held_keys_are_let_go_of_at_the_end_of_a_batch(work: Work) -> None:
    work.fails("PLATFORM_NOT_SUPPORTED", "key-down", "shift", headed=True)
    answer = work.desktop.batch([{"command": "key-down", "args": {"combo": "shift", "headed": True}}])
    assert answer["data"]["all_ok"]
    assert work.host.done[-2:] == [("key", "shift", True), ("release",)]


def test_windows_apps_displays_surfaces(tmp_path: Path) -> None:
    menu = replace(DESK, id="w5", title="", popup=True)
    work = Work(tmp_path, windows=(menu, DESK, OTHER))
    windows = work.desktop.list_windows()["data"]
    assert [one["id"] for one in windows] == ["w1", "w2"]
    assert windows[0]["process_instance"] == "b10"
    assert [one["name"] for one in work.desktop.list_apps()["data"]["apps"]] == ["desk", "bank"]
    assert work.desktop.list_displays()["data"]["displays"][0]["primary"] is True
    assert work.desktop.list_surfaces(app="desk")["data"]["surfaces"] == [
        {"id": "w5", "type": "menu", "title": "", "pid": 10}
    ]
    assert work.desktop.snapshot(surface="menu")["data"]["tree"]["role"] == "menu"
    error = work.fails("APP_NOT_FOUND", "snapshot", app="nobody")
    assert "bank, desk" in error["suggestion"]
    work.fails("WINDOW_NOT_FOUND", "snapshot", window_id="w77")


def test_a_screenshot_is_a_file(work: Work, tmp_path: Path) -> None:
    data = work.desktop.screenshot(str(tmp_path / "a.png"), app="desk")["data"]
    assert (Path(data["path"]).read_bytes(), data["bounds"]["width"]) == (b"\x89PNG", 800)
    work.fails("INVALID_ARGS", "screenshot", screen=3)


def test_windows_are_put_away_brought_back_moved_and_closed(work: Work) -> None:
    done = work.desktop.minimize(app="desk")["data"]
    assert (done["minimized"], done["disposition"]["delivery"]) == (True, "delivered_verified")
    assert [one["id"] for one in work.desktop.list_windows()["data"] if one.get("hidden")] == ["w1"]
    assert work.desktop.restore(app="desk")["data"]["restored"]
    moved = work.desktop.move_window(x=5, y=6, app="desk")["data"]
    assert (moved["moved"], moved["bounds"]) == (True, {"x": 5, "y": 6, "width": 800, "height": 600})
    assert work.desktop.resize_window(width=300, height=200, app="desk")["data"]["resized"]
    work.fails("INVALID_ARGS", "resize-window", width=300)
    assert work.desktop.close_app("desk")["data"]["closed"]
    assert work.desktop.close_app("bank", force=True)["data"]["method"] == "forced"
    work.fails("APP_NOT_FOUND", "close-app", "nobody")


def test_what_this_system_cannot_do_is_said(work: Work) -> None:
    for command in ("list-notifications", "dismiss-all-notifications"):
        error = work.fails("PLATFORM_NOT_SUPPORTED", command)
        assert error["disposition"]["retry"] == "safe"


def test_every_command_is_a_method_and_nothing_else_is(work: Work) -> None:
    assert all(callable(getattr(work.desktop, name.replace("-", "_"))) for name in SPECS)
    with pytest.raises(AttributeError, match="no command"):
        work.desktop.snapshoot  # noqa: B018
