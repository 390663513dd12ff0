"""How commands look in a terminal, in a pipe, and where colours or characters are not wanted."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from profiler.analysis.analyze import analyze
from profiler.cli.terminal import plain_characters, position_in, printable
from profiler.report import print_report
from profiler.report.terminal_layout import Grid
from profiler.tools.sources import load
from tests.cli.pty_command import PtyCommand
from tests.graph.models import graph, save
from tests.report.rendered import report_of

SAMPLES = Path(__file__).parents[2] / "sample_traces"
RUNS = ("sd35_mi300x", "tiny_two_devices")
REPORT = ("-m", "profiler", "analyze", SAMPLES / "tiny_two_devices", "--no-html")
_COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")


class Recording(Console):
    """A console that keeps the tables that it prints."""

    def __init__(self, width):
        super().__init__(file=io.StringIO(), width=width, highlight=False)
        self.tables = []

    def print(self, *objects, **options):
        self.tables += [one for one in objects if isinstance(one, Grid)]
        super().print(*objects, **options)


def printed(analysis, width):
    console = Recording(width)
    print_report(console, report_of(analysis))
    return console


@pytest.fixture(scope="module", params=RUNS)
def analysis(request):
    return analyze(load(SAMPLES / request.param))


@pytest.mark.parametrize("width", [60, 80, 100, 160, 200])
def test_reports_fit_and_name_what_is_left_out(analysis, width):
    """At every width no line is longer than the terminal, no row takes two lines, and each column
    that a very wide terminal has is there or named as not shown."""
    console, wide = printed(analysis, width), printed(analysis, 1000)
    assert max(map(len, console.file.getvalue().splitlines())) <= width
    assert len(console.tables) == len(wide.tables) > 8
    for narrow, whole in zip(console.tables, wide.tables, strict=True):
        assert not whole.gone
        assert len(narrow.columns) + len(narrow.gone) == len(whole.columns)
        alone = Console(file=io.StringIO(), width=width)
        gone = narrow.gone
        alone.print(replace(narrow, gone=()))
        assert len(alone.file.getvalue().splitlines()) == narrow.height
        lines = " ".join(console.file.getvalue().split())
        assert not gone or f"not shown: {' '.join(next(filter(None, gone)).split())}" in lines


def test_wide_terminals_show_all(analysis):
    """In 400 columns nothing is left out of the tables."""
    assert "not shown" not in printed(analysis, 400).file.getvalue()


def command(*arguments, **environment):
    """A command in a pipe."""
    settings = {**os.environ, **environment}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        settings.pop(name, None) if name not in environment else None
    run = [sys.executable, *map(str, arguments)]
    return subprocess.run(run, env=settings, capture_output=True, check=False)


def test_a_pipe_gets_plain_text():
    """No colours, no progress, nothing on stderr; every line ends with its text."""
    done = command(*REPORT)
    assert b"\x1b" not in done.stdout
    assert done.stderr == b""
    assert "█".encode() in done.stdout


def test_colours_can_be_asked_for_in_a_pipe():
    """FORCE_COLOR colours what goes into a pipe, for `less -R`, but draws no progress there."""
    done = command(*REPORT, FORCE_COLOR="1")
    assert _COLOUR.search(done.stdout.decode())
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("environment", "coloured", "escapes"),
    [
        ({}, True, True),
        ({"NO_COLOR": "1"}, False, True),  # bold and dim are no colours
        ({"TERM": "dumb"}, False, False),
    ],
)
def test_a_terminal_is_coloured_where_it_may_be(environment, coloured, escapes):
    """NO_COLOR leaves bold, a dumb terminal gets nothing but text; the width is the terminal's."""
    shown = PtyCommand(REPORT, columns=100, environment=environment)
    assert shown.finish() == 0
    assert bool(_COLOUR.search(shown.text)) == coloured
    assert ("\x1b" in shown.text) == escapes
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.text)
    assert 80 < max(map(len, plain.splitlines())) <= 100


@pytest.mark.parametrize(
    ("encoding", "bars"),
    [("utf-8", "▁▂▃▄▅▆▇█ µ"), ("ascii", "_.:-=+*# u"), ("latin-1", "_.:-=+*# µ")],
)
def test_encodings_that_lack_characters_get_others(encoding, bars):
    """Bars stay bars of the same number, µ stays where it can, what nobody thought of is a ?."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    plain_characters(stream)
    stream.write("▁▂▃▄▅▆▇█ µ 图")
    stream.flush()
    assert stream.buffer.getvalue().decode(encoding).removesuffix(" 图").removesuffix(" ?") == bars


def test_a_minus_is_never_lost():
    """What became faster has its sign, and a table its rule, where the encoding has ASCII alone."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    plain_characters(stream)
    stream.write("\N{MINUS SIGN}1.1 % ───")
    stream.flush()
    assert stream.buffer.getvalue() == b"-1.1 % ---"


