"""The first screen of the page: what it shows, when, and by which keys."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.analysis import SURFACE
from profiler.analysis.analyze import analyze
from profiler.analysis.document import PAGE
from profiler.run import Run
from profiler.tools.sources import load
from tests.browser.report_page import ReportPage, chips, opened, page_of
from tests.corpus import CORPUS, needs_corpus
from tests.runs import Command, make_call, make_info, make_run, make_span

pytestmark = pytest.mark.browser

_IN = "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}"
_RUN = "StableDiffusion3Pipeline"
_SCREEN = {"width": 1280, "height": 800}


@pytest.fixture(scope="module")
def shared(chromium: Any, path: Path) -> Iterator[ReportPage]:
    """The page as it opens on a small screen, for tests that leave it as it was."""
    with opened(chromium, path, viewport=_SCREEN) as report:
        usable(report)
        yield report


@pytest.fixture
def first(shared: ReportPage) -> Iterator[ReportPage]:
    """That page at its top, with nothing chosen."""
    yield shared
    shared.page.evaluate("profileReport.choice.clear(); profileFirst.icicle.show(0)")
    shared.page.evaluate("document.activeElement.blur(); scrollTo({ top: 0, behavior: 'instant' })")


def usable(report: ReportPage) -> None:
    report.page.wait_for_function("() => window.profileUsable > 0")


def test_figures_are_drawn_once_the_reader_is_quiet(chromium: Any, path: Path) -> None:
    """A capture of the full page does not scroll: it has its figures all the same. Whoever presses
    keys meanwhile is not held up."""
    context = chromium.new_context(viewport=_SCREEN, reduced_motion="reduce")
    report = ReportPage(context.new_page())
    report.page.clock.install()
    report.page.goto(path.as_uri())
    usable(report)
    report.page.evaluate("figuresInflated")
    for _ in range(5):
        report.page.keyboard.press("Shift")
        report.page.clock.fast_forward(1_500)
    assert report.page.evaluate("window.Plotly") is None
    report.page.clock.fast_forward(3_000)
    report.page.wait_for_selector("html[data-figures=drawn]", state="attached")
    assert report.page.evaluate(
        """[...document.querySelectorAll("[data-figure]")].every(
          (place) => place.hidden || !place.clientWidth || place.querySelector("svg.main-svg"))"""
    )
    assert report.page.evaluate("scrollY") == 0
    context.close()


def test_plotly_runs_behind_the_first_screen(chromium: Any, path: Path) -> None:
    """A link of the contents to a section runs it, when the first screen and the timeline are
    drawn, and the section has its figures."""
    with opened(chromium, path, viewport=_SCREEN) as report:
        usable(report)
        assert report.page.evaluate("performance.getEntriesByName('plotly').length") == 0
        report.page.locator("nav a[href='#time']:not(.group)").click()
        report.page.wait_for_selector("html[data-figures=drawn]", state="attached")
        assert report.page.locator("#time .figure svg.main-svg").count() > 0
        times = report.page.evaluate(
            """["first-screen", "timeline", "plotly"].map((name) =>
              performance.getEntriesByName(name)[0].startTime)"""
        )
        assert times == sorted(times)


def test_paper_has_figures_that_nobody_scrolled_to(chromium: Any, path: Path) -> None:
    """Printing draws what was not looked at yet, before the print begins."""
    with opened(chromium, path, viewport=_SCREEN) as report:
        usable(report)
        report.page.evaluate("figuresInflated")
        assert report.page.evaluate("window.Plotly") is None
        report.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert report.page.evaluate(
            """[...document.querySelectorAll("[data-figure]")].every(
              (place) => place.hidden || place.data)"""
        )
        assert report.said == []


def icicle_boxes(report: ReportPage) -> list[dict[str, Any]]:
    """The rectangles that the icicle shows: node, place, and the node's share of the run."""
    found: list[dict[str, Any]] = report.page.evaluate(
        """() => {
          const { icicle } = profileFirst, { elapsed_ns: elapsed, share } = icicle.values;
          return icicle.items.map((item) => ({ ...item, ...icicle.box(item),
            name: icicle.name(item.node), kind: page.icicle.codes.kind[item.node],
            elapsed: elapsed[item.node], share: share[item.node],
            total: icicle.width, parent: icicle.parent[item.node] }));
        }"""
    )
    return found


def status(report: ReportPage, name: str) -> str:
    text: str = report.page.locator(f"#first-{name}-status").inner_text()
    return text.replace("\N{NO-BREAK SPACE}", " ")


