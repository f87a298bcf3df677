"""Contracts: the fakes of the tests and the real parts offer what each socket asks for."""

from __future__ import annotations

import inspect

import fakes
import pytest

import agent_solo

PLUGS = {
    "Host": [agent_solo.X11Host, fakes.FakeHost],
    "Channel": [
        *(agent_solo.Pixels, agent_solo.Tree, agent_solo.Pages, agent_solo.Tools, agent_solo.Aside),
        *(agent_solo.Rehearsal, fakes.FakeChannel),
    ],
    "Clock": [agent_solo.SystemClock, fakes.FakeClock],
    "Model": [agent_solo.ChatModel, fakes.Script],
    "Person": [agent_solo.TerminalPerson, agent_solo.ScriptedPerson, fakes.FakePerson],
    "Watcher": [agent_solo.Terminal, fakes.FakeWatcher],
}


@pytest.mark.parametrize(("socket", "plug"), [(s, p) for s, plugs in PLUGS.items() for p in plugs])
def test_a_plug_fits_its_socket(socket: str, plug: type) -> None:
    asked = {
        n: f for n, f in vars(getattr(agent_solo, socket)).items() if inspect.isfunction(f) and n[0] != "_"
    }
    assert asked
    for name, wanted in asked.items():
        offered = inspect.signature(getattr(plug, name)).parameters
        assert list(offered) == list(inspect.signature(wanted).parameters), f"{plug.__name__}.{name}"
