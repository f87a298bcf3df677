"""The eyes' share of a step on a 1920 x 1080 screen: python tests/bench/bench_step.py

Prints medians in milliseconds. The screen is the bench's own: a private one, with an editor full of text.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from subprocess import PIPE

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "live")]

from desk import Desk  # noqa: E402

import agent_solo as solo  # noqa: E402

ROUNDS = 40
LOOKS = 500

COUNTER = """
import sys, tkinter
root = tkinter.Tk()
root.geometry("600x400+1200+500")
label = tkinter.Label(root, font=("", 60))
label.pack()
root.wait_visibility()
for line in sys.stdin:
    label["text"] = line.strip() * 9
    root.update()
    root.winfo_pointerxy()  # an answer from the server: it has drawn
    print(flush=True)
"""


def timed(call: Callable[[int], object], rounds: int = ROUNDS) -> float:
    """Median milliseconds of a call, the first one left out."""
    times = []
    for number in range(rounds + 1):
        started = time.perf_counter()
        call(number)
        times.append((time.perf_counter() - started) * 1000)
    return median(times[1:])


def snapshot(sight: solo.Sight) -> solo.Snapshot:
    return solo.Snapshot(id="s1", time=0, frame=sight.frame, windows=sight.windows)


def measure(desk: Desk) -> dict[str, float]:
    desk.start(["mousepad", "/etc/services"])
    desk.wait(lambda: any("services" in title for title in desk.titles()))
    counter = desk.start([sys.executable, "-c", COUNTER], stdin=PIPE, stdout=PIPE)
    clock = solo.SystemClock()
    host = solo.this_host(desk.home, clock, os.environ)
    host.open()
    pixels = solo.Pixels(host, clock)

    def change(number: int) -> None:
        counter.stdin.write(f"{number % 10}\n".encode())
        counter.stdin.flush()
        counter.stdout.readline()

    def look(number: int) -> solo.Sight:
        return pixels.look(acted=False)

    def changed(number: int) -> float:
        change(number)
        started = time.perf_counter()
        look(number)
        return (time.perf_counter() - started) * 1000

    change(0)
    before = snapshot(look(0))
    change(1)
    after = snapshot(look(1))
    assert solo.compare(before, after).moved
    permit = solo.Permit(
        action=solo.Action(verb="zoom"),
        aim=solo.ScreenPoint(x=100, y=100),
        end=solo.ScreenPoint(x=700, y=500),
    )
    figures = {
        "look, screen changed": median(changed(number) for number in range(ROUNDS)),
        "look, screen the same": timed(look),
        "windows (part of a look)": timed(lambda number: host.windows()),
        "compare": timed(lambda number: solo.compare(before, after)),
        "zoom": timed(lambda number: pixels.act(permit, after)),
    }
    figures["own share: changed look and compare"] = figures["look, screen changed"] + figures["compare"]
    tracemalloc.start()
    changed(0)
    traced, resident = tracemalloc.get_traced_memory()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(LOOKS):
        changed(number)
    figures[f"memory grown over {LOOKS} looks, KB"] = (tracemalloc.get_traced_memory()[0] - traced) / 1024
    figures[f"peak resident memory grown over {LOOKS} looks, KB"] = (
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident
    )
    figures["size of the picture, KB"] = len(pixels.look(acted=False).frame.picture.data) / 1024
    pixels.close()
    host.close()
    return figures


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Desk(Path(folder), width=1920, height=1080) as desk:
        os.environ.update(desk.env)
        for name, figure in measure(desk).items():
            print(f"{name:45} {figure:8.1f}")


if __name__ == "__main__":
    main()
