"""See a run decided and guarded, and nothing touched: this is what --dry-run is.

You will see: each step, what would have been done, and that the order desk's file is what it was.
Touched: a virtual screen and a temporary folder, both gone afterwards. The model is the demo's script.

    python3 examples/03_dry_run.py

It needs the packages: after setup, ~/.agent_solo/venv/bin/python has them.
"""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import agent_solo

FOLDER = Path(__file__).resolve().parents[1]


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder, file = Path(name), FOLDER / "agent_solo.py"
        os.environ["AGENT_SOLO_HOME"] = str(folder / "home")
        stage = agent_solo.demo(
            folder, file, virtual=True, environ=os.environ, clock=agent_solo.SystemClock(), say=print
        )
        with stage as (arguments, inside):
            before = (folder / "orders.json").read_bytes()
            os.environ.update(inside)
            args = agent_solo.job_parser().parse_args([*arguments, "--dry-run", "--max-steps", "3"])
            outcome, _, _ = agent_solo.job(args)
            untouched = (folder / "orders.json").read_bytes() == before
        for step in outcome.steps:
            print(f"{step.number}. {step.receipt.command}: {step.receipt.message}")
        print("The order desk's file is as it was." if untouched else "The file CHANGED.")
        return 0 if untouched else 1


if __name__ == "__main__":
    sys.exit(main())
