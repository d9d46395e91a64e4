"""The README's pictures of the report: `python -m tests.report.screenshots [RECORDS…]` takes them.

Without records they are of the saved results.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tilepress._files import write_text
from tilepress.report import read_records, render_page, sections

from .browser import Browser, find_chromium

ROOT = Path(__file__).parents[2]
ALONE = "document.querySelectorAll('nav, section:not(#explorer)').forEach((one) => { one.hidden = true; });"
RESULTS, IMAGES = ROOT / "benchmarks" / "results", ROOT / "docs" / "images"
LARGEST = 300_000  # bytes of a picture


def main() -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("no chromium here: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        browser = Browser(chromium, Path(folder))
        try:
            take(browser, _page(Path(folder), [Path(one) for one in sys.argv[1:]] or [RESULTS]))
        finally:
            browser.close()


def _page(folder: Path, given: list[Path]) -> Path:
    records = read_records(given)
    subtitle = f"{len(records)} records of {len({one.machine for one in records})} machines"
    command = "tilepress report benchmarks/results"
    page = folder / "report.html"
    write_text(page, render_page("Tilepress report", subtitle, sections(records), command, records))
    return page


def take(browser: Browser, page: Path) -> None:
    """The first screen, and the explorer, which is drawn because somebody looks."""
    tab = browser.open(page, 1180, 1050)
    tab.run("await new Promise((done) => setTimeout(done, 2000));")
    tab.screenshot(IMAGES / "report.png")
    tab.run(f"{ALONE} await Explorer.look();")
    tab.screenshot(IMAGES / "explorer.png", "#explorer", 16)
    for name in ("report.png", "explorer.png"):
        size = (IMAGES / name).stat().st_size
        print(f"{IMAGES / name}: {size / 1e3:.0f} kB")
        if size > LARGEST:
            sys.exit(f"{name} is larger than {LARGEST / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
