"""The shape that agent_solo.py promises its reader, held by machine.

It reads the file. It guards against drift, not malice: getattr tricks and what a package does inside are out of reach.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "agent_solo.py"
SOURCE = FILE.read_text(encoding="utf-8")
LINES = SOURCE.splitlines()
TREE = ast.parse(SOURCE)
FRONT = ast.get_docstring(TREE) or ""
RULE = "# " + "=" * 78
BANNER = re.compile(r"^# (\d+)\. ([A-Z][a-z]+): .+$")
GUARDS, PIXELS, TREE_CHAPTER, PAGES, TOOLS, HOST, SESSION, COMMANDS = 8, 11, 12, 13, 14, 10, 17, 23
SIBLINGS = frozenset({PIXELS, TREE_CHAPTER, PAGES, TOOLS})

TABLE = FRONT.split("WHAT THIS FILE CAN DO")[1].split("tests/test_architecture.py")[0]
PROMISED = {
    name: {int(chapter) for chapter in chapters.split()}
    for names, chapters in re.findall(r"^    ([\w.]+(?:, [\w.]+)*) {2,}(\d+(?: \d+)*)\s", TABLE, flags=re.M)
    for name in names.split(", ")
}
HARMLESS = set(
    """__future__ argparse ast atexit base64 binascii collections concurrent contextlib email dataclasses datetime difflib enum fnmatch
    functools hashlib html importlib io itertools json math pathlib queue random re secrets shlex shutil string struct
    sys tempfile textwrap threading time types typing unicodedata urllib zlib""".split()  # noqa: SIM905
)
FINER: dict[str, set[int]] = {  # powers finer than an import, and the chapters that may use them
    "sys.platform": {HOST, TREE_CHAPTER, 20, 21, COMMANDS},
    "time.sleep": {HOST},
    "time.monotonic": {HOST},
    "print": {COMMANDS},
    "input": set(),
    "os.environ": {COMMANDS},
    **{name: set() for name in ("eval", "exec", "globals", "__import__", "os.system", "pickle", "marshal")},
}
# What writes or deletes files, whatever it is called on.
WRITES = set("write_text write_bytes mkdir touch unlink rmtree mkdtemp rmdir symlink_to".split())  # noqa: SIM905
HEAVY = {"pyautogui", "mss", "PIL", "openai", "requests", "rich", "jeepney", "websocket", "Xlib", "jsonschema"} | {
    "subprocess", "ssl", "http.client", "asyncio", "socket", "ctypes", "tkinter",
}  # fmt: skip
LIMITS = {"file": 10600, "chapter": 1100, "class": 300, "function": 50}


def chapters() -> dict[int, tuple[str, int]]:
    """Chapter number -> (title, first line)."""
    found: dict[int, tuple[str, int]] = {}
    for number, (before, line) in enumerate(zip(LINES, LINES[1:], strict=False), start=2):
        if before == RULE and (match := BANNER.match(line)):
            found[int(match[1])] = (match[2], number)
    return found


CHAPTERS = chapters()


def chapter(line: int) -> int:
    """The chapter a line belongs to; 0 is the front matter."""
    return max((n for n, (_, first) in CHAPTERS.items() if first <= line), default=0)


def definitions() -> dict[str, int]:
    """Every top-level name -> the line that defines it."""
    home: dict[str, int] = {}
    for node in TREE.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            home[node.name] = node.lineno
        elif isinstance(node, ast.Assign):
            home |= {t.id: node.lineno for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            home[node.target.id] = node.lineno
    return home


DEFINED = definitions()


def own(top: ast.stmt) -> set[str]:
    """Names that a function or class binds for itself: they are not the top-level ones."""
    bound = {
        node.id for node in ast.walk(top) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    bound |= {n.name for n in ast.walk(top) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n is not top}
    return bound | {node.arg for node in ast.walk(top) if isinstance(node, ast.arg)}


def uses() -> Iterator[tuple[ast.stmt, ast.Name]]:
    """Every use of a top-level name, with the top-level statement it stands in."""
    for top in TREE.body:
        local = own(top) if isinstance(top, ast.FunctionDef | ast.ClassDef) else set()
        for node in ast.walk(top):
            if (
                isinstance(node, ast.Name)
                and isinstance(node.ctx, ast.Load)
                and node.id in set(DEFINED) - local
            ):
                yield top, node


def powers() -> Iterator[tuple[str, int]]:
    """Every import and every use of an attribute or call that is a power, under its real name: (power, line)."""
    for node in ast.walk(TREE):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{node.value.id}.{node.attr}", node.lineno
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, node.lineno
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES:
            yield node.func.attr, node.lineno


def allowed(power: str) -> set[int] | None:
    """The chapters that may use a power; None if it is no power."""
    for name in (power, power.split(".")[0]):
        if name in FINER:
            return FINER[name]
        if name in PROMISED:
            return PROMISED[name]
    return None


def test_the_contents_page_lists_the_chapters_in_order() -> None:
    promised = re.findall(r"(\d+)\. ([A-Z][a-z]+)", FRONT.split("CONTENTS")[1])
    assert [(int(n), title) for n, title in promised] == [(n, t) for n, (t, _) in CHAPTERS.items()]
    assert list(CHAPTERS) == list(range(1, len(CHAPTERS) + 1))


def test_nothing_is_used_above_its_definition() -> None:
    early = {
        f"line {name.lineno}: {name.id} is defined at line {DEFINED[name.id]}"
        for top, name in uses()
        if DEFINED[name.id] > top.lineno and not isinstance(top, ast.If)
    }
    assert not early, "\n".join(sorted(early))


def test_the_channels_do_not_know_one_another() -> None:
    crossed = [
        f"line {name.lineno}: {name.id}"
        for _, name in uses()
        if {chapter(DEFINED[name.id]), chapter(name.lineno)} <= SIBLINGS
        and chapter(DEFINED[name.id]) != chapter(name.lineno)
    ]
    assert not crossed, "\n".join(crossed)


def test_each_power_stays_in_its_chapter() -> None:
    strayed = {
        f"line {line}: {power} in chapter {chapter(line)}, promised for {sorted(where)}"
        for power, line in powers()
        if (where := allowed(power)) is not None and chapter(line) not in where and chapter(line) > 0
    }
    assert not strayed, "\n".join(sorted(strayed))


def test_no_file_is_written_by_a_way_that_the_front_page_does_not_name() -> None:
    used = {node.attr for node in ast.walk(TREE) if isinstance(node, ast.Attribute)} & WRITES
    assert used
    assert used <= set(PROMISED)


def test_nothing_is_imported_that_the_front_page_does_not_name() -> None:
    imported = {
        alias.name if isinstance(node, ast.Import) else node.module or ""
        for node in ast.walk(TREE)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    roots = {name for name in imported if allowed(name) is None and name.split(".")[0] not in HARMLESS}
    assert not roots


def test_each_promised_power_is_used_where_it_is_promised() -> None:
    used = {(name, chapter(line)) for power, line in powers() for name in (power, power.split(".")[0])}
    idle = [(name, n) for name, where in PROMISED.items() for n in where if (name, n) not in used]
    assert not idle


def test_only_the_guards_make_permits() -> None:
    calls = [n.lineno for n in ast.walk(TREE) if isinstance(n, ast.Call) and ast.unparse(n.func) == "Permit"]
    assert calls
    assert {chapter(line) for line in calls} == {GUARDS}


def test_errors_are_caught_where_the_errors_chapter_says() -> None:
    caught = [
        (ast.unparse(node.type) if node.type else "bare", chapter(node.lineno))
        for node in ast.walk(TREE)
        if isinstance(node, ast.ExceptHandler)
    ]
    assert {n for what, n in caught if "StopRun" in what} <= {SESSION, COMMANDS, 24}
    assert {n for what, n in caught if re.search(r"\b(Base)?Exception\b|bare", what)} <= {HOST}


def test_everything_fits_on_its_screen() -> None:
    sizes = [("file", FILE.name, len(LINES))]
    starts = [first for _, first in CHAPTERS.values()] + [len(LINES)]
    sizes += [
        ("chapter", str(n), b - a) for n, (a, b) in enumerate(zip(starts, starts[1:], strict=False), start=1)
    ]
    for node in ast.walk(TREE):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            kind = "class" if isinstance(node, ast.ClassDef) else "function"
            sizes.append((kind, node.name, (node.end_lineno or 0) - node.lineno + 1))
    assert not [size for size in sizes if size[2] > LIMITS[size[0]]]


def test_nouns_are_frozen() -> None:
    nouns = [node for node in TREE.body if isinstance(node, ast.ClassDef) and chapter(node.lineno) == 2]
    loose = [
        n.name
        for n in nouns
        if not any("frozen=True, slots=True" in ast.unparse(d) for d in n.decorator_list)
    ]
    assert nouns
    assert not loose


def test_error_codes_and_exit_statuses_stand_in_the_readme() -> None:
    import agent_solo

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    stops = [
        c for c in vars(agent_solo).values() if isinstance(c, type) and issubclass(c, agent_solo.StopRun)
    ]
    codes = [
        *agent_solo.CODES,
        *agent_solo.RETRY,
        *(stop.code for stop in stops if stop is not agent_solo.StopRun),
    ]
    assert len(codes) == len(set(codes))
    assert not [code for code in codes if f"`{code}`" not in readme]


def test_an_old_python_gets_the_sentence_and_not_a_syntax_error() -> None:
    ast.parse(SOURCE, feature_version=(3, 8))


def test_importing_the_file_needs_and_loads_nothing() -> None:
    probe = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import agent_solo; print(*sys.modules)"
    # -S: no site-packages, so a hidden dependency fails here and not on a user's machine
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", probe], capture_output=True, text=True, check=True
    )
    assert not HEAVY & set(ran.stdout.split())


@pytest.mark.parametrize("title", [title for title, _ in CHAPTERS.values()])
def test_each_chapter_has_its_test_file(title: str) -> None:
    assert (ROOT / "tests" / f"test_{title.lower()}.py").exists()
