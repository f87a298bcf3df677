#!/usr/bin/env bash
# Real MCP servers for tests/live/test_tools_real.py, into the folder named. Run twice it does nothing the second time.
set -euo pipefail
folder=${1:?the folder to install into}
mkdir -p "$folder"
if [ ! -x "$folder/sqlite/bin/mcp-server-sqlite" ]; then
  python3 -m venv "$folder/sqlite" 2>/dev/null || /usr/bin/python3 -m venv --clear "$folder/sqlite"
  # the 2025 server does not start with mcp 2
  "$folder/sqlite/bin/pip" install -q --disable-pip-version-check mcp-server-sqlite==2025.4.25 "mcp<2"
fi
if ! command -v npm >/dev/null; then
  apt-get install -y -qq --no-install-recommends nodejs npm
fi
for name in everything filesystem; do
  if [ ! -e "$folder/node_modules/@modelcontextprotocol/server-$name/dist/index.js" ]; then
    npm install --prefix "$folder" --no-fund --no-audit --silent "@modelcontextprotocol/server-$name@2026.8.31"
  fi
done
