"""The document model of a report: sections, parts, tables, figures and colours.

Terminal, page and notebook render these values and decide nothing about them. Headings, the
order of parts, the columns of a table and its first rows are the same everywhere. A renderer
may leave out columns by their importance, and figures. All text is plain; each renderer escapes
it.

`tests/report/test_html_palette.py` checks the contrast of the colours (3:1 or more) and that
colour-blind readers can distinguish any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Literal

import polars as pl
from msgspec import Struct, field

from profiler.analysis.result import Finding, ReportInput
from profiler.run.columns import Column
from profiler.text import Noun

# --- What a report consists of, in every renderer: a report of sections, a section of parts.
#
# Terminal, page and notebook render these values and decide nothing about them: headings, the order
# of parts, the columns of a table and the rows that are shown at first are the same everywhere. A
# renderer may leave out what its place has no room for: columns by their importance, and figures.
# Every text is plain; each renderer escapes it for its format.


Pick = Mapping[str, Any]
"""What a click on a chart's mark selects: dimension of the page's choice → value, or values."""

TOP = 15  # rows of a table of operators


class Fact(Struct, frozen=True):
    """A key figure: `value` under `label`, explained by `note`. `alert` if data is lost or
    contradicts itself; `remark` if the note is worth reading though nothing is wrong."""

    label: str
    value: str
    note: str = ""
    alert: bool = False
    remark: bool = False


class Group(Struct, frozen=True):
    """Pairs of name and value under a title."""

    title: str
    rows: tuple[tuple[str, str], ...]


class Opens(StrEnum):
    """What a row of a table leads to: the call in the timeline, or the layers that it stands for
    and their commands, of devices or of the host."""

    CALL = "call"
    LAYERS = "layers"
    HOST_LAYERS = "host_layers"


class TableView(Struct, frozen=True, eq=False):
    """A table as it is shown.

    `columns` are the columns of `frame` that have content, and always the first. `frame` holds all
    rows, ranked; a reader sees the first `shown` and may ask a page for more, which holds `held` of
    them (0: all) and, if it has a `search`, looks for `name`. `totals` are rows below the others,
    of the same columns. `sort` is the column by which rows are ranked, largest first, "" for
    another order. `variants` are other rows for the same columns by their label, `label` is that of
    `frame`. `opens` is what a row of it leads to in a page. `strong` is a column of flags, shown or
    not: its rows stand out. If columns do not fit and `repeated` is set, none is left out: the rest
    goes into further tables, each after the first `repeated` columns. Rows of a `nested` one are a
    tree, depth first, by the columns `depth` and `name` of `frame`; `paper` are other rows, for
    output in which nothing unfolds. `below` is a column of texts that a terminal prints below each
    row, as much as a line holds (all of it, and of the row's name, if it is prose: kind `word`),
    and a document behind it.
    """

    key: str
    name: str
    columns: tuple[Column, ...]
    frame: pl.DataFrame
    shown: int = 10
    held: int = 0
    search: bool = False
    sort: str = ""
    label: str = ""
    variants: tuple[tuple[str, pl.DataFrame], ...] = ()
    totals: pl.DataFrame | None = None
    opens: Opens | None = None
    strong: str = ""
    repeated: int = 0
    nested: bool = False
    paper: pl.DataFrame | None = None
    below: Column | None = None

    @property
    def printed(self) -> pl.DataFrame:
        """The rows that a terminal and a document show."""
        return self.frame if self.paper is None else self.paper

    @property
    def rows(self) -> pl.DataFrame:
        """The rows that a page holds."""
        return self.frame.head(self.held) if self.held else self.frame


class Bars(Struct, frozen=True):
    """A line of bars for a terminal: a bar for each of `values`, after a `label`."""

    label: str
    values: Sequence[int]


class Figure(Struct, frozen=True, eq=False):
    """A chart under its `key`: its `kind`, which a function of `report.charts` draws, and the
    `data` that this function takes. `bars` are what a terminal shows of it."""

    key: str
    kind: str
    data: tuple[Any, ...] = ()
    bars: tuple[Bars, ...] = ()


class Part(Struct, frozen=True, eq=False):
    """A part of a section: below `title` a sentence, findings, a figure, a table, names with
    values, small print.

    `anchor` is what a link to it names; `beside` puts it next to the part before if there is room,
    `folded` shows only its title until a reader opens it. A part that has nothing but texts is left
    out unless `always` is set; a `quiet` one recedes. `noun` is what its findings call commands.
    """

    title: str = ""
    lead: str = ""
    figure: Figure | None = None
    table: TableView | None = None
    notes: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    groups: tuple[Group, ...] = ()
    anchor: str = ""
    beside: bool = False
    folded: bool = False
    always: bool = False
    quiet: bool = False
    noun: Noun = Noun.COMMANDS

    @property
    def shows_something(self) -> bool:
        return bool(
            self.always or self.figure or self.table is not None or self.findings or self.groups
        )


class SectionGroup(StrEnum):
    """Topics of sections, in the order of a report and of a page's contents."""

    SUMMARY = "summary"
    FINDINGS = "findings"
    MODEL = "model"
    DEVICE = "device"
    RUN = "run"


class Section(Struct, frozen=True, eq=False):
    """A section of a report: `parts` below the heading `title`, if it has one. The contents list it
    by its title, below its `group`."""

    key: str
    title: str = ""
    parts: tuple[Part, ...] = ()
    group: SectionGroup = SectionGroup.FINDINGS


class SectionKind(Struct, frozen=True):
    """What a question declares: the section's key, its place among all (they are in ascending
    order, those of a `group` together), its heading, how its parts are made, and which `tables`
    of the analysis they show. Other tables that name the section are at its end."""

    key: str
    place: int
    title: str
    parts: Callable[[ReportInput], Iterable[Part]]
    tables: tuple[str, ...] = ()
    group: SectionGroup = SectionGroup.FINDINGS


class Summary(Struct, frozen=True):
    """The head of a report: one sentence, what ran (`subject`), that a selection is shown, what is
    missing, and whether any time is (`lost`), how the run compares with its baseline, key figures,
    the accounting."""

    headline: str
    subject: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    accounting: str = ""
    selection: str = ""
    missing: tuple[str, ...] = ()
    lost: bool = False
    against: str = ""


class Advice(Struct, frozen=True):
    """A finding in brief: its `title`, the max `gain` of following it, in words, and the `change`
    that achieves it. If it is an `outcome`, the title is what to do, `gain` the run's time before
    and after, `change` a remark, and `finding` the one that calls for it, if any."""

    finding: Finding | None
    title: str
    gain: str
    change: str
    outcome: bool = False


class Opening(Struct, frozen=True, eq=False):
    """What a reader with thirty seconds needs: a terminal prints it, a page has it on its first
    screen.

    `subject` is what ran on what, `selection` that tables show a part of the run, `against` how it
    compares with its baseline. `facts` are the end-to-end time, what each device did with it, and
    steps, whose durations are `bars`. `checks` say whether the figures can be trusted, `alert` if
    something is wrong. `submodules` and `shapes` are tables of the largest ones, `advice_total` is
    the gain of all advice together, if there are several, `advice_notes` are remarks below it.
    `sections` are those to read next, by key.
    """

    headline: str
    subject: tuple[str, ...] = ()
    selection: str = ""
    against: str = ""
    facts: tuple[Fact, ...] = ()
    checks: tuple[Fact, ...] = ()
    bars: tuple[Bars, ...] = ()
    submodules: TableView | None = None
    advice: tuple[Advice, ...] = ()
    advice_title: str = ""
    advice_total: Advice | None = None
    advice_notes: tuple[str, ...] = ()
    shapes: TableView | None = None
    sections: tuple[str, ...] = ()


class Report(Struct, frozen=True, eq=False):
    """A summary and the sections that have something to show, in their order. `verdicts` say what
    passed and what failed: a document has them at its head, a terminal at its end, which is read
    first. The report of a run has an `opening`."""

    summary: Summary
    sections: tuple[Section, ...] = field(default_factory=tuple)
    verdicts: tuple[Fact, ...] = ()
    opening: Opening | None = None


# --- One colour per submodule, category and role, the same in every figure, page and notebook.
#
# Each colour is a pair for light and dark surfaces. The eight series colours were searched for so
# that any two of them stay apart for protan, deutan and tritan viewers as well, and each has a
# contrast of at least 3:1 with its surface; `tests/report/test_html_palette.py` holds them to
# that.


Theme = Literal["light", "dark"]


class Colour(Struct, frozen=True):
    """A colour for a light and for a dark surface, each "#rrggbb"."""

    light: str
    dark: str

    def on(self, theme: Theme) -> str:
        return self.light if theme == "light" else self.dark


_BLUE = Colour("#2b63c4", "#70a8fe")
_TEAL = Colour("#4da391", "#4cd8c9")
_OCHRE = Colour("#b08e09", "#d6b53e")
_VIOLET = Colour("#592685", "#896ec7")
_RUST = Colour("#a13a1c", "#c85f3f")
_PINK = Colour("#b05193", "#f5868c")
_GREEN = Colour("#688352", "#b3db91")
_SLATE = Colour("#4e5661", "#7c96c1")

SERIES = (_BLUE, _TEAL, _OCHRE, _VIOLET, _RUST, _PINK, _GREEN, _SLATE)
SURFACE = Colour("#ffffff", "#14171c")
TEXT = Colour("#1b1f24", "#e4e7eb")
MUTED = Colour("#5c6570", "#9aa4b0")
LINE = Colour("#e3e6ea", "#2b3139")
HOST = Colour("#8b919b", "#7d8590")
HOST_WORK = Colour("#97813f", "#a38d4c")  # between calls
IDLE = Colour("#dfe3e8", "#333a43")

PAGE = {  # custom properties of the HTML page
    "surface": SURFACE,
    "raised": Colour("#ffffff", "#1c2026"),
    "text": TEXT,
    "muted": MUTED,
    "line": LINE,
    "edge": Colour("#cfd5dc", "#3c444e"),
    "band": Colour("#f4f6f8", "#1c2127"),
    "counter": Colour("#7373a0", "#56719f"),  # curves of memory and other counters
    "veil": Colour("#ffffffa6", "#14171cb3"),
    "focus": Colour("#2b63c4", "#70a8fe"),
    "alert": Colour("#a3180f", "#ff9a8d"),
    "warning": Colour("#b08e09", "#d6b53e"),
    "alert-ground": Colour("#fdf0ee", "#2c1a1a"),
    "part-fill": Colour("#9db7e4", "#3f5e90"),
    "whole": Colour("#76859a", "#7a889a"),  # totals of a waterfall
    "parent": Colour("#dce2e9", "#363e48"),  # what is around others in a tree of time
    "busy": Colour("#1d252f", "#dde4ec"),  # time in which a device worked, whatever at
    "wait": Colour("#f6efdf", "#3b3425"),  # time in which it waited, and the lines across it
    "wait-line": Colour("#a5915a", "#8d7a4d"),
    # outlines of stages, steps and what is in no call; dots and lines of what was not recorded
    "frame": Colour("#868e98", "#6f7883"),
}

_RAMP = (  # of submodules, which names distinguish: hues are the roles'
    Colour("#717d8c", "#5c6877"),
    Colour("#64707f", "#667280"),
    Colour("#586472", "#929eac"),
    Colour("#4c5765", "#9eaab8"),
    Colour("#404b59", "#abb6c4"),
)

DEVICE_COLOURS = (  # of several in a chart, whose lines dashes distinguish as well
    PAGE["busy"],
    Colour("#8492a5", "#7d8c9e"),
    Colour("#5b697b", "#98a6b6"),
    Colour("#6f7d90", "#6a788a"),
    Colour("#4b5768", "#c9d2dc"),
)

_KNOWN = {
    "transformer": 0,
    "unet": 0,
    "text_encoder": 1,
    "text_encoder_2": 3,
    "text_encoder_3": 2,
    "vae": 4,
    "vae_decoder": 4,
    "controlnet": 2,
    "vae_encoder": 3,
    "image_encoder": 1,
}

BOUND_COLOURS = {
    "compute": _BLUE,
    "memory": _OCHRE,
    "launch": _RUST,
    "overhead": _VIOLET,
    "host": HOST,
}

PEAK_COLOURS = (  # from little of the peak to much of it, apart by lightness alone
    Colour("#d5e0f5", "#26344d"),
    Colour("#a5bfec", "#365480"),
    Colour("#6b93dc", "#4a78ba"),
    Colour("#2b63c4", "#70a8fe"),
    Colour("#173c7c", "#bdd7ff"),
)

ROLE_COLOURS = {  # hues that nothing else has; chosen to differ for colour-blind readers too
    "attention": Colour("#4057f1", "#6481f0"),
    "qkv_projection": Colour("#508ff9", "#64adc4"),
    "mlp": Colour("#c2460d", "#bb5e1f"),
    "router": Colour("#a01642", "#a3a9f6"),
    "norm": Colour("#ac8f38", "#d8da3c"),
    "modulation": Colour("#6a08ba", "#6f55c7"),
    "embedding": Colour("#657e4b", "#89a46f"),
    "convolution": Colour("#33a182", "#76e9d4"),
    "resample": Colour("#5f1840", "#ae9b0d"),
    "rope": Colour("#233170", "#edcc95"),
    "residual": Colour("#424408", "#ab7684"),
    "adapter": Colour("#0c6c68", "#71ca5d"),
    "sampling": Colour("#8754ab", "#657e4b"),
    "random": Colour("#604573", "#ed6fb0"),
    "optimizer": Colour("#2f818e", "#9770b4"),
    "data_movement": Colour("#af4d80", "#a04886"),
    "collective": Colour("#0c4f33", "#2d755f"),
    "matmul": Colour("#ec6480", "#ffa3b1"),
    "elementwise": Colour("#a185b7", "#e1c3f9"),
    "other": Colour("#616154", "#a5a293"),
}

CATEGORY_COLOURS = {  # what is a role, too, has its colour; computing is that of busy devices
    "host": HOST,
    "compute": PAGE["busy"],
    "dma": ROLE_COLOURS["data_movement"],
    "copy": Colour("#4a51b5", "#c9813a"),
    "collective": ROLE_COLOURS["collective"],
    "sync": PAGE["wait-line"],
    "other": ROLE_COLOURS["other"],
}


def submodule_colours(names: Iterable[str]) -> dict[str, Colour]:
    """A shade of grey for each of `names`: the known ones always theirs, others what is left.

    The result depends on the set of names only, not on their order; from six different shades
    on they repeat.
    """
    wanted = sorted(set(names))
    colours = {name: _RAMP[_KNOWN[name]] for name in wanted if name in _KNOWN}
    free = [colour for colour in _RAMP if colour not in colours.values()] or [*_RAMP]
    others = [name for name in wanted if name not in _KNOWN]
    return colours | {name: free[i % len(free)] for i, name in enumerate(others)}
