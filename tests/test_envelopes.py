"""Our answers beside those of the tool whose contract they follow (recorded/envelopes.json, release 0.8.2).

Every field it answers stands in ours with the same meaning, but for DIFFERENT, which the README explains.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import DESK, OTHER
from test_desktop import AGREE, NAME, SAVE, Work

RECORDED = json.loads((Path(__file__).parent / "recorded" / "envelopes.json").read_text(encoding="utf-8"))
# field -> why it is not here; the README has a sentence for each
DIFFERENT = {
    "auto_wait": "how it waited is no part of what happened",
    "details": "of a success: only auto_wait stood there",
    "hovered": "a hover answers as every act does",
    "clicked": "a mouse-click answers as every act does",
    "count": "a mouse-click answers as every act does",
    "x": "stands in screen",
    "y": "stands in screen",
    "session_id": "there are no sessions: a snapshot's id is enough",
    "tracing": "there is no trace: a run has its journal",
    "ref_count": "of status and of a wait: the snapshot says it",
    "tree": "of a wait: take a snapshot",
    "app": "of a wait: take a snapshot",
    "complete": "of a wait: take a snapshot",
    "window": "of a wait: take a snapshot",
    "snapshot_id": "of a wait: take a snapshot",
}
BY_COMMAND = {
    "click": {"details", "tree", "app", "complete", "window", "snapshot_id", "ref_count"},
    "hover": {"hovered", "focused", "x", "y"},
    "mouse-click": {"clicked", "count", "x", "y"},
    "status": {"ref_count", "session_id", "tracing"},
    **{
        command: {"details"}
        for command in "type set-value clear focus toggle check uncheck select scroll expand".split()  # noqa: SIM905
    },
}


def asked(work: Work, line: str) -> dict[str, Any]:
    """The same command line, put to us: refs by the names that our fixture gives them."""
    words, names = (
        line.split(),
        {"e2": "Save", "e5": "Name", "e6": "Agree", "e1": "Save", "e11": "Agree", "e12": "Save"},
    )
    acts = "click type toggle check uncheck select focus expand scroll".split()  # noqa: SIM905
    headed = "--headed" in words or words[0] in acts
    words = [word for word in words if word != "--headed"]
    if words[0] == "batch":
        orders = [{"command": "status"}, {"command": "wait", "args": {"milliseconds": 1}}]
        return work.desktop.batch(orders)
    given: dict[str, Any] = {}
    places: list[str] = []
    left = [
        word.replace("fixture", "desk")
        .replace("w-1", "w1")
        .replace("Twin", "Save")
        .replace("Fixture", "desk")
        for word in words[1:]
    ]
    while left:
        word = left.pop(0)
        if word.startswith("@"):
            places.append(work.ref(names[word.partition(":")[2]]))
        elif word == "-i":
            given["interactive"] = True
        elif word.startswith("--"):
            value = left.pop(0) if left and not left[0].startswith("--") else True
            if isinstance(value, str) and value.startswith("@"):
                value = work.ref(names[value.partition(":")[2]])
            given[word[2:].replace("-", "_")] = value
        else:
            places.append(word)
    if words[0] == "get" or words[0] == "is":
        given.setdefault("property", "text")
    if headed and words[0] not in {"wait", "get", "is"}:
        given["headed"] = True
    return work.desktop.do(words[0], *places, **given)


OURS = [
    name
    for name, one in RECORDED.items()
    if one["answer"]["ok"] and name not in {"snapshot-cut", "find-text", "uncheck2", "list-apps", "find-nth"}
]


@pytest.mark.parametrize("name", OURS)
def test_every_field_of_a_success_is_here(name: str, tmp_path: Path) -> None:
    work, recorded = Work(tmp_path, windows=(DESK, OTHER)), RECORDED[name]
    work.tree.elements[3] = replace(AGREE, states=("checked",) if name == "check" else ())
    work.tree.elements += [SAVE] if name == "wait-text-count" else []  # twins
    ours = asked(work, recorded["line"])
    assert (ours["ok"], ours["command"]) == (True, recorded["answer"]["command"]), ours
    theirs, mine = (
        one["data"] if isinstance(one["data"], dict) else one["data"][0] for one in (recorded["answer"], ours)
    )
    missing = set(theirs) - set(mine)
    assert missing <= BY_COMMAND.get(ours["command"], set())
    assert missing <= set(DIFFERENT) | {"focused"}


def test_a_disposition_says_what_theirs_says(tmp_path: Path) -> None:
    work = Work(tmp_path)
    retries = {
        one["answer"][part]["disposition"]["delivery"]: one["answer"][part]["disposition"]["retry"]
        for one in RECORDED.values()
        for part in ("data", "error")
        if isinstance(one["answer"].get(part), dict) and "disposition" in one["answer"][part]
    }
    for delivery, retry in retries.items():
        work.tree.delivery = delivery
        answer = work.desktop.set_value(work.ref("Name"), "x")
        assert answer["data"]["disposition"] == {"delivery": delivery, "retry": retry}


@pytest.mark.parametrize(
    ("name", "command", "words"),
    [
        ("click-stale", "click", {"headed": True}),
        ("is-stale", "is", {}),
        ("click-disabled", "click", {"timeout_ms": 300, "headed": True}),
        ("click-disabled-0", "click", {"timeout_ms": 0, "headed": True}),
        ("hover", "hover", {}),
    ],
)
def test_an_error_has_their_fields_and_code(
    name: str, command: str, words: dict[str, Any], tmp_path: Path
) -> None:
    work, theirs = Work(tmp_path), RECORDED[name]["answer"]["error"]
    ref = work.ref("Save")
    if "stale" in name:
        work.tree.elements.remove(SAVE)
    if "disabled" in name:
        work.tree.elements[1] = replace(SAVE, states=("disabled",))
    ours = work.fails(theirs["code"], command, ref, **words)
    assert set(theirs) - {"details"} <= set(ours)
    assert ours["disposition"] == theirs["disposition"]
    assert ours.get("recovery", {}) == theirs.get("recovery", {})


def test_where_nothing_was_sent_we_say_so_and_they_do_not(tmp_path: Path) -> None:
    work = Work(tmp_path)
    for name, command, words in (
        ("wait-text-fail", "wait", {"text": "Nope", "timeout": 300}),
        ("wait-event-timeout", "wait", {"event": "window-opened", "timeout": 400}),
        ("find-badrole", "find", {"role": "spaceship"}),
    ):
        theirs = RECORDED[name]["answer"]["error"]
        ours = work.fails(theirs["code"], command, **words)
        assert theirs["disposition"]["delivery"] == "unknown"
        assert ours["disposition"] == {"delivery": "not_delivered", "retry": "safe"}


def test_the_readme_explains_each_difference() -> None:
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert NAME.name
    for word in ("auto_wait", "session_id", "tracing", "hovered", "clicked"):
        assert f"`{word}`" in readme
