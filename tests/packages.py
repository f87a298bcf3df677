"""Print the packages of agent_solo.py's own header, one a line, as pip reads them."""

from __future__ import annotations

import re
from pathlib import Path

source = (Path(__file__).parents[1] / "agent_solo.py").read_text(encoding="utf-8")
header = source.split("# /// script")[1].split("# ///")[0]
print("\n".join(re.findall(r'^#   "(.+)",$', header, flags=re.M)))
