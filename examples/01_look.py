"""What the program sees: the windows, the list it gives the model, and the picture it would send.

You will see: the windows on your screen, the size of the picture, and where it was saved.
Touched: nothing is clicked or typed. One picture is written to a temporary folder and stays there. Where
there is no screen, a virtual one is started for as long as this runs, with the demo's order desk on it.

    python3 examples/01_look.py

It needs the packages: after setup, ~/.agent_solo/venv/bin/python has them.
"""

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import agent_solo as solo


def desk(folder: Path, stack: ExitStack) -> None:
    """The order desk on a virtual screen, to which this program moves."""
    os.environ.update(stack.enter_context(solo.virtual_screen(folder, os.environ)))
    (folder / "orders.json").write_text(solo.as_file(solo.ORDERS), "utf-8")
    code = "import sys, pathlib, agent_solo; agent_solo.OrderDesk(pathlib.Path(sys.argv[1])).open(print)"
    words = [sys.executable, "-u", "-c", code, str(folder)]
    program = solo.start_program(words, cwd=Path(solo.__file__).parent, pipes=True)
    stack.callback(solo.end_program, program)
    stack.callback(program.terminate)
    program.stdout.readline()


def main() -> None:
    folder, clock = Path(tempfile.mkdtemp(prefix="agent_solo-")), solo.SystemClock()
    with ExitStack() as stack:
        if not os.environ.get("DISPLAY") and sys.platform == "linux":
            desk(folder, stack)
        host = solo.this_host(folder, clock, os.environ)
        host.open()
        stack.callback(host.close)
        sight = solo.Pixels(host, clock).look(acted=False)
        for window in sight.windows:
            print(f"{window.title!r} of {window.app}, {window.box.width}x{window.box.height}")
        frame = sight.frame
        path = folder / f"look.{frame.picture.mime.rpartition('/')[2]}"
        path.write_bytes(frame.picture.data)
        area, shot = frame.shot.area, frame.shot
        print(f"The screen, {area.width}x{area.height}, would be sent as {shot.width}x{shot.height}: {path}")
        host.release()


if __name__ == "__main__":
    main()