def test_an_answer_keeps_to_the_encoding():
    """`query` writes no UTF-8 where ASCII was asked for."""
    pytest.importorskip("duckdb", reason="needs the query extra")
    sql = "SELECT '\N{MINUS SIGN}1' AS a"
    words = ("-m", "profiler", "query", "sample_traces/tiny_two_devices", sql)
    assert command(*words, PYTHONIOENCODING="ascii").stdout == b"a\n--\n-1\n"


def test_a_line_of_names_is_bounded():
    """What a terminal would act on is replaced, and a name of a megabyte is cut with a sign."""
    assert printable("a\x1b[31m\nb") == "a�[31m�b"
    assert len(printable("x" * 1_000_000)) == 4_001
    assert printable("x" * 5_000).endswith("x…")


def test_a_report_in_ascii_is_as_wide():
    """The report of a terminal without UTF-8 has the lines of the other, bars included."""
    plain = command(*REPORT, PYTHONIOENCODING="ascii").stdout.decode("ascii")
    report = command(*REPORT, PYTHONIOENCODING="utf-8").stdout.decode()
    assert "\x1b" not in plain
    assert "#" in plain
    assert list(map(len, plain.splitlines())) == list(map(len, report.splitlines()))


def test_graph_commands_write_what_the_encoding_has(tmp_path):
    """Arrows of `graph check` do not stop it where the encoding has none."""
    model = graph("float[2] x", "float[2] y", "[n] t = Relu(x) [n] y = Relu(t)")
    path = save(model, tmp_path)
    done = command("-m", "profiler", "graph", "check", path, PYTHONIOENCODING="latin-1")
    assert done.returncode == 1
    assert done.stderr == b""
    assert "    > " in done.stdout.decode("latin-1")


PROGRESS = """
from profiler.cli.terminal import progress
with progress("reading a\\x1b[31m", after_s=0) as say:
    input()
    say("analyzing")
    input()
print("done")
"""


def test_progress_shows_what_goes_on_and_goes():
    """The text stands there while the block lasts, changes when told, and what is printed
    afterwards stands alone."""
    shown = PtyCommand(["-c", PROGRESS])
    shown.read_until("reading a�[31m")
    shown.process.stdin.write(b"\n")
    shown.process.stdin.flush()
    shown.read_until("analyzing")
    assert shown.finish(b"\n") == 0
    assert shown.text.rstrip().endswith("done")
    assert "\x1b[2K" in shown.text  # the line was taken away


READING = """
import sys
from pathlib import Path
from profiler.cli.terminal import progress
path = Path(sys.argv[1])
with progress("reading a", after_s=0, of=path) as say, path.open("rb", buffering=0) as file:
    file.read(3_000_000)
    input()
    say("analyzing")
    input()
"""


@pytest.mark.skipif(not Path("/proc/self/fdinfo").is_dir(), reason="Linux tells it")
def test_progress_shows_how_much_of_a_file_is_read(tmp_path):
    """The bytes so far, the size and the rate, while the file is read; not afterwards."""
    path = tmp_path / "a"
    path.write_bytes(bytes(4_000_000))
    assert position_in(path) == (0, 0)
    with path.open("rb", buffering=0) as file:
        file.read(3_000_000)
        assert position_in(path) == (3_000_000, 4_000_000)
    shown = PtyCommand(["-c", READING, str(path)])
    shown.read_until("reading a · 3 of 4 MB, ")
    shown.read_until(" MB/s")
    shown.process.stdin.write(b"\n")
    shown.process.stdin.flush()
    shown.read_until("analyzing")
    assert shown.finish(b"\n") == 0


@pytest.mark.parametrize("environment", [{"TERM": "dumb"}, {"TERM": "dumb", "FORCE_COLOR": "1"}])
def test_progress_is_quiet_where_nothing_can_be_drawn(environment):
    """A dumb terminal gets what the command prints, and that alone."""
    shown = PtyCommand(["-c", PROGRESS], environment=environment)
    assert shown.finish(b"\n\n") == 0
    assert shown.text == "done\r\n"


def test_progress_is_quiet_in_a_pipe():
    """Nothing goes to stderr, whatever colours are asked for."""
    run = [sys.executable, "-c", PROGRESS]
    settings = {**os.environ, "FORCE_COLOR": "1"}
    done = subprocess.run(run, input=b"\n\n", capture_output=True, env=settings, check=True)
    assert (done.stdout, done.stderr) == (b"done\n", b"")
