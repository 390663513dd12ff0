"""What is asked beside `analyze` and `import`: selections, comparisons, predictions, documents, a
data set, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.corpus import CORPUS
from tests.fleet.bundles import write_bundle
from tests.golden import makers
from tests.golden.masks import settle
from tests.golden.questions import Asked

ROOT = Path(__file__).resolve().parents[2]
_SAMPLE = ROOT / "sample_traces" / "tiny_two_devices"
_AMD = ROOT / "sample_traces" / "sd35_mi300x"
_H200 = ROOT / "tests" / "evidence" / "h200"
_CONFORMANCE = ROOT / "tests" / "trace" / "conformance"


def ask_selections(asked: Asked) -> None:
    """Parts of a run, and how many rows."""
    path = makers.copied(_SAMPLE, asked.folder)
    for name, options in {
        "sections": ("--list-sections",),
        "section": ("--section", "idle,roofline"),
        "stage": ("--stage", "denoise", "--full"),
        "submodule": ("--submodule", "transformer,vae", "--full"),
        "device": ("--device", "cpu:0"),
        "step": ("--step", "last", "--full"),
        "top": ("--full", "--top", "2"),
        "no-rows": ("--full", "--top", "0"),
        "memory": ("--device-memory", "16GiB", "--section", "memory"),
        "json": ("--json", "-"),
        "stdout-twice": ("--json", "-", "--full"),
    }.items():
        asked.ask(name, "analyze", path, "--no-html", *options)
    asked.run("analyze", path, "--no-html", "--step", "0", "--json", "step.json")
    asked.keep_file("step-json", "step.json")
    other = write_bundle(asked.folder / "more", 1)
    write_bundle(asked.folder / "more", 2, 1.3)
    settle(asked.folder / "more")
    below = f"more/{other.name}"
    asked.ask("against", "analyze", "more/run002", "--against", below, "--html", "b.html")
    asked.keep_file("against-page", "b.html", page=True)
    asked.ask("all", "analyze", "more", "--all", "--no-html")
    asked.ask("korean", "analyze", below, "--language", "ko", "--html", "k.html")
    asked.keep_file("korean-page", "k.html", page=True)


def ask_diffs(asked: Asked) -> None:
    """Pairs of runs of the same pipeline."""
    folder = asked.folder
    pairs = {
        "flux": (_H200 / "flux-eager.json.gz", _H200 / "flux-compiled.json.gz"),
        "sd35": (_H200 / "sd35-eager.json.gz", _H200 / "sd35-compiled.json.gz"),
        "vendors": tuple(
            CORPUS / f"torch_pairs/Qwen_Qwen1.5-0.5B-Chat__{card}.json.gz"
            for card in ("h100", "mi300")
        ),
    }
    for name, (base, new) in pairs.items():
        if base.exists():
            paths = [makers.copied(each, folder) for each in (base, new)]
            _ask_diff(asked, name, paths)
    for number, factor in enumerate((1, 1.01, 0.99, 1.3, 1.31, 1.29)):
        write_bundle(folder / ("base" if number < 3 else "new"), number, factor)
    settle(folder)
    _ask_diff(asked, "tiny", ["base/run000", "new/run003"])
    _ask_diff(asked, "groups", ["base/run000", "new", "--against", "base"])
    asked.ask("gate", "diff", "new", "--against", "base", "--fail-over", "5%")
    asked.ask("gate-passes", "diff", "base", "--against", "new", "--fail-over", "5%")
    asked.ask("gate-untold", "diff", "base/run000", "new/run003", "--fail-over", "5%")
    for by in ("shape", "kernel", "node", "module", "role", "step"):
        asked.ask(f"by-{by}", "diff", "base/run000", "new/run003", "--by", by)
    asked.ask("sections", "diff", "base/run000", "new/run003", "--list-sections")


def _ask_diff(asked: Asked, name: str, paths: list[str]) -> None:
    files = ("--json", "d.json", "--markdown", "d.md")
    page = ("--html", "d.html") if len(paths) == 2 else ()
    asked.ask(f"{name}.full", "diff", *paths, "--full", *files, *page, columns=120)
    asked.keep_file(f"{name}.json", "d.json")
    asked.keep_file(f"{name}.md", "d.md")
    if page:
        asked.keep_file(f"{name}.page", "d.html", page=True)
    if name in ("tiny", "groups"):
        asked.ask(f"{name}.short", "diff", *paths, columns=80)


def ask_predictions(asked: Asked) -> None:
    """Scenarios of a GPU's run and of a sample."""
    gpu = asked.bring_in([makers.copied(_H200 / "sd35-eager.json.gz", asked.folder)], {})
    sample = makers.copied(_SAMPLE, asked.folder)
    for name, path, options in (
        ("steps", gpu, ("--steps", "8")),
        ("guidance", gpu, ("--guidance", "off")),
        ("graphs", gpu, ("--cuda-graph", "--steps", "8")),
        ("batch", gpu, ("--batch", "2")),
        ("size", gpu, ("--size", "512")),
        ("precision", gpu, ("--precision", "fp8")),
        ("untraced", gpu, ("--untraced", "500")),
        ("drop", sample, ("--drop", "text_encoder_3", "--steps", "3")),
        ("place", sample, ("--place", "text_encoder_3=cpu:0")),
        ("concurrency", sample, ("--concurrency", "4")),
        ("graph-order", sample, ("--concurrency", "2", "--order", "graph")),
        ("devices", sample, ("--devices", "cpu:0,cpu:1")),
        ("refused", sample, ("--steps", "0")),
    ):
        asked.ask(name, "predict", path, *options, "--json", "p.json")
        asked.keep_file(f"{name}-json", "p.json")


