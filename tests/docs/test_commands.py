"""Every command and every Python block of README and docs runs, and prints what stands there."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.declared import ELSEWHERE, ENDS_WITH, NEEDS, PRELUDES, SKETCHES
from tests.docs.pages import REPOSITORY, Command, Page, all_pages
from tests.docs.workplace import Workplace

PAGES = {page.name: page for page in all_pages()}
_IS_COMMAND = re.compile(
    r"^( {4})?(\$ )?(profile-sd3 \w|python3? -m profiler|RBLN_PROFILER=1 |pip install)"
)


PLACEHOLDERS = {"…", "COMMAND", "--help", "--version", "--install-completion"}
"""What may stand for a command in the text."""


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    return Workplace(tmp_path_factory.mktemp("docs"))


def reason(command: Command) -> str | None:
    """Why a command does not run here; None: it does."""
    line = f"$ {command.text}"
    return next((why for start, why in ELSEWHERE.items() if line.startswith(start)), None)


def ends_with(command: Command) -> set[int]:
    line = f"$ {command.text}\n"
    return next((codes for start, (codes, _) in ENDS_WITH.items() if line.startswith(start)), {0})


def program(page: Page) -> str:
    """All Python of a page, each line where it stands there; "" where it has none."""
    if not page.python or any(page.name.startswith(start) for start in SKETCHES):
        return ""
    lines = [""] * page.text.count("\n")
    for block in page.python:
        text = block.text.splitlines()
        lines[block.line - 1 : block.line - 1 + len(text)] = text
    return "\n".join(lines)


RUNNING = [name for name, page in PAGES.items() if page.commands or program(page)]


@pytest.mark.parametrize("name", RUNNING)
def test_page_does_what_it_says(name, workplace, request):
    """Its commands, in their order, in one folder; then its Python, as one program."""
    page = PAGES[name]
    needed = {each for text, packages in NEEDS.items() if text in page.text for each in packages}
    missing = sorted(package for package in needed if find_spec(package) is None)
    if missing:
        pytest.skip(f"{name} needs extras: {', '.join(missing)} not found")
    work = workplace.folder_for(page)
    shown = []
    for command in page.commands:
        if reason(command) is None:
            ended = workplace.run(command.text, work)
            assert ended.code in ends_with(command), f"{command.place}: {ended.code}\n{ended.out}"
            shown.append((command, ended.out))
    if request.config.getoption("--refresh-goldens"):
        refresh(page, shown)
        shown = []
    for command, out in shown:
        if command.expected:
            assert agrees(command, out), f"{command.place} prints\n{out}"
    source = program(page)
    if source:
        script = work / Path(name).with_suffix(".py").name
        prelude = PRELUDES.get(name, "")
        text = f"exec({prelude!r})\nexec(compile({source!r}, {name!r}, 'exec'))\n"
        script.write_text(text, encoding="utf-8")
        ended = workplace.run(f"python {script.name}", work)
        assert ended.code == 0, f"{name}: {ended.out}"


def agrees(command: Command, out: str) -> bool:
    """Whether a command has printed what stands below it."""
    if not command.numbers_differ:
        return matches(command.expected, out)
    plain = tuple(line if line.strip() == "…" else _without(line) for line in command.expected)
    return matches(plain, "".join(f"{_without(line)}\n" for line in out.splitlines()))


def _without(line: str) -> str:
    """A line without its numbers, their units of time, sparklines and widths of columns."""
    line = re.sub(r"[▁-█]+", "▁", re.sub(r"<?\d[\d.,]*", "0", line))
    line = re.sub(r"\b(?:ns|µs|ms|s)\b", "s", line)
    return re.sub(r" +", " ", re.sub(r"(?<= )-?(0|-)(?= |$)", "0", line))


def matches(expected: tuple[str, ...], out: str) -> bool:
    """Whether the output is what the page shows: a line `…` stands for any lines, `…` within a
    line for any characters, and spaces at ends of lines do not count."""
    parts = []
    for line in "\n".join(expected).rstrip("\n").split("\n"):
        if line.strip() == "…":
            parts.append(r"(?:[^\n]*\n)*?")
        else:
            parts.append(".*?".join(map(re.escape, line.rstrip().split("…"))) + r" *\n")
    text = "".join(f"{line.rstrip()}\n" for line in out.rstrip("\n").splitlines())
    return re.fullmatch("".join(parts), text) is not None


def refresh(page: Page, shown: list[tuple[Command, str]]) -> None:
    """Write what the commands print today into the page, where it shows something else."""
    path = REPOSITORY / page.name
    lines = path.read_text(encoding="utf-8").split("\n")
    for command, out in reversed(shown):
        if command.expected and not agrees(command, out):
            begin = command.line + command.text.count("\n")
            end = begin + len(command.expected)
            while not lines[end - 1]:  # blank lines before the next command stay
                end -= 1
            lines[begin:end] = [line.rstrip() for line in out.rstrip("\n").split("\n")]
    path.write_text("\n".join(lines), encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_commands_stand_in_console_blocks(name):
    """A command of ours is in a block that is run: ```console, with `$ ` before it."""
    page = PAGES[name]
    others = "\n".join(block.text for block in page.blocks if block.language != "console")
    found = [line for line in others.splitlines() if _IS_COMMAND.match(line)]
    indented = [line for line in page.prose.splitlines() if line.startswith("    ")]
    found += [line for line in indented if _IS_COMMAND.match(line)]
    assert found == []
    missing = [block.line for block in page.blocks if block.language == "console"]
    assert len(missing) <= len(page.commands), f"{name}: a console block without `$ `"


@pytest.mark.parametrize("name", PAGES)
def test_options_that_are_mentioned_exist(name):
    """Where the text says `profile-sd3 COMMAND --option`, there is such a command and option."""
    mentions = re.findall(r"`profile-sd3 ([^`]+)`", " ".join(PAGES[name].prose.split()))
    for words in (mention.partition(" -- ")[0].split() for mention in mentions):
        command, where = _all_commands(), words.copy()
        while where and hasattr(command, "commands") and where[0] in command.commands:
            command = command.commands[where.pop(0)]
        if where and where[0].endswith(":"):  # what the program says
            continue
        assert where == [] or where[0] in PLACEHOLDERS or not hasattr(command, "commands"), words
        options = {o for each in command.params for o in (*each.opts, *each.secondary_opts)}
        used = {word.partition("=")[0] for word in where if word.startswith("--")}
        assert used <= options | {"--help"}, f"{name}: {words}"


@cache
def _all_commands():
    """The command line with every subcommand, made once: it holds nothing that a test changes."""
    from typer.main import get_command

    from profiler.cli.main import command_line

    return get_command(command_line())


def test_what_is_declared_is_there():
    """No declaration is left of a command or page that is gone."""
    lines = [f"$ {command.text}\n" for page in PAGES.values() for command in page.commands]
    for start in (*ELSEWHERE, *ENDS_WITH):
        assert any(line.startswith(start) for line in lines), start
    assert set(PRELUDES) <= set(PAGES)
    for text in NEEDS:
        assert any(text in page.text for page in PAGES.values()), text


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("vae  3  1.2  0.3 %", "vae     12   <0.1   40 %", True),
        ("time ms  5", "time µs  7,100.5", True),
        ("vae  3", "unet  3", False),
        ("▁▃█ 3 ms", "▁▁▁▇ 4 s", True),
    ],
)
def test_numbers_may_differ_where_it_is_said(shown, printed, same):
    """Words count, numbers, bars and spaces do not."""
    command = Command("x.md", 1, "", (shown,), numbers_differ=True)
    assert agrees(command, f"{printed}\n") is same


@pytest.mark.parametrize(
    ("expected", "out", "same"),
    [
        (("a  b", "…", "z"), "a  b \nc\nd\nz\n", True),
        (("took … ms",), "took 17.2 ms\n", True),
        (("took … ms",), "took 17.2 ms\nmore\n", False),
        (("a", "…"), "a\n", True),
        (("a.c",), "abc\n", False),
    ],
)
def test_output_is_compared_line_by_line(expected, out, same):
    """`…` alone stands for lines, within a line for characters; all else is literal."""
    assert matches(expected, out) is same