def test_everything_stands_on_the_first_screen(first: ReportPage) -> None:
    """Sentence, checks, devices over time, icicle, findings and shapes end above the fold, and all
    is drawn before the timeline."""
    for part in (
        "h1",
        ".answers",
        ".bookkeeping",
        "#first-strip",
        "#first-icicle",
        ".gains",
        "#first-shapes",
    ):
        box = first.page.locator(part).bounding_box()
        assert box["height"] > 0, part
        assert box["y"] + box["height"] <= _SCREEN["height"], part
    times = first.page.evaluate(
        """["first-screen", "timeline"].map((name) =>
          performance.getEntriesByName(name)[0].startTime)"""
    )
    assert times == sorted(times)
    assert first.said == []


@pytest.mark.parametrize("sample", ["sd35_mi300x", "tiny_two_devices"])
def test_a_ladder_ends_above_the_fold(chromium: Any, tmp_path: Path, sample: str) -> None:
    """Of five changes, too, the last, what all come to, if that is more than one, and the notes are
    seen without scrolling."""
    run = load(Path(__file__).parents[2] / "sample_traces" / sample)
    with opened(chromium, page_of(run, tmp_path), viewport=_SCREEN) as report:
        lines = report.page.locator(".gains li, .gains .last, .gains .help")
        assert lines.filter(has_text="ranges: ").count() == 1
        box = lines.last.bounding_box()
        assert box["height"] > 0
        assert box["y"] + box["height"] <= _SCREEN["height"]


def test_the_icicle_is_the_module_tree(first: ReportPage, run: Run) -> None:
    """Each rectangle is as wide as its node's share of the run, in the one of what it is in and
    beside its neighbours, and the node's time is that of the analysis."""
    boxes = {box["node"]: box for box in icicle_boxes(first)}
    assert len(boxes) > 10
    for box in boxes.values():
        assert box["width"] == pytest.approx(box["share"] * box["total"], rel=1e-3)
        parent = boxes.get(box["parent"])
        if parent is None:
            assert box["name"] == _RUN
            continue
        assert box["top"] > parent["top"]
        assert box["left"] >= parent["left"] - 1e-6
        assert box["left"] + box["width"] <= parent["left"] + parent["width"] + 1e-6
    rows: dict[float, list[tuple[float, float]]] = {}
    for box in boxes.values():
        rows.setdefault(box["top"], []).append((box["left"], box["left"] + box["width"]))
    for row in map(sorted, rows.values()):
        assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(row))
    tree = analyze(run).module_tree
    shown = {box["elapsed"] for box in boxes.values() if box["kind"] != "waiting"}
    assert shown <= set(tree["elapsed_ns"])
    assert max(shown) == tree["elapsed_ns"].max()


def test_the_curve_is_as_full_as_the_device_was_busy(first: ReportPage, run: Run) -> None:
    """What is painted of a device's curve, pixel by pixel, is its busy share of the table."""
    shares = dict(analyze(run).devices.select("device", "idle_share").iter_rows())
    painted = first.page.evaluate(
        """() => {
          const { strip } = profileFirst, { canvas, ratio } = strip;
          const light = (colour) => parseInt(colour.slice(1, 3), 16);
          const half = (light(strip.inks.busy) + light(strip.inks["wait-line"])) / 2;
          const { width, height: rows } = canvas;
          const { data } = canvas.getContext("2d").getImageData(0, 0, width, rows);
          return strip.devices.map(({ device, busy: { start, step, busy: parts } }, row) => {
            const { top, height } = strip.busyOf(row), end = start + step * parts.length;
            const [x0, x1] = [strip.x(start), strip.x(end)].map((x) => Math.round(x * ratio));
            let sum = 0, count = 0;
            for (let y = Math.round(top * ratio); y < Math.round((top + height) * ratio); y++) {
              for (let x = x0; x < x1; x++, count++) {
                sum += data[4 * (y * width + x)] < half ? 1 : 0;
              }
            }
            return [device, sum / count];
          });
        }"""
    )
    assert painted
    for device, share in painted:
        assert share == pytest.approx(1 - shares[device], abs=0.01), device


