"""Take the pictures of the page of `molslice serve` in the documentation, in headless Chromium.

    python scripts/page_pictures.py

needs the extras serve and dev, and Chromium. It serves models that ship with molslice.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

ASSETS = Path(__file__).resolve().parents[1] / "docs" / "assets"
MODELS = ("solubility", "logbb", "tox21")
GOAL = "1.4"  # log ug/mL
LIST = """\
CC(=O)Oc1ccccc1C(=O)O aspirin
CN1C=NC2=C1C(=O)N(C(=O)N2C)C caffeine
CC(=O)Nc1ccc(O)cc1 paracetamol
CC1=C(C=C(C=C1)NC(=O)C2=CC=C(C=C2)CN3CCN(CC3)C)NC4=NC=CC(=N4)C5=CN=CC=C5 imatinib
CN(C)CCCN1c2ccccc2CCc2ccccc21 imipramine
"""


def take(address: str) -> None:
    """Paste a list, rank it by a goal, and open a molecule; photograph both."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 1000}, color_scheme="light")
        page.goto(address)
        page.wait_for_selector("#model option", state="attached")
        page.locator("#smiles").fill(LIST)
        page.get_by_role("button", name="Predict").click()
        page.get_by_role("button", name="Open imipramine").wait_for()
        page.get_by_text("What next").click()
        page.get_by_label("Limit").fill(GOAL)
        page.get_by_role("button", name="Compute probabilities").click()
        page.get_by_role("columnheader", name="Probability").wait_for()
        page.wait_for_timeout(3_000)  # the structures
        page.locator("#table").screenshot(path=ASSETS / "serve_table.png")
        page.get_by_role("button", name="Open imipramine").click()
        page.get_by_text("SR-p53").wait_for()
        page.wait_for_timeout(3_000)
        page.locator("#endpoints").screenshot(path=ASSETS / "serve_models.png")
        browser.close()


def main() -> None:
    """Serve the models while the pictures are taken."""
    command = [sys.executable, "-m", "molslice", "serve", *MODELS, "--port", "0"]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        lines = iter(server.stderr.readline, "")
        address = next(found[0] for line in lines if (found := re.search(r"http://\S+", line)))
        take(address)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
