"""Make pictures for the documentation: an explanation, a report and the page, each light and dark.

    python scripts/make_gallery.py        # needs Chromium and the extras dev and serve; takes some minutes

Writes docs/assets/NAME.png and NAME-dark.png. The report is of a fast fit to docs/notebooks/logbb.csv.
"""

import argparse
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "docs" / "assets"
CHROMIUM = ("/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome")
CHROMOPHORE = "CN(C)c1ccc(C=C(C#N)C#N)cc1"
MOLECULES = ("CN1C=NC2=C1C(=O)N(C(=O)N2C)C", "CC(C)Cc1ccc(cc1)C(C)C(=O)O", "CN(C)CCOC(c1ccccc1)c1ccccc1")
SERVED = ("logbb", "solubility", "tox21", "gap-xtb")
COLORS = 128  # of a palette, which makes a picture several times smaller
SCHEMES: dict[Literal["light", "dark"], str] = {"light": "", "dark": "-dark"}


def molslice(*words: object) -> None:
    """Run a command of molslice."""
    subprocess.run([sys.executable, "-m", "molslice", *map(str, words)], check=True, cwd=ROOT)


def shrink(picture: Path) -> None:
    """Give a picture a palette."""
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLORS).save(picture, optimize=True)


def draw_explanations() -> None:
    """Draw an explanation on a white and on a dark ground."""
    for ground, suffix in (("white", ""), ("dark", "-dark")):
        out = ASSETS / f"explanation{suffix}.png"
        molslice("explain", "gap-xtb", "--smiles", CHROMOPHORE, "--ground", ground, "--out", out, "--quiet")


@contextmanager
def served() -> Iterator[str]:
    """Serve the shipped models on a free port, and return the address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "molslice", "serve", *SERVED, "--port", str(port), "--quiet"]
    process = subprocess.Popen(command, cwd=ROOT)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(240):
            try:
                with urllib.request.urlopen(f"{address}/health", timeout=4):
                    break
            except OSError:
                time.sleep(0.5)
        yield address
    finally:
        process.terminate()
        process.wait()


def photograph(name: str, address: str, prepare: Callable[[Page], None], height: int) -> None:
    """Write pictures of a page, light and dark."""
    executable = next(path for path in CHROMIUM if Path(path).exists())
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for scheme, suffix in SCHEMES.items():
            page = browser.new_page(viewport={"width": 1100, "height": height}, color_scheme=scheme)
            page.goto(address)
            prepare(page)
            picture = ASSETS / f"{name}{suffix}.png"
            page.screenshot(path=picture)
            shrink(picture)
            page.close()
        browser.close()


def ask_for_molecules(page: Page) -> None:
    """Paste molecules into the page, and wait for the table."""
    page.get_by_role("textbox").first.fill("\n".join(MOLECULES))
    page.keyboard.press("Control+Enter")
    page.wait_for_timeout(15_000)


def main() -> None:
    """Make the pictures that are named, or all."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ("explanation", "report", "page")
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
            photograph("report", page.as_uri(), lambda _: None, 1300)
    if "page" in chosen:
        with served() as address:
            photograph("page", address, ask_for_molecules, 1000)


if __name__ == "__main__":
    main()