def test_waiting_leads_to_its_gaps(first: ReportPage) -> None:
    """Waiting of a call says for what and how long, and a click filters by the submodule and shows
    the gaps, from their heading on, below the bar of what is filtered by."""
    waits = [box for box in icicle_boxes(first) if box["name"] == "waits for the host"]
    widest = max(waits, key=lambda box: box["width"])
    place = {"x": widest["left"] + widest["width"] / 2, "y": widest["top"] + 8}
    canvas = first.page.locator("#first-icicle canvas")
    canvas.hover(position=place)
    assert f"{_IN} waits for the host: " in status(first, "icicle")
    canvas.click(position=place)
    assert any(chip.startswith("submodule ") for chip in chips(first))
    gaps = first.page.locator("[data-table=gaps]")
    first.page.wait_for_function(
        """() => {
          const part = document.querySelector("[data-table=gaps]").closest(".part");
          const bar = document.querySelector(".chosen.active").getBoundingClientRect();
          const { top } = part.getBoundingClientRect();
          return top >= bar.bottom && top < innerHeight / 2;
        }"""
    )
    assert gaps.is_visible()


def test_waiting_is_never_a_number_alone(first: ReportPage) -> None:
    """However little room a box of waiting has, it begins with the words for what is waited for."""
    found = first.page.evaluate(
        """() => {
          const { icicle } = profileFirst;
          return icicle.items.filter(({ node }) => icicle.is(node, "waiting"))
            .map(({ node }) => [icicle.name(node), icicle.texts(node)]);
        }"""
    )
    assert found
    for name, texts in found:
        assert {text[:5] for text in texts} == {name[:5]}
        assert len(texts[-1]) <= 10


def test_keys_go_through_the_icicle(first: ReportPage) -> None:
    """Arrows go down, along and up, Enter zooms, Escape leads back; Space chooses."""
    canvas, keyboard = first.page.locator("#first-icicle canvas"), first.page.keyboard
    canvas.focus()
    assert status(first, "icicle").startswith(f"{_RUN}: ")
    whole = icicle_boxes(first)
    keyboard.press("ArrowDown")
    stage = status(first, "icicle").split(":")[0]
    assert stage.startswith(f"{_RUN} {_IN} ")
    keyboard.press("ArrowRight")
    second = status(first, "icicle").split(":")[0]
    assert second not in (stage, _RUN)
    keyboard.press("Enter")
    zoomed = icicle_boxes(first)
    assert zoomed[0]["width"] == pytest.approx(zoomed[0]["total"])
    assert second == f"{_RUN} {_IN} {zoomed[0]['name']}"
    keyboard.press("Escape")
    assert icicle_boxes(first) == whole
    keyboard.press("Space")
    assert len(chips(first)) == 1
    keyboard.press("Escape")
    assert chips(first) == []


def test_a_rectangle_chooses_what_it_is_of(first: ReportPage) -> None:
    """A click on a submodule of the icicle and on a call of the strip choose these on the whole
    page; the bar tells it without scrolling."""
    (vae,) = [box for box in icicle_boxes(first) if box["name"] == "vae"]
    place = {"x": vae["left"] + vae["width"] / 2, "y": vae["top"] + 8}
    first.page.locator("#first-icicle canvas").click(position=place)
    assert chips(first) == ["stage decode", "submodule vae"]
    bar = first.page.locator(".chosen").bounding_box()
    assert bar["y"] + bar["height"] <= _SCREEN["height"] + 1
    first.page.evaluate("profileReport.choice.clear()")
    box = first.page.evaluate(
        """() => {
          const { strip } = profileFirst;
          const item = strip.items.find((item) => strip.picks(item).step === 1);
          return { ...strip.box(item), ...strip.picks(item) };
        }"""
    )
    middle = {"x": box["left"] + box["width"] / 2, "y": box["top"] + box["height"] / 2}
    first.page.locator("#first-strip canvas").click(position=middle)
    assert set(chips(first)) == {f"submodule {box['submodule']}", "step 1"}


def test_each_canvas_has_its_table(first: ReportPage) -> None:
    """What a canvas draws can be read as a table, row by row."""
    for name in ("strip", "icicle"):
        first.page.locator(f"#first-{name} summary").click()
        table = first.page.locator(f"#first-{name} table")
        table.wait_for()
        drawn = first.page.evaluate("(name) => profileFirst[name].table().rows.length", name)
        while first.page.locator(f"#first-{name} .more").is_visible():
            first.page.locator(f"#first-{name} .more").click()
        assert table.locator("tbody tr").count() == drawn


def test_canvases_follow_the_theme(first: ReportPage) -> None:
    """Both canvases have the page's ground, whichever theme is chosen."""
    for scheme in ("dark", "light"):
        first.page.evaluate("(scheme) => { report.theme = scheme; applyTheme(); }", scheme)
        for name in ("strip", "icicle"):
            ground = first.page.evaluate(
                """(name) => { const { canvas } = profileFirst[name];
                  const at = [canvas.width - 1, canvas.height - 1, 1, 1];
                  return [...canvas.getContext("2d").getImageData(...at).data].slice(0, 3); }""",
                name,
            )
            assert bytes(ground).hex() == SURFACE.on(scheme).lstrip("#"), name


