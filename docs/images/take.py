"""Take `report.png`, the picture of the page in the README, from a bundle.

python docs/images/take.py traces/20261121-093000-StableDiffusion3Pipeline

The button for Korean needs a font of it: Debian's fonts-nanum.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

import profiler
from profiler.analysis.analyze import analyze
from profiler.report.html.page import write_html

SIZE = {"width": 1400, "height": 1500}
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]


def main() -> None:
    """Write `report.png` beside this file."""
    run = profiler.load(sys.argv[1])
    target = Path(__file__).parent / "report.png"
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        page_path = Path(folder) / "report.html"
        write_html(run, analyze(run), page_path)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport=SIZE)
        page.goto(page_path.as_uri())
        page.wait_for_selector("html[data-figures=drawn]", state="attached")
        page.screenshot(path=target)
        browser.close()
    with Image.open(target) as image:
        image.convert("RGB").save(target, optimize=True)


if __name__ == "__main__":
    main()
