"""The page in headless Chromium; skipped where no browser is installed."""

import csv
import time

import pytest

from tests.browser import NEEDS_BROWSER
from tests.serve.running import Running, wait_until

pytestmark = NEEDS_BROWSER
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


@pytest.fixture(scope="module")
def server(model_folders):
    with Running(*model_folders.values()) as server:
        yield f"http://{server.host}:{server.port}"


@pytest.fixture
def open_page(browser, server):
    """Return a function that opens the page; at the end no script has failed and no other host was asked."""
    problems, hosts, contexts = [], set(), []

    def open_page(**options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: message.type == "error" and problems.append(message.text))
        page.on("request", lambda request: hosts.add("/".join(request.url.split("/")[:3])))
        page.goto(server)
        page.wait_for_selector("#model option", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    expected = "Failed to load resource"  # a molecule that cannot be drawn
    assert [problem for problem in problems if expected not in problem] == []
    assert hosts == {server}


def shown(page):
    """Wait for the prediction and return the texts of its row."""
    page.wait_for_selector("td.number")
    return page.locator("tbody tr").first.locator("th, td").all_inner_texts()


def test_typing_a_smiles_shows_structure_and_prediction(open_page):
    page = open_page()
    page.keyboard.press("Tab")  # the model
    page.keyboard.press("Tab")
    page.keyboard.type(ASPIRIN)
    page.keyboard.press("Enter")
    name, value = shown(page)
    assert (name, value.split()[1]) == ("gap", "eV")
    float(value.split()[0])
    page.wait_for_selector("#structure", state="visible")
    assert page.evaluate("document.getElementById('structure').naturalWidth") > 100
    assert page.get_attribute("#structure", "alt") == f"Structure of {ASPIRIN}"


def test_the_contributions_of_the_atoms_are_shown(open_page):
    page = open_page()
    page.get_by_role("button", name="caffeine").click()
    page.wait_for_selector("#contributions-picture", state="visible", timeout=30_000)
    assert page.evaluate("document.getElementById('contributions-picture').naturalWidth") > 100
    assert "To gap: the atoms add" in page.locator("#contributions-text").inner_text()
    assert page.get_attribute("#contributions-picture", "alt").startswith("Contributions by atom: C0 ")
    assert page.locator("#nearest").is_hidden()  # the model has no training molecules


ATTACK = "<img src=x onerror=alert(1)>"
CARD = {
    "name": "fitted",
    "kind": "regression",
    "targets": [{"name": "size", "unit": "m", "column": "size_m"}],
    "intervals": True,
    "domain": True,
    "explanations": False,
}
ROW = {
    "smiles": "CCO",
    "values": {"size_m": 1.23456},
    "uncertainty": {"lower": {"size_m": 1}, "upper": {"size_m": None}, "set": None, "calibrated": None},
    "domain": {
        "in_domain": False,
        "reason": ATTACK,
        "nearest_smiles": "CCN",
        "nearest_similarity": 0.5,
    },
    "error": None,
}


def test_intervals_and_the_nearest_molecule_are_shown(open_page):
    page = open_page()
    asked = []

    def answer(route):
        asked.append(route.request.post_data_json)
        route.fulfill(json={"model": "fitted", "targets": CARD["targets"], "predictions": [ROW]})

    page.route("**/models", lambda route: route.fulfill(json=[CARD]))
    page.route("**/predict", answer)
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.get_by_role("button", name="aspirin").click()
    assert shown(page) == ["size", "1.235 m", "1 to unlimited m"]
    assert asked == [{"smiles": ASPIRIN, "model": "fitted", "interval": 0.9, "domain": True}]
    page.wait_for_selector("#nearest-picture", state="visible")
    assert (
        page.locator("#nearest-text").inner_text() == f"Outside the domain: {ATTACK}. Similarity 0.5 to CCN"
    )
    assert page.locator("thead th").all_inner_texts() == ["Property", "Prediction", "90 % interval"]


def test_another_model_predicts_again(open_page):
    page = open_page()
    page.get_by_role("button", name="caffeine").click()
    shown(page)
    page.get_by_role("combobox", name="Model").select_option("second")
    wait_until(lambda: page.evaluate("document.querySelectorAll('tbody tr').length === 2"))
    assert page.locator("tbody th").all_inner_texts() == ["gap", "logp"]


def test_html_is_shown_as_text(open_page):
    page = open_page()
    attack = "<img src=x onerror=\"document.title='attacked'\">"
    page.get_by_role("textbox", name="SMILES").fill(attack)
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("#values .problem")
    page.set_input_files("#file", {"name": f"{attack}.csv", "mimeType": "text/csv", "buffer": b"x\n1\n"})
    page.wait_for_selector(".files .problem")
    assert page.locator(".files .name").inner_text() == f"{attack}.csv"
    assert page.locator("#values img, .files img").count() == 0
    assert page.title() == "molslice: predict molecules"


def test_drawing_a_molecule_writes_its_smiles(open_page):
    page = open_page()
    page.get_by_text("Draw the molecule").click()
    wait_until(lambda: page.evaluate("document.getElementById('editor').childElementCount > 0"))
    page.wait_for_timeout(300)
    box = page.locator("#editor").bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)  # draws a single bond
    wait_until(lambda: page.input_value("#smiles"), 5)
    assert page.input_value("#smiles") == "CC"
    page.get_by_role("button", name="Predict").click()
    assert shown(page)[0] == "gap"