def test_a_telephone_shows_it_narrow(first: ReportPage) -> None:
    """On a narrow screen nothing scrolls sideways, and both canvases fit."""
    first.page.set_viewport_size({"width": 360, "height": 740})
    first.page.wait_for_function(
        "() => profileFirst.strip.width < 340 && profileFirst.icicle.width < 340"
    )
    assert first.page.evaluate("document.documentElement.scrollWidth") <= 360
    first.page.set_viewport_size(_SCREEN)
    first.page.wait_for_function("() => profileFirst.icicle.width > 900")


def test_the_legend_names_work_of_no_call(chromium: Any, tmp_path: Path) -> None:
    """What the device did before its only call has a colour of its own, which the legend names;
    a run without such work has no such entry."""
    call = make_call(0, "unet", 5000, 9000, device="cuda:0")
    inside = Command(0, "cuda:0", "s", "compute", "k", 5000, 4000)
    before = Command(-1, "cuda:0", "s", "compute", "k", 0, 3000)
    curve = ["busy (any stream)", "waiting"]
    for commands, names in (
        ([inside], curve),
        ([before, inside], [*curve, "no call"]),
    ):
        page = page_of(make_run([call], commands), tmp_path)
        with opened(chromium, page, viewport=_SCREEN) as report:
            usable(report)
            entries = report.page.locator("#first-strip .legend li")
            assert entries.all_inner_texts() == names


def test_busy_shares_say_what_they_are_of(chromium: Any, tmp_path: Path) -> None:
    """A device works 3 µs before a call of 4 µs, which is the end-to-end time, and then throughout:
    beside an axis of 9 µs the share of the strip is of 4 µs, that of the timeline of its window of
    9 µs. The latter stands above the curve."""
    call = make_call(0, "unet", 5000, 9000, device="cuda:0")
    spans = [make_span("pipeline", "P", 5000, 9000)]
    works = [
        Command(n, "cuda:0", "s", "compute", "k", *at)
        for n, *at in ((-1, 0, 3000), (0, 5000, 4000))
    ]
    run = make_run([call], works, spans)
    with opened(chromium, page_of(run, tmp_path), viewport=_SCREEN) as report:
        assert "busy 100 % of 4.00 µs" in written(report, "profileFirst.strip.draw()")
        assert "busy 78 % of 9.00 µs" in written(report, "profileReport.timeline.drawNow()")
        ink, top = report.page.evaluate(
            """() => {
              const { timeline } = profileReport, { lane, y, height } = timeline.placed
                .find((one) => one.lane.kind === "use"), tops = [];
              const context = new Proxy({}, { set: () => true, get: (_, name) => (...box) =>
                name === "fillRect" && tops.push(box[1]) });
              lane.draw(context, { y, height });
              return [y + 8 + 11.5 / 2, Math.min(...tops)];
            }"""
        )
        assert ink <= top
        report.page.set_viewport_size({"width": 390, "height": 844})
        report.page.wait_for_function("() => profileFirst.strip.width < 400")
        assert "100 % of 4.00 µs" in written(report, "profileFirst.strip.draw()")


def written(report: ReportPage, drawing: str) -> list[str]:
    """The texts that some drawing writes on its canvas, with ordinary spaces."""
    texts = report.page.evaluate(
        """() => {
          const { prototype } = CanvasRenderingContext2D, { fillText } = prototype, texts = [];
          prototype.fillText = function (text, ...place) {
            texts.push(text);
            fillText.call(this, text, ...place);
          };
          DRAWING;
          prototype.fillText = fillText;
          return texts;
        }""".replace("DRAWING", drawing)
    )
    return [text.replace("\N{NO-BREAK SPACE}", " ") for text in texts]


@pytest.mark.parametrize("devices", [1, 2])
def test_the_busy_share_of_a_run_is_of_any_of_its_devices(
    chromium: Any, tmp_path: Path, devices: int
) -> None:
    """Two calls, one after the other, work 30 and 20 of 100 ns each: some device is busy for 25 %
    of the run, which is no share of one device if there are two."""
    calls = [
        make_call(n, "t", 100 * n, 100 * n + 100, device=f"cuda:{n % devices}") for n in range(2)
    ]
    commands = [
        Command(n, f"cuda:{n % devices}", "s", "compute", "k", 100 * n, took)
        for n, took in enumerate((30, 20))
    ]
    spans = [make_span("pipeline", "P", 0, 200), make_span("stage", "denoise", 0, 200)]
    page = page_of(make_run(calls, commands, spans), tmp_path)
    with opened(chromium, page, viewport=_SCREEN) as report:
        usable(report)
        report.page.locator("#first-icicle canvas").focus()
        text = status(report, "icicle").replace("\N{NO-BREAK SPACE}", " ")
        of_any = " (any device)" if devices > 1 else ""
        assert text.endswith(f"25 % busy, 75 % waiting{of_any}")


