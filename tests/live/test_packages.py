"""Set-up from nothing, with the real list of packages and the real index."""

from __future__ import annotations

import subprocess
from pathlib import Path

import agent_solo
from agent_solo import packages, private_python, setup

SOLO = Path(agent_solo.__file__)


def test_every_package_of_the_list_arrives(tmp_path: Path) -> None:
    said: list[str] = []
    assert setup(tmp_path, SOLO, system=[], say=said.append, ask=lambda _: True) == 0
    shown = subprocess.run(
        [private_python(tmp_path), "-m", "pip", "freeze"], capture_output=True, text=True, check=True
    ).stdout.lower()
    for name in agent_solo.package_names(packages(SOLO)):
        assert f"{name}==" in shown

    said.clear()
    assert setup(tmp_path, SOLO, system=[], say=said.append, ask=lambda _: True) == 0
    assert "Nothing to do" in said[0]

    modules = ("mss", "PIL", "requests", "openai", "rich", "websocket")
    subprocess.run([private_python(tmp_path), "-c", f"import {', '.join(modules)}"], check=True)
