"""A snapshot of an accessibility tree, beside libatspi walking the same one: python tests/bench/bench_tree.py

Prints medians in milliseconds and their ratio, taken in turns. Needs gtk3-widget-factory (gtk-3-examples) and
gir1.2-atspi-2.0; also one command as a cold process, and the length of a window's list beside its whole tree.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "live")]

from desk import Desk  # noqa: E402

import agent_solo as solo  # noqa: E402

ROUNDS = 15
PEER = """
import sys, time
import gi
gi.require_version("Atspi", "2.0")
from gi.repository import Atspi
def walk(node, depth=0):
    seen = [(node.get_name(), node.get_role_name(), node.get_state_set().get_states())]
    if node.get_component_iface():
        box = node.get_component_iface().get_extents(Atspi.CoordType.SCREEN)
    if node.get_action_iface():
        node.get_action_iface().get_n_actions()
    for at in range(node.get_child_count()):
        child = node.get_child_at_index(at)
        if child:
            seen += walk(child, depth + 1)
    return seen
desktop = Atspi.get_desktop(0)
for line in sys.stdin:
    Atspi.Accessible.clear_cache(desktop)
    started = time.perf_counter()
    apps = [desktop.get_child_at_index(at) for at in range(desktop.get_child_count())]
    found = [walk(app) for app in apps if app and "widget-factory" in app.get_name()]
    print((time.perf_counter() - started) * 1000, len(found[0]), flush=True)
"""


def main() -> None:
    """Start the application, measure in turns, print."""
    with Desk(Path(tempfile.mkdtemp())) as desk:
        os.environ.update(desk.env)
        os.environ["AGENT_SOLO_HOME"] = str(desk.home / "solo")
        desk.start(["gtk3-widget-factory"])
        desktop = solo.desktop()
        desk.wait(lambda: desktop.snapshot(app="widget", interactive=True)["ok"])
        time.sleep(1)
        peer = subprocess.Popen(
            ["/usr/bin/python3", "-c", PEER],
            env=os.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        ours, theirs, cold, nodes = [], [], [], 0
        assert peer.stdin and peer.stdout
        for _ in range(ROUNDS):
            started = time.perf_counter()
            answer = desktop.snapshot(app="widget", interactive=True, include_bounds=True)
            ours.append((time.perf_counter() - started) * 1000)
            peer.stdin.write("\n")
            peer.stdin.flush()
            spent, count = peer.stdout.readline().split()
            theirs.append(float(spent))
            nodes = int(count)
            started = time.perf_counter()
            command = [sys.executable, str(ROOT / "agent_solo.py"), "snapshot", "--app", "widget", "-i"]
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            cold.append((time.perf_counter() - started) * 1000)
        peer.kill()
        whole = desktop.snapshot(app="widget", include_bounds=True)
        short = len(json.dumps(answer)), len(json.dumps(whole))
        print(f"snapshot -i, warm      {median(ours):7.1f} ms   {answer['data']['ref_count']} refs")
        print(
            f"libatspi's walk        {median(theirs):7.1f} ms   {nodes} nodes   {median(theirs) / median(ours):.1f} times"
        )
        print(f"snapshot -i, a process {median(cold):7.1f} ms")
        print(f"characters: -i {short[0]}, the whole tree {short[1]}")


if __name__ == "__main__":
    main()
