"""Make pictures for the documentation: an explanation, a report and the service, each light and dark.

    python scripts/make_gallery.py        # needs Chromium and the extras dev and serve; takes some minutes

Writes docs/assets/NAME.png and NAME-dark.png. The report is of a fast fit to docs/notebooks/logbb.csv.
"""

import argparse
import io
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "docs" / "assets"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
CHROMOPHORE = "CN(C)c1ccc(C=C(C#N)C#N)cc1"
SERVED = ("solubility", "logbb", "tox21")
GOAL = "1.4"  # log ug/mL
LIST = """\
CC(=O)Oc1ccccc1C(=O)O aspirin
CN1C=NC2=C1C(=O)N(C(=O)N2C)C caffeine
CC(=O)Nc1ccc(O)cc1 paracetamol
CC1=C(C=C(C=C1)NC(=O)C2=CC=C(C=C2)CN3CCN(CC3)C)NC4=NC=CC(=N4)C5=CN=CC=C5 imatinib
CN(C)CCCN1c2ccccc2CCc2ccccc21 imipramine
"""
COLORS = 128  # of a palette, which makes a picture several times smaller
SCHEMES: dict[Literal["light", "dark"], str] = {"light": "", "dark": "-dark"}


def molslice(*words: object) -> None:
    """Run a command of molslice."""
    subprocess.run([sys.executable, "-m", "molslice", *map(str, words)], check=True, cwd=ROOT)


def write_picture(name: str, content: bytes) -> None:
    """Write a picture with a palette."""
    with Image.open(io.BytesIO(content)) as image:
        image.convert("RGB").quantize(COLORS).save(ASSETS / f"{name}.png", optimize=True)


def draw_explanations() -> None:
    """Draw an explanation on a white and on a dark background."""
    for background, ending in (("white", ""), ("dark", "-dark")):
        out = ASSETS / f"explanation{ending}.png"
        drawn = ["--background", background, "--out", out, "--quiet"]
        molslice("explain", "gap-xtb", "--smiles", CHROMOPHORE, *drawn)


@contextmanager
def served() -> Iterator[str]:
    """Serve models that ship, and return the address."""
    command = [sys.executable, "-m", "molslice", "serve", *SERVED, "--port", "0"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        addresses = (re.search(r"http://\S+", line) for line in iter(process.stderr.readline, ""))
        yield next(address[0] for address in addresses if address)
    finally:
        process.terminate()
        process.wait()


def photograph(address: str, size: tuple[int, int], take: Callable[[Page, str], None]) -> None:
    """Open a page light and dark, and call `take` with the page and the ending of the names of pictures."""
    executable = next(filter(None, map(shutil.which, CHROMIUM)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for scheme, ending in SCHEMES.items():
            page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
            page.goto(address)
            take(page, ending)
            page.close()
        browser.close()


def take_report(page: Page, ending: str) -> None:
    """Take the beginning of a report."""
    write_picture(f"report{ending}", page.screenshot())


def take_service(page: Page, ending: str) -> None:
    """Paste a list, rank it by a goal, and open a molecule."""
    page.wait_for_selector("#model option", state="attached")
    page.locator("#smiles").fill(LIST)
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("button", name="Open imipramine").wait_for()
    page.get_by_text("What next").click()
    page.get_by_label("Limit").fill(GOAL)
    page.get_by_role("button", name="Compute probabilities").click()
    page.get_by_role("columnheader", name="probability").wait_for()
    page.wait_for_timeout(3_000)  # the structures
    write_picture(f"serve_table{ending}", page.locator("#table").screenshot())
    page.get_by_role("button", name="Open imipramine").click()
    page.get_by_text("SR-p53").wait_for()
    page.wait_for_timeout(3_000)
    write_picture(f"serve_models{ending}", page.locator("#endpoints").screenshot())


def main() -> None:
    """Make the pictures that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("explanation", "report", "service")
    parser.add_argument("names", nargs="*", help=f"pictures to make: {', '.join(names)} (default: all)")
    chosen = parser.parse_args().names or names
    if "explanation" in chosen:
        draw_explanations()
    if "report" in chosen:
        with tempfile.TemporaryDirectory() as folder:
            model, page = Path(folder) / "logbb", Path(folder) / "report.html"
            table = ROOT / "docs" / "notebooks" / "logbb.csv"
            molslice("fit", table, "--target", "logBB", "--out", model, "--quality", "fast", "--quiet")
            molslice("report", model, "--out", page, "--quiet")
            photograph(page.as_uri(), (1100, 1300), take_report)
    if "service" in chosen:
        with served() as address:
            photograph(address, (1000, 1000), take_service)


if __name__ == "__main__":
    main()
