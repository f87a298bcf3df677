"""How long a reply takes to parse: the median and the slowest of the recorded ones, in microseconds.

python tests/bench/bench_parse.py
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from agent_solo import Space, parse_reply  # noqa: E402

GOAL = 1000.0


def main() -> int:
    """Print the figures; 1 if a reply takes longer than the goal."""
    cases = json.loads((ROOT / "tests/cases/model_replies.json").read_text("utf-8"))["cases"]
    medians: dict[str, float] = {}
    for case in cases:
        rounds = []
        for _ in range(50):
            start = time.perf_counter()
            parse_reply(case["reply"], space=Space(), width=1344, height=756)
            rounds.append((time.perf_counter() - start) * 1e6)
        medians[case["id"]] = statistics.median(rounds)
    slowest = max(medians, key=medians.__getitem__)
    print(f"{len(medians)} replies; median of medians {statistics.median(medians.values()):.0f} us each")
    print(f"slowest {slowest}: {medians[slowest]:.0f} us; goal under {GOAL:.0f} us")
    return int(medians[slowest] > GOAL)


if __name__ == "__main__":
    sys.exit(main())
