"""Take the pictures of the docs: `report.png` of a run, `two-runs.png` of two.

python docs/images/take.py sample_traces/sd35_mi300x
python docs/images/take.py h100.json.gz mi300.json.gz

With `--review OUT` take pages of eight kinds of input for a review by eye instead, wide and narrow,
light and dark, with `OUT/checklist.md` to fill in. Keep that folder with the artefacts of the build
that was reviewed, not in git.

The button for Korean needs a font of it: Debian's fonts-nanum.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PLACE = Path(__file__).parent
SIZE = {"width": 1400, "height": 1500}
FIRST_SCREEN = {"width": 1280, "height": 800}
NARROW = {"width": 390, "height": 844}
REPOSITORY = PLACE.parents[1]
CORPUS = REPOSITORY.parent / "shared" / "corpus"
REVIEWED = {
    "sd35_mi300x": REPOSITORY / "sample_traces/sd35_mi300x",
    "flux_h200": REPOSITORY / "tests/evidence/h200/flux-eager.json.gz",
    "ranks": CORPUS / "torch_multirank/trace_filter",
    "xplane_tpu": CORPUS / "xplane/xprof_tpu_inference_2.xplane.pb",
    "nsys_two_gpus": CORPUS / "nsys/mfu_2gpu_before.sqlite",
    "tensorrt": CORPUS / "tensorrt/resnet_fp16_a100.profile.json",
    "qnn": CORPUS / "qnn/winml_optrace_resnet50.csv",
    "cpu": REPOSITORY / "sample_traces/tiny_two_devices",
}
CHECKLIST = (
    "waiting is drawn, hatched and named, in lanes and in the icicle; a click leads to it",
    "only leaves have a role's colour; submodules are neutral; one legend",
    "the headline names busy and waiting first, one base per sentence, one number per fact",
    "the ladder: from, to, factor; the total; changes of the image apart",
    "what the profiler itself costs stands beside the gain that it inflates",
    "totals over several devices say what they add up",
    "charts have units, are readable in this size and scheme, and no text is cut or overlaps",
    "red only for lost or contradictory data; notes of a format are grey and say what to do",
    "empty answers say what was checked and what is missing",
    "navigation: Summary, Timeline, Findings, Model, Device, Run; a finding leads to its rows",
    "nothing on the page is known to be false for this input",
)
# Figures are drawn when they come near the window.
SCROLL_THROUGH = """async () => {
  for (let top = 0; top < document.body.scrollHeight; top += innerHeight) {
    scrollTo({ top, behavior: "instant" });
    await new Promise((done) => setTimeout(done, 100));
  }
  scrollTo({ top: 0, behavior: "instant" });
}"""
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]


def main() -> None:
    """Write the picture of the runs that the command line names, beside this file."""
    runs = sys.argv[1:]
    if "--help" in runs:
        print(__doc__)
        return
    if len(runs) == 2 and runs[0] == "--review":
        review(Path(runs[1]))
        return
    if len(runs) not in (1, 2):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        write_page(page, "analyze" if len(runs) == 1 else "diff", *runs)
        target = PLACE / ("report.png" if len(runs) == 1 else "two-runs.png")
        photograph(page, target, SIZE if len(runs) == 1 else FIRST_SCREEN)


def write_page(page: Path, *command: str) -> None:
    """Write the report of that command as a page."""
    command = (sys.executable, "-m", "profiler", *command, "--html", str(page))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603


def review(out: Path) -> None:
    """Write pages of all inputs, pictures of the whole pages, and the checklist."""
    out.mkdir(parents=True, exist_ok=True)
    lines = ["# Review of pages by eye", ""]
    for name, source in REVIEWED.items():
        write_page(out / f"{name}.html", "analyze", str(source))
        lines += ["", f"## {name}", ""]
        for scheme in ("light", "dark"):
            for kind, size in (("wide", FIRST_SCREEN), ("narrow", NARROW)):
                target = out / f"{name}_{kind}_{scheme}.png"
                photograph(out / f"{name}.html", target, size, scheme, whole=True)
                lines.append(f"![{target.stem}]({target.name})")
        lines += ["", *(f"- [ ] {point}" for point in CHECKLIST)]
    (out / "checklist.md").write_text("\n".join(lines) + "\n")


def photograph(
    page_path: Path,
    target: Path,
    size: dict[str, int],
    color_scheme: str = "light",
    *,
    whole: bool = False,
) -> None:
    """Write what a window of that size shows of the page, or the whole, once all is drawn."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport=size, color_scheme=color_scheme)
        page.goto(page_path.as_uri())
        page.evaluate("() => new Promise((done) => setTimeout(done, 1500))")
        if whole:
            page.evaluate(SCROLL_THROUGH)
            page.wait_for_selector("html[data-figures=drawn]", state="attached")
        page.screenshot(path=target, full_page=whole)
        browser.close()
    with Image.open(target) as image:
        image.convert("RGB").save(target, optimize=True)


if __name__ == "__main__":
    main()
