"""Main: how the program ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).parents[1] / "agent_solo.py"


def test_a_reader_that_has_gone_is_no_traceback() -> None:
    command = f"{sys.executable} {FILE} guide | true"
    ran = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert ran.stderr == ""


def test_the_version() -> None:
    import agent_solo

    ran = subprocess.run([sys.executable, FILE, "--version"], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, agent_solo.__version__)