def test_an_example_appears_in_the_editor_and_an_edit_changes_it(open_page):
    page = open_page()
    page.get_by_text("Draw the molecule").click()
    wait_until(lambda: page.evaluate("document.getElementById('editor').childElementCount > 0"))
    page.get_by_role("button", name="aspirin").click()
    shown(page)
    box = page.locator("#editor").bounding_box()
    for _ in range(20):  # the atoms are where the drawing puts them; a click on one adds a bond
        page.mouse.click(box["x"] + box["width"] / 2 + 20, box["y"] + box["height"] / 2 + 5)
        if page.input_value("#smiles") != ASPIRIN:
            break
        time.sleep(0.1)
    assert page.input_value("#smiles") not in ("", ASPIRIN)


DROP = """async ([name, text]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], name, {type: "text/csv"}));
    const zone = document.getElementById("drop");
    for (const kind of ["dragenter", "dragover", "drop"]) {
        zone.dispatchEvent(new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true}));
    }
}"""


def test_a_dropped_file_comes_back_filled(open_page, tmp_path):
    page = open_page(accept_downloads=True)
    rows = [f"{i},{'C' * (i % 9 + 1) if i % 7 else 'bad'}" for i in range(700)]
    page.evaluate(DROP, ["molecules.csv", "\n".join(["id,smiles", *rows])])
    link = page.get_by_role("link", name="Download the predictions of molecules.csv")
    link.wait_for(timeout=30_000)
    assert "700 rows, 100 without a prediction" in page.locator(".files .state").inner_text()
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "molecules_predicted.csv"
    download.value.save_as(tmp_path / "result.csv")
    with (tmp_path / "result.csv").open() as file:
        result = list(csv.DictReader(file))
    assert [f"{row['id']},{row['smiles']}" for row in result] == rows
    assert [bool(row["error"]) for row in result] == [i % 7 == 0 for i in range(700)]
    page.get_by_role("button", name="Delete molecules.csv").click()
    wait_until(lambda: page.evaluate("document.querySelectorAll('.files li').length === 0"))


def test_progress_is_shown_and_a_file_can_be_canceled(open_page):
    page = open_page()
    text = "smiles\n" + f"{ASPIRIN}\n" * 30_000
    page.set_input_files("#file", {"name": "long.csv", "mimeType": "text/csv", "buffer": text.encode()})
    wait_until(lambda: page.evaluate("document.querySelector('.files progress')?.value > 0"))
    assert "rows predicted" in page.locator(".files .state").inner_text()
    page.get_by_role("button", name="Cancel long.csv").click()
    assert page.locator(".files li").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_overflows_and_text_has_contrast(open_page, theme, width):
    page = open_page(color_scheme=theme, viewport={"width": width, "height": 800})
    page.get_by_role("textbox", name="SMILES").fill("C" * 200)
    page.get_by_role("button", name="Predict").click()
    shown(page)
    page.get_by_text("Draw the molecule").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    colors = page.evaluate(
        "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
    )
    assert contrast(*colors) > 7
    soft = page.evaluate(
        "[getComputedStyle(document.querySelector('.card')).backgroundColor,"
        " getComputedStyle(document.querySelector('.hint')).color]"
    )
    assert contrast(*soft) > 4.5


def contrast(one, other):
    """Return the contrast of two colors `rgb(r, g, b)` by the rule of WCAG 2."""

    def luminance(color):
        parts = [int(part) / 255 for part in color[4:-1].split(",")]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_every_field_and_picture_has_a_name(open_page):
    page = open_page()
    unnamed = page.evaluate(
        "[...document.querySelectorAll('input, select, button, a')].filter((each) =>"
        " !(each.labels?.length || each.textContent.trim() || each.getAttribute('aria-label')))"
        ".map((each) => each.outerHTML)"
    )
    assert unnamed == []
    assert page.evaluate("[...document.images].every((image) => image.hasAttribute('alt'))")
    assert page.evaluate("document.documentElement.lang") == "en"
