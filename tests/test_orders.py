"""Chapter 18: one command and its words, wherever it came from; refs that outlive the command."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from agent_solo import (
    ARGUMENTS,
    SPECS,
    VERBS,
    Box,
    Element,
    Store,
    TellModel,
    describe_orders,
    read_words,
    role_of,
    spec_of,
)

SAVE = Element(
    ref="e1", role="button", name="Save", box=Box(x=1, y=2, width=3, height=4), native=(":1.2", "/a", "b")
)
NAMES = ['with "quotes"', "two\nlines", "שלום", "🙂‍↔️", "\ud83d", "", '{"ref": "e9"}']


def told(code: str, command: str, *places: object, **words: object) -> str:
    with pytest.raises(TellModel) as caught:
        read_words(spec_of(command), places, words)
    assert (caught.value.code, caught.value.delivery) == (code, "not_delivered")
    return f"{caught.value.sentence} {caught.value.hint}"


def test_every_word_of_every_command_is_explained_and_every_verb_is_one() -> None:
    for spec in SPECS.values():
        assert {*spec.places, *spec.options} <= set(ARGUMENTS)
        assert spec.meaning
        assert spec.verb in {"", *VERBS}
        read_words(
            spec,
            (),
            {name: default for name, default in spec.options.items() if default}
            | dict.fromkeys(spec.places[: spec.need], "1"),
        )


def test_shell_words_and_json_values_are_read_alike() -> None:
    shell = read_words(spec_of("mouse-click"), (), {"xy": "12,-8", "clicks": "2", "headed": True})
    batch = read_words(spec_of("mouse_click"), (), {"xy": [12, -8], "clicks": 2, "headed": "true"})
    assert shell == batch == {"xy": (12, -8), "clicks": 2, "headed": True, "button": "left"}


def test_defaults_and_the_ref_of_other_tools() -> None:
    assert read_words(spec_of("scroll"), (), {"ref_id": "@sabc:e1"}) == {
        "ref": "@sabc:e1", "direction": "down", "amount": 3, "timeout_ms": 5000, "wait_timeout": 30000,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("command", "places", "words", "said"),
    [
        ("get", (), {}, "get needs ref"),
        ("get", ("a", "b"), {}, 'not "b" as well'),
        ("get", ("a",), {"proprety": "text"}, "Did you mean property?"),
        ("get", ("a",), {"property": "colour"}, "takes one of text"),
        ("scroll", ("a",), {"amount": "many"}, "--amount takes a whole number"),
        ("hover", (), {"xy": "12"}, "a point such as 120,80"),
        ("click", ("a",), {"headed": "perhaps"}, "true or false"),
        ("type", ("a", ["x"]), {}, "--text takes a text"),
        ("batch", ("{",), {}, "--orders takes JSON"),
    ],
)
def test_wrong_words_are_one_sentence(
    command: str, places: tuple[object, ...], words: dict[str, object], said: str
) -> None:
    assert said in told("INVALID_ARGS", command, *places, **words)


def test_a_misspelt_command_names_the_near_ones() -> None:
    with pytest.raises(TellModel, match="no command") as caught:
        spec_of("snapshoot")
    assert "snapshot" in caught.value.hint


@pytest.mark.parametrize(
    ("asked", "role"),
    [("checkbox", "check box"), ("Text Field", "text field"), ("textbox", "text field"), ("statictext", "text"),
     ("listitem", "list item"), ("button", "button"), ("radio", "radio button"), ("spinbutton", "spin button")],
)  # fmt: skip
def test_roles_go_by_their_other_names(asked: str, role: str) -> None:
    assert role_of(asked) == role


def test_an_unknown_role_is_told_with_the_near_ones() -> None:
    with pytest.raises(TellModel, match="no role"):
        role_of("spaceship")


def test_describe_orders_names_every_command() -> None:
    lines = describe_orders().split("\n")
    assert [line.split()[0] for line in lines[::2]] == list(SPECS)


def test_a_ref_lives_on_in_another_store_of_the_same_folder(tmp_path: Path) -> None:
    name = Store(tmp_path / "s").keep({"app": "desk", "pid": 10}, [SAVE])
    assert Store(tmp_path / "s").element(f"@{name}:e1") == (SAVE, {"app": "desk", "pid": 10})


def test_any_name_comes_back_as_it_was(tmp_path: Path) -> None:
    store = Store(tmp_path)
    elements = [Element(ref=f"e{at}", role="button", name=name) for at, name in enumerate(NAMES, start=1)]
    kept = store.keep({}, elements)
    assert [store.element(f"@{kept}:{one.ref}")[0].name for one in elements] == NAMES


def test_ten_thousand_refs(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = store.keep({}, [Element(ref=f"e{n}", role="cell", name=f"row {n}") for n in range(1, 10001)])
    assert store.element(f"@{kept}:e10000")[0].name == "row 10000"
    assert store.element(f"@{kept}:e1")[0].name == "row 1"


@pytest.mark.parametrize(
    ("ref", "code", "said"),
    [("@e12", "INVALID_ARGS", "which snapshot"), ("e12", "INVALID_ARGS", "which snapshot"), ("Save", "INVALID_ARGS", "no ref"),
     ("@../../x:e1", "INVALID_ARGS", "no ref"), ("@sabcdef:e1", "SNAPSHOT_NOT_FOUND", "no snapshot")],
)  # fmt: skip
def test_a_ref_that_names_nothing(tmp_path: Path, ref: str, code: str, said: str) -> None:
    with pytest.raises(TellModel, match=said) as caught:
        Store(tmp_path).element(ref)
    assert caught.value.code == code


def test_a_number_that_was_not_given(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = store.keep({}, [SAVE])
    with pytest.raises(TellModel) as caught:
        store.element(f"@{kept}:e2")
    assert caught.value.code == "ELEMENT_NOT_FOUND"


def test_the_store_is_private_and_bounded(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots"
    store = Store(folder)
    last = [store.keep({}, [SAVE]) for _ in range(Store.MOST + 1)][-1]
    assert len(store.all()) == Store.KEPT
    assert store.all()[0] == last
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / f"{last}.jsonl").stat().st_mode & 0o077 == 0


def test_a_store_killed_while_it_wrote_loses_nothing_else(tmp_path: Path) -> None:
    store = Store(tmp_path)
    kept = store.keep({}, [SAVE])
    (tmp_path / "sdeadbeef.part").write_text('{"app": "half')
    assert store.all() == [kept]
    assert store.element(f"@{kept}:e1")[0] == SAVE


def test_two_at_once(tmp_path: Path) -> None:
    names: list[str] = []
    work = [
        threading.Thread(target=lambda: names.append(Store(tmp_path).keep({}, [SAVE]))) for _ in range(20)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    assert len(set(names)) == 20
    assert all(json.loads((tmp_path / f"{name}.jsonl").read_text().split("\n")[1]) for name in names)
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]  # noqa: PTH208