def ask_documents(asked: Asked) -> None:
    """Queries, dumps, shared and exported runs."""
    path = makers.copied(_SAMPLE, asked.folder)
    other = makers.copied(_AMD, asked.folder)
    asked.ask("query-tables", "query", path, "--tables")
    counted = "select submodule, count(*) as n from commands_with_calls group by all order by all"
    asked.ask("query", "query", path, counted)
    asked.ask(
        "query-several",
        "query",
        path,
        other,
        "select run, sum(duration_ns) from calls group by all order by all",
    )
    asked.ask("query-json", "query", path, "select * from roles order by all", "--json", "-")
    asked.ask("query-csv", "query", path, "select * from findings", "--csv", "-")
    asked.ask("query-wrong", "query", path, "select nothing from nowhere")
    asked.ask("dump", "dump", f"{path}/008_vae.decode.pb", "--limit", "200")
    asked.ask("dump-host", "dump", f"{path}/host.pb")
    asked.ask("otlp", "export", "otlp", path, "--out", "-")
    asked.ask("share", "share", path, "--out", "shared.zip", "--remove", "stabilityai")
    if (asked.folder / "shared.zip").is_file():
        shutil.unpack_archive(asked.folder / "shared.zip", asked.folder / "shared")
        for name, text in _digests(asked.folder / "shared" / path).items():
            asked.keep(f"shared/{name}", text)
        asked.keep_file("shared/manifest", f"shared/{path}/manifest.json")
    for name in ("merged.pb", "manifest.json"):
        (asked.folder / path / name).unlink()
    asked.ask("merge", "merge", path)
    for name, text in _digests(asked.folder / path).items():
        asked.keep(f"merged/{name}", text)
    asked.ask("import-list", "import", "--list")
    asked.ask("import-deflated", "import", f"{other}/nothing.json", "--compress", "deflate")


def _digests(folder: Path) -> dict[str, str]:
    from tests.golden.page import digest

    return {one.name: digest(one.read_bytes()) for one in sorted(folder.glob("*.pb"))}


def ask_conformance(asked: Asked) -> None:
    """Perfetto traces that others wrote."""
    for path in sorted(_CONFORMANCE.glob("*.pb")):
        name = makers.copied(path, asked.folder)
        asked.ask(f"dump-{name}", "dump", name)
        asked.ask(f"query-{name}", "query", name, "select * from commands", "--json", "-")
    asked.ask("analyze", "analyze", "flows.pb")