def test_time_outside_of_operators_is_not_called_busy(chromium: Any, tmp_path: Path) -> None:
    """Operators take 40 of a call's 100 ns; what happened in the other 60 was not recorded."""
    info = make_info(capabilities=("averages",))
    conv = Command(0, "qnn:0", "s", "compute", "conv", 0, 40)
    run = make_run([make_call(0, "resnet", 0, 100, device="qnn:0")], [conv], info=info)
    with opened(chromium, page_of(run, tmp_path), viewport=_SCREEN) as report:
        usable(report)
        (call,) = [box for box in icicle_boxes(report) if box["name"] == "resnet"]
        place = {"x": call["left"] + call["width"] / 2, "y": call["top"] + 8}
        report.page.locator("#first-icicle canvas").hover(position=place)
        text = status(report, "icicle").replace("\N{NO-BREAK SPACE}", " ")
        assert text.endswith("40 % in operators, 60 % outside of them")
        entries = report.page.locator("#first-icicle .legend li")
        assert "outside of operators" in entries.all_inner_texts()


@needs_corpus
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_waiting_has_one_look(chromium: Any, tmp_path: Path, scheme: str) -> None:
    """TPUs wait for copies nearly always: what the strip, the icicle and the lanes of the timeline
    draw there has the two colours of waiting and no role's, and all three legends hatch it."""
    run = load(CORPUS / "xplane" / "xprof_tpu_inference_2.xplane.pb")
    page = page_of(run, tmp_path)
    with opened(chromium, page, viewport=_SCREEN, color_scheme=scheme) as report:
        usable(report)
        found = report.page.evaluate(
            """() => {
              const { strip, icicle } = profileFirst, { timeline } = profileReport;
              timeline.setMode("role");
              timeline.drawNow();
              const wait = icicle.items.filter(({ node }) => icicle.is(node, "waiting"))
                .map((item) => icicle.box(item)).sort((a, b) => b.width - a.width)[0];
              const lane = timeline.lanes.find(({ track }) => track === "XLA Ops sync");
              const longest = [...Array(lane.count).keys()].reduce((best, i) =>
                (lane.end(i) - lane.start(i) > lane.end(best) - lane.start(best) ? i : best), 0);
              const event = timeline.box({ lane, i: longest });
              const busy = strip.busyOf(0);
              const boxes = [
                [strip, strip.x(40e9), busy.top + 1, strip.width / 4, 8],
                [icicle, wait.left + wait.width * 0.75, wait.top + 4, wait.width / 8, 12],
                [timeline, event.left + 1, event.top + 1, event.right - event.left - 3, 10],
              ];
              return boxes.map(([{ canvas, ratio }, ...box]) => {
                const at = box.map((pixel) => Math.max(Math.round(pixel * ratio), 1));
                const { data } = canvas.getContext("2d").getImageData(...at), counts = {};
                for (let i = 0; i < data.length; i += 4) {
                  const name = [0, 1, 2].map((k) => data[i + k].toString(16).padStart(2, "0"));
                  const colour = "#" + name.join("");
                  counts[colour] = (counts[colour] ?? 0) + 4 / data.length;
                }
                return counts;
              });
            }"""
        )
        legends = report.page.evaluate(
            """["#first-strip .legend", "#first-icicle .legend", "#timeline-legend"].map((place) =>
              [...document.querySelectorAll(`${place} li`)]
                .filter((entry) => entry.querySelector(".hatched"))
                .map((entry) => entry.innerText))"""
        )
    ground, line = PAGE["wait"].on(scheme), PAGE["wait-line"].on(scheme)
    for counts in found:
        assert counts[ground] > 0.4
        assert (
            counts[ground] + sum(counts[one] for one in counts if between(one, ground, line)) > 0.99
        )
    assert legends == [["waiting"]] * 3


def between(colour: str, one: str, other: str) -> bool:
    """Whether a colour lies on the way from one to the other, as the edges of lines do."""
    a, b, c = (
        np.array([int(hue[i : i + 2], 16) for i in (1, 3, 5)]) for hue in (one, other, colour)
    )
    part = np.clip((c - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
    return colour != one and bool(np.abs(a + part * (b - a) - c).max() <= 2)
