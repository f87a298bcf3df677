"""Examples: each runs as written, from any folder, and shows what its docstring says."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("[0-9]*.py"))
SHOWS = {
    "01_look.py": "would be sent as 1204x756",
    "02_parse.py": '"action": "click", "x": 672, "y": 378',
    "03_dry_run.py": "The order desk's file is as it was.",
    "04_own_guard.py": "click e1: refused: nothing is sent",
    "05_own_tool_server.py": '"message": "Sunday"',
}


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_it_runs_as_written_and_shows_what_it_says(path: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "DISPLAY": ""}
    environ.pop("PYTHONPATH", None)
    ran = subprocess.run(
        [sys.executable, path],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert SHOWS[path.name] in ran.stdout
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.name for path in EXAMPLES])
def test_it_is_short_and_says_what_is_seen_and_touched(path: Path) -> None:
    text = path.read_text("utf-8")
    page = ast.get_docstring(ast.parse(text)) or ""
    assert len(text.splitlines()) <= 60
    assert "You will see: " in page
    assert "Touched: " in page
    assert f"python3 examples/{path.name}" in page
