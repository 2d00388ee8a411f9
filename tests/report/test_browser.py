"""Reports in headless Chromium, on a screen and on a phone."""

import json
from pathlib import Path

import pytest

from molslice.cli import main
from tests.browser import NEEDS_BROWSER
from tests.inference.models import embedded_smiles

pytestmark = NEEDS_BROWSER
LONG = "measured logarithm of the solubility in water at room temperature"
SIZES = {"phone": {"width": 390, "height": 844}, "screen": {"width": 1280, "height": 900}}
# What lies outside of the window, except for wide tables, which scroll in their own box.
OUTSIDE = """() => {
    const width = document.documentElement.clientWidth;
    const found = [...document.querySelectorAll('main *')].filter(each =>
        each.getBoundingClientRect().right > width + 1 && !each.closest('.wide') && !each.closest('svg'));
    return [document.documentElement.scrollWidth - width, found.map(each => each.outerHTML.slice(0, 80))];
}"""
# The contrast of the text of each element with the background that it lies on.
CONTRAST = """() => {
    const numbers = color => color.match(/[\\d.]+/g).map(Number);
    const light = color => numbers(color).slice(0, 3).map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
    const behind = each => {
        for (; each; each = each.parentElement) {
            const color = getComputedStyle(each).backgroundColor;
            if (!/rgba\\(.*, 0\\)/.test(color)) return color;
        }
    };
    const texts = 'h1, h2, h3, p, a, th, td, figcaption, pre, summary, text';
    return Math.min(...[...document.querySelectorAll(texts)]
        .filter(each => each.textContent.trim()).map(each => {
            const style = getComputedStyle(each), ink = each.tagName == 'text' ? style.fill : style.color;
            const pair = [light(ink), light(behind(each))].sort((a, b) => b - a);
            return (pair[0] + 0.05) / (pair[1] + 0.05);
        }));
}"""
SMALLEST_TEXT = """() => Math.min(...[...document.querySelectorAll('.chart text')]
    .map(each => each.getBoundingClientRect().height).filter(Boolean))"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    """Reports of a fit, and of a run with two targets."""
    folder = tmp_path_factory.mktemp("pages")
    rows = [[text, len(text), row % 5] for row, text in enumerate(embedded_smiles(60))]
    lines = [f"smiles,{LONG},other", *(",".join(map(str, row)) for row in rows)]
    (folder / "mine.csv").write_text("\n".join(lines) + "\n")
    settings = {
        "data": {"name": "csv", "path": str(folder / "mine.csv"), "target_columns": [LONG, "other"]},
        "model": {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2},
        "training": {"max_steps": 4, "valid_every_steps": 2, "batch_size": 16},
        "trainer": {"accelerator": "cpu", "num_threads": 1},
    }
    (folder / "config.yaml").write_text(json.dumps(settings))
    run, fit = str(folder / "run"), str(folder / "fit")
    assert main(["train", "--config", str(folder / "config.yaml"), "--out", run, "--quiet"]) == 0
    words = [
        "fit",
        str(folder / "mine.csv"),
        "--target",
        LONG,
        "--no-encoder",
        "--members",
        "2",
        "--no-refit",
    ]
    assert main([*words, "--out", fit, "--quiet"]) == 0
    pages = {}
    for model in (run, fit):
        pages[Path(model).name] = page = Path(f"{model}.html")
        assert main(["report", model, "--out", str(page), "--quiet"]) == 0
    return pages


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("model", ["run", "fit"])
def test_a_report_fits_the_window_and_asks_for_nothing(model, size, scheme, reports, browser):
    context = browser.new_context(viewport=SIZES[size], color_scheme=scheme, offline=True)
    page, asked, said = context.new_page(), [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.goto(reports[model].as_uri())
    page.locator("summary").evaluate_all("all => all.forEach(each => each.click())")
    assert asked == [reports[model].as_uri()]
    assert said == []
    assert page.evaluate(OUTSIDE) == [0, []]
    assert page.evaluate(CONTRAST) >= 4.5  # as WCAG 2 asks for
    assert page.evaluate(SMALLEST_TEXT) >= 8  # pixels
    assert page.locator(".chart").count() >= 4
    assert page.locator(".molecule svg").count() >= 12
    assert (
        page.evaluate("getComputedStyle(document.querySelector('.wide')).backgroundImage").count("rgb") >= 6
    )
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"
    assert dark == (scheme == "dark")
    context.close()
