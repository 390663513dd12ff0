"""Take the pictures of the docs: `report.png` of a run, `two-runs.png` of two.

python docs/images/take.py sample_traces/sd35_mi300x
python docs/images/take.py h100.json.gz mi300.json.gz

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
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]


def main() -> None:
    """Write the picture of the runs that the command line names, beside this file."""
    runs = sys.argv[1:]
    if len(runs) not in (1, 2):
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        subcommand = ["analyze"] if len(runs) == 1 else ["diff"]
        command = [sys.executable, "-m", "profiler", *subcommand, *runs, "--html", str(page)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        target = PLACE / ("report.png" if len(runs) == 1 else "two-runs.png")
        photograph(page, target, SIZE if len(runs) == 1 else FIRST_SCREEN)


def photograph(page_path: Path, target: Path, size: dict[str, int]) -> None:
    """The page in a window of that size, once everything in it is drawn."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        page = browser.new_page(viewport=size)
        page.goto(page_path.as_uri())
        page.evaluate("() => new Promise((done) => setTimeout(done, 1500))")
        page.screenshot(path=target)
        browser.close()
    with Image.open(target) as image:
        image.convert("RGB").save(target, optimize=True)


if __name__ == "__main__":
    main()
