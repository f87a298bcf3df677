"""A tool server of your own, in twenty lines, and the program calling it as the model would have it called.

You will see: the tools that the server offers, what the guards say of a call, and the receipt of that call.
Touched: this file is started a second time, as the server, and ended again.

    python3 examples/05_own_tool_server.py
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import agent_solo as solo


def serve() -> None:
    """MCP over stdin and stdout: one tool that tells the day of the week."""
    tool = {"name": "weekday", "description": "The day of the week of a date, YYYY-MM-DD."}
    tool["inputSchema"] = {"type": "object", "properties": {"date": {"type": "string"}}, "required": ["date"]}
    tool["annotations"] = {"readOnlyHint": True}
    about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "days", "version": "1"}}
    for line in sys.stdin:
        asked = json.loads(line)
        if asked["method"] == "initialize":
            result = {"protocolVersion": asked["params"]["protocolVersion"], **about}
        elif asked["method"] == "tools/list":
            result = {"tools": [tool]}
        elif asked["method"] == "tools/call":
            date = time.strptime(asked["params"]["arguments"]["date"], "%Y-%m-%d")
            result = {"content": [{"type": "text", "text": time.strftime("%A", date)}]}
        if "id" in asked:
            print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)


def main() -> None:
    file = Path(tempfile.mkdtemp()) / "mcp.json"
    server = {"command": sys.executable, "args": [str(Path(__file__).resolve()), "serve"]}
    file.write_text(json.dumps({"mcpServers": {"days": server}}), "utf-8")
    servers = solo.read_servers(file, os.environ)
    watcher, clock = SimpleNamespace(note=print), solo.SystemClock()
    channel = solo.Tools(servers, clock, watcher, os.environ, keep=lambda *_: file)
    channel.start()
    for tool in channel.tools.values():
        print(f"{tool.name}: {tool.description}")
    call = json.dumps({"name": "days__weekday", "arguments": {"date": "1969-07-20"}})
    action, nothing = solo.Action(verb="tool", parameter=call), solo.Snapshot(id="s1", time=0)
    permit = solo.Policy(solo.Rules(), channel.tools).judge(action, nothing, ())
    print(f"the guards say: {type(permit).__name__}")
    print(json.dumps(channel.act(permit, nothing).envelope(), indent=1))
    channel.close()


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main()
