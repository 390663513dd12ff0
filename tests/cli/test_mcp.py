"""`profile-sd3 mcp`, asked by the protocol's own client over stdio."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import sys
from pathlib import Path

import pytest

from profiler.cli.commands.query import Questions
from profiler.errors import InputError
from tests.command_line import run_command

RUN = Path(__file__).resolve().parents[2] / "sample_traces" / "tiny_two_devices"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two bundles, and a link to one outside."""
    parent = tmp_path_factory.mktemp("mcp")
    for name in ("runs/one", "runs/two", "outside/secret"):
        shutil.copytree(RUN, parent / name)
    (parent / "runs" / "linked").symlink_to(parent / "outside" / "secret")
    return parent / "runs"


def test_the_protocols_client_gets_answers(folder, tmp_path):
    """Every tool over stdio: runs of the folder alone, SQL with rows and limits, refusals as
    errors in a sentence."""
    mcp = pytest.importorskip("mcp")
    pytest.importorskip("duckdb")

    from mcp.client.stdio import stdio_client

    async def asked():
        parameters = mcp.StdioServerParameters(
            command=sys.executable, args=["-m", "profiler", "mcp", str(folder)]
        )
        # Its own default is what stderr was when it was imported, which may have been a test's.
        errors = stack.enter_context((tmp_path / "stderr").open("w"))
        async with mcp.Client(stdio_client(parameters, errlog=errors)) as client:
            tools = (await client.list_tools()).tools

            async def call(name, **given):
                answer = await client.call_tool(name, given)
                return answer.is_error, "".join(part.text for part in answer.content)

            return tools, [
                await call("list_runs"),
                await call("summary", run="one"),
                await call("findings", run="one"),
                await call("tables"),
                await call("sql", run="one", query="select count(*) as n from calls"),
                await call("sql", run="one", query="select * from commands", rows=3),
                await call("diff", base="one", new="two"),
                await call("sql", run="one", query="copy calls to 'x.csv'"),
                await call("summary", run="../outside/secret"),
            ]

    with contextlib.ExitStack() as stack:
        tools, answers = asyncio.run(asked())
    names = {"list_runs", "summary", "findings", "tables", "sql", "diff"}
    assert {tool.name for tool in tools} == names
    assert all(tool.annotations.read_only_hint for tool in tools)
    assert [failed for failed, _ in answers] == [False] * 7 + [True] * 2
    texts = [text for _, text in answers]
    assert sorted(json.loads(texts[0])["runs"]) == ["one", "two"]
    assert "denoise" in texts[1]
    assert "commands_with_calls" in texts[3]
    assert json.loads(texts[4])["rows"] == [{"n": 9}]
    assert len(json.loads(texts[5])["rows"]) == 3
    assert json.loads(texts[5])["more"] is True
    assert "only queries are run" in texts[7]
    assert "there is no run" in texts[8]


def test_what_lies_outside_is_no_run(folder):
    """Neither by a path, nor by a link, nor the folder itself."""
    ask = Questions(folder)
    for name in ("../outside/secret", str(folder.parent / "outside" / "secret"), "linked", ".", ""):
        with pytest.raises(InputError, match="there is no run"):
            ask.findings(name)


def test_a_folder_that_is_none(tmp_path, capsys):
    """One sentence, exit code 2."""
    pytest.importorskip("mcp")
    assert run_command("mcp", tmp_path / "none") == 2
    assert "is no folder" in capsys.readouterr().err