def ask_fleet(asked: Asked) -> None:
    """A data set of runs that get slower at the tenth."""
    for number in range(14):
        factor = 1 + 0.003 * (number * 7 % 5) + (0.2 if number >= 10 else 0)
        write_bundle(asked.folder / "runs", number, factor)
    for number in range(20, 26):
        hardware = {"cpu": "Other CPU", "cores": 4}
        devices = {"rbln:0": {"hardware": "CA25"}}
        write_bundle(asked.folder / "others", number, 1.1, hardware=hardware, devices=devices)
    settle(asked.folder)
    same = ("--assume-same", "variant,recipe,hardware")
    asked.ask("add", "fleet", "add", "set", "runs", "--label", "team=vision", "--commit", "abc1234")
    asked.ask("add-again", "fleet", "add", "set", "runs")
    asked.ask("add-others", "fleet", "add", "other", "runs", "others")
    asked.ask("history", "fleet", "history", "set", *same, "--json", "h.json", "--html", "h.html")
    asked.keep_file("history-json", "h.json")
    asked.keep_file("history-page", "h.html", page=True)
    asked.ask("steps", "fleet", "history", "set", *same, "--metric", "denoise.step", columns=80)
    asked.ask("unknown", "fleet", "history", "set")
    asked.ask("compare", "fleet", "compare", "other", "--assume-same", "variant,recipe")
    by_label = ("--by", "software", "--json", "c.json", *same)
    asked.ask("compare-software", "fleet", "compare", "other", *by_label)
    asked.keep_file("compare-json", "c.json")
    for name, data in (("gate", "set"), ("gate-other", "other")):
        asked.ask(name, "fleet", "gate", data, *same, "--json", "g.json", "--markdown", "-")
        asked.keep_file(f"{name}-json", "g.json")
    asked.ask("query", "fleet", "query", "set", "select commit, time_ns from runs order by all")
    asked.ask("tables", "fleet", "query", "set", "describe runs")
    asked.ask(
        "metrics",
        "fleet",
        "query",
        "set",
        "select * exclude (run) from metrics order by all limit 40",
    )
    asked.ask("accept", "fleet", "accept", "set", "elapsed@run010", "--because", "a new driver")
    asked.ask("compact", "fleet", "compact", "set")
    asked.ask("page", "fleet", "page", "set", *same, "--out", "f.html")
    asked.keep_file("page", "f.html", page=True)


def ask_bad_inputs(asked: Asked) -> None:
    """What cannot be read or understood: exit code and sentence."""
    path = makers.copied(_SAMPLE, asked.folder)
    (asked.folder / "empty").mkdir()
    (asked.folder / "words.json").write_text("hello, world\n")
    broken = Path(shutil.copytree(asked.folder / path, asked.folder / "broken"))
    (broken / "manifest.json").write_text("{")
    for name, arguments in {
        "missing": ("analyze", "nowhere"),
        "empty": ("analyze", "empty"),
        "words": ("analyze", "words.json"),
        "manifest": ("analyze", "broken"),
        "section": ("analyze", path, "--section", "nothing"),
        "option": ("analyze", path, "--nothing"),
        "number": ("analyze", path, "--top", "many"),
        "stage": ("analyze", path, "--stage", "nothing"),
        "step": ("analyze", path, "--step", "x"),
        "language": ("analyze", path, "--language", "fr"),
        "command": ("analyse", path),
        "nothing": (),
        "diff-one": ("diff", path),
        "diff-by": ("diff", path, path, "--by", "colour"),
        "metric": ("diff", path, path, "--fail-over", "5%", "--metric", "x"),
        "predict": ("predict", path, "--place", "vae"),
        "import": ("import", "words.json"),
        "dump": ("dump", "words.json"),
        "data-set": ("fleet", "history", "nowhere"),
    }.items():
        asked.ask(name, *arguments)
    if (CORPUS / "damaged").is_dir():
        makers.damaged(asked.folder)
        for place in sorted((asked.folder / "damaged").glob("*")):
            if place.suffix != ".md" and place.name != "crash":
                name = f"damaged/{place.name}"
                asked.ask(name, "analyze", name, "--no-html")
        for place in sorted((asked.folder / "damaged" / "crash").glob("*")):
            name = f"damaged/crash/{place.name}"
            asked.ask(name, "analyze", name, "--no-html")
