"""The page in headless Chromium."""

import csv
import gzip
import io

import pytest

from tests.browser import NEEDS_BROWSER
from tests.serve.running import wait_until

pytestmark = NEEDS_BROWSER
ASPIRIN = "CC(=O)Oc1ccccc1C(=O)O"


def shown(page):
    """Wait for the prediction and return the texts of its row."""
    page.wait_for_selector("td.number")
    return page.locator("#values tbody tr").first.locator("th, td").all_inner_texts()


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


def test_the_contributions_of_the_atoms_are_shown_when_they_are_asked_for(open_page):
    page = open_page()
    page.get_by_role("button", name="caffeine").click()
    shown(page)
    assert page.locator("#contributions-text").inner_text() == "Computed when you ask for them."
    page.get_by_role("button", name="Compute").click()
    page.wait_for_selector("#contributions-picture", state="visible")
    assert page.evaluate("document.getElementById('contributions-picture').naturalWidth") > 100
    assert " from the atoms, gives " in page.locator("#contributions-text").inner_text()
    assert page.get_attribute("#contributions-picture", "alt").startswith("Contributions by atom: C0 ")
    assert page.locator("#nearest").is_hidden()  # the model has no training molecules


ATTACK = "<img src=x onerror=alert(1)>"
CARD = {
    "name": "fitted",
    "kind": "regression",
    "targets": [{"name": "size", "target": "size", "unit": "m", "kind": "regression", "column": "size_m"}],
    "intervals": True,
    "domain": True,
    "explanations": False,
}
ROW = {
    "smiles": "CCO",
    "values": {"size_m": 1.23456},
    "uncertainty": {
        "lower": {"size_m": 1},
        "upper": {"size_m": None},
        "set": None,
        "calibrated": None,
        "spread": {"size_m": 0.1},
    },
    "domain": {
        "place": "outside",
        "reason": ATTACK,
        "neighbors": [
            {"smiles": "CCN", "similarity": 0.5, "measured": {"size_m": 2.5}},
            {"smiles": ATTACK, "similarity": 0.25, "measured": {"size_m": None}},
        ],
    },
    "error": None,
}


def test_a_molecule_of_the_training_table_is_called_so(open_page):
    page = open_page()
    domain = {"place": "like the training molecules", "reason": "", "is_training": True, "neighbors": []}
    answer = {"model": "fitted", "targets": CARD["targets"], "failed": 0}
    answer |= {"predictions": [{**ROW, "domain": domain}]}
    page.route("**/models", lambda route: route.fulfill(json=[CARD]))
    page.route("**/predict", lambda route: route.fulfill(json=answer))
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.get_by_role("button", name="aspirin").click()
    shown(page)
    assert page.locator("#nearest-text").inner_text() == "The molecule is in the training table."


def test_intervals_and_the_nearest_molecule_are_shown(open_page):
    page = open_page()
    asked = []

    def answer(route):
        asked.append(route.request.post_data_json)
        route.fulfill(json={"model": "fitted", "targets": CARD["targets"], "failed": 0, "predictions": [ROW]})

    page.route("**/models", lambda route: route.fulfill(json=[CARD]))
    page.route("**/predict", answer)
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.get_by_role("button", name="aspirin").click()
    assert shown(page) == ["size", "1.23 m", "1.00 to unlimited m"]
    assert asked == [
        {"smiles": ASPIRIN, "model": "fitted", "interval": 0.9, "domain": True, "conditions": None}
    ]
    assert page.locator("#nearest-text").inner_text() == f"The molecule is outside: {ATTACK}."
    assert [
        [line for line in item.inner_text().split("\n") if line]
        for item in page.locator("#neighbors li").all()
    ] == [
        ["Similarity 0.50", "size: 2.5 m in the training data", "CCN"],
        ["Similarity 0.25", "size: no value", ATTACK],
    ]
    wait_until(lambda: page.evaluate("document.querySelector('#neighbors img').naturalWidth > 100"))
    assert page.get_attribute("#neighbors img >> nth=0", "alt") == "Structure of CCN"
    assert page.locator("#missing").inner_text() == "Not available for fitted: contributions of the atoms."
    assert page.locator("thead th").all_inner_texts() == [
        "Property",
        "Prediction",
        "90% interval",
    ]


def test_contributions_that_take_long_are_computed_on_request(open_page):
    page = open_page()
    asked = []
    card = {**CARD, "domain": False, "conditions": [], "explanations": True, "method": "shapley"}
    row = {**ROW, "domain": None}
    headline = {"label": "size", "unit": "m", "value": 1.23456, "interval": None}
    explanation = {"target": "size", "unit": "m", "baseline": 1.0, "sum": 0.23456, "prediction": 1.23456}
    explanation |= {
        "note": None,
        "headline": headline,
        "atoms": [],
        "svg": "<svg xmlns='http://www.w3.org/2000/svg'/>",
    }

    def answer(route):
        asked.append(route.request.post_data_json)
        route.fulfill(json=explanation)

    page.route("**/models", lambda route: route.fulfill(json=[card]))
    page.route(
        "**/predict",
        lambda route: route.fulfill(
            json={"model": "fitted", "targets": card["targets"], "failed": 0, "predictions": [row]}
        ),
    )
    page.route("**/explain", answer)
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.get_by_role("button", name="aspirin").click()
    assert shown(page)[:2] == ["size", "1.23 m"]
    text = page.locator("#contributions-text")
    assert text.inner_text() == "Computed when you ask for them, in some seconds."
    assert asked == []
    page.get_by_role("button", name="Compute").click()
    wait_until(lambda: text.inner_text().endswith("plus 0.2346 m from the atoms, gives 1.235 m."))
    assert asked == [
        {"smiles": ASPIRIN, "model": "fitted", "conditions": None, "target": "size", "theme": "light"}
    ]
    explanation |= {
        "unit": "log-odds",
        "headline": {**headline, "label": "size, probability of class 1", "unit": ""},
    }
    page.get_by_role("button", name="Compute").click()
    wait_until(
        lambda: text.inner_text().endswith("gives 1.235 log-odds (size, probability of class 1: 1.235).")
    )
    ends = {"level": 0.9, "lower": 0.2, "upper": 2.3}
    explanation |= {"unit": "m", "headline": {**headline, "interval": ends}}  # one rounding on the whole page
    page.get_by_role("button", name="Compute").click()
    wait_until(lambda: text.inner_text().startswith("size: 1.0 m for"))
    assert text.inner_text().endswith("plus 0.2 m from the atoms, gives 1.2 m.")


def test_another_model_predicts_again(open_page):
    page = open_page()
    page.get_by_role("button", name="caffeine").click()
    shown(page)
    page.get_by_role("combobox", name="Model").select_option("second")
    wait_until(lambda: page.evaluate("document.querySelectorAll('#values tbody tr').length === 2"))
    assert page.locator("#values tbody th").all_inner_texts() == ["gap", "logp"]


def test_html_is_shown_as_text(open_page):
    page = open_page()
    attack = "<img src=x onerror=\"document.title='attacked'\">"
    page.get_by_role("textbox", name="SMILES").fill(attack)
    page.get_by_role("button", name="Predict").click()
    page.wait_for_selector("#smiles-problem", state="visible")
    page.set_input_files("#file", {"name": f"{attack}.csv", "mimeType": "text/csv", "buffer": b"x\n1\n"})
    page.wait_for_selector(".files .problem")
    assert page.locator(".files .name").inner_text() == f"{attack}.csv"
    assert page.locator("#molecule img, .files img").count() == 0
    assert page.title() == "molslice: predict molecules"


def open_editor(page):
    """Open the editor, and return its middle when it is drawn."""
    page.get_by_text("Draw the molecule").click()
    wait_until(lambda: page.evaluate("document.querySelector('#editor').childElementCount > 0"))
    page.locator("#editor").scroll_into_view_if_needed()
    box = page.locator("#editor").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_drawing_a_molecule_writes_its_smiles(open_page):
    page = open_page()
    middle = open_editor(page)

    def drawn():
        page.mouse.click(*middle)  # draws a single bond, as soon as the editor listens
        return page.input_value("#smiles")

    wait_until(drawn)
    assert set(page.input_value("#smiles")) <= set("C()")
    page.get_by_role("button", name="Predict").click()
    assert shown(page)[0] == "gap"


def test_an_example_appears_in_the_editor_and_an_edit_changes_it(open_page):
    page = open_page()
    x, y = open_editor(page)
    page.get_by_role("button", name="aspirin").click()
    shown(page)

    def changed():
        page.mouse.click(x + 20, y + 5)  # a click on an atom adds a bond
        return page.input_value("#smiles") not in ("", ASPIRIN)

    wait_until(changed)
    added = page.input_value("#smiles")
    assert len(added) > len(ASPIRIN) - 4  # the example with another atom


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
    link.wait_for()
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


def test_an_unreadable_smiles_is_marked_at_its_field(open_page):
    page = open_page()
    field = page.get_by_role("textbox", name="SMILES")
    field.fill("C(")
    field.press("Enter")
    page.wait_for_selector("#smiles-problem", state="visible")
    assert (
        page.locator("#smiles-problem").inner_text()
        == "not valid SMILES: parenthesis at position 2 is not closed"
    )
    assert field.get_attribute("aria-invalid") == "true"
    assert field.get_attribute("aria-describedby") == "smiles-problem smiles-hint"
    assert page.locator("#result").is_hidden()
    field.press_sequentially(")C")
    assert page.locator("#smiles-problem").is_hidden()
    assert field.get_attribute("aria-invalid") is None


def test_the_property_of_the_contributions_can_be_chosen(open_page):
    page = open_page()
    text, compute = page.locator("#contributions-text"), page.get_by_role("button", name="Compute")
    page.get_by_role("combobox", name="Model").select_option("second")
    page.get_by_role("button", name="caffeine").click()
    compute.click()
    wait_until(lambda: text.inner_text().startswith("gap: "))
    page.locator("#target").select_option("logp")  # computed, as before
    wait_until(lambda: text.inner_text().startswith("logp: "))
    page.get_by_role("button", name="aspirin").click()  # the choice stays
    wait_until(lambda: text.inner_text() == "Computed when you ask for them.")
    assert page.locator("#contributions-picture").is_hidden()
    compute.click()
    wait_until(lambda: text.inner_text().startswith("logp: "))
    page.get_by_role("combobox", name="Model").select_option("first")
    wait_until(lambda: text.inner_text() == "Computed when you ask for them.")
    compute.click()
    wait_until(lambda: text.inner_text().startswith("gap: "))
    assert page.locator("#target-field").is_hidden()


def test_classes_have_probabilities_and_sets(open_page):
    page = open_page()
    target = {"name": "toxic", "target": "toxic", "unit": "", "kind": "classification", "column": "toxic"}
    card = {**CARD, "kind": "classification", "targets": [target]}
    both = {
        "lower": None,
        "upper": None,
        "spread": None,
        "calibrated": {"toxic": 0.4},
        "set": {"toxic": [0, 1]},
    }
    row = {**ROW, "values": {"toxic": 0.5}, "uncertainty": both, "domain": None}
    answer = {"model": "fitted", "targets": card["targets"], "failed": 0, "predictions": [row]}
    page.route("**/models", lambda route: route.fulfill(json=[card]))
    page.route("**/predict", lambda route: route.fulfill(json=answer))
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.get_by_role("button", name="aspirin").click()
    assert shown(page) == ["toxic", "0.500", "0.400", "0 or 1"]
    titles = ["Property", "Probability of class 1", "Calibrated probability", "90% set"]
    assert page.locator("thead th").all_inner_texts() == titles


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.xlsx", b"PK\3\4rest", "it is a spreadsheet; save it as CSV"),
        ("a.csv", b"PK\3\4rest", "it is not text"),
        ("a.exe", b"x", "the name must end in"),
        ("a.csv", b"a,b\n1,2\n", "SMILES"),
        ("a.csv.gz", b"\x1f\x8b\x08rest", "truncated or damaged"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(open_page, name, content, reason):
    page = open_page()
    page.set_input_files("#file", {"name": name, "mimeType": "text/csv", "buffer": content})
    page.wait_for_selector(".files .problem")
    assert reason in page.locator(".files .problem").inner_text()
    page.get_by_role("button", name=f"Remove {name}").click()
    assert page.locator(".files li").count() == 0


def test_a_packed_file_comes_back_unpacked(open_page, tmp_path):
    page = open_page(accept_downloads=True)
    content = gzip.compress(b"smiles\nCCO\nC(\n", mtime=0)
    page.set_input_files("#file", {"name": "a.csv.gz", "mimeType": "application/gzip", "buffer": content})
    link = page.get_by_role("link", name="Download the predictions of a.csv.gz")
    link.wait_for()
    assert page.locator(".files .reasons").all_inner_texts() == [
        "1: not valid SMILES: parenthesis at position … is not closed"
    ]
    with page.expect_download() as download:
        link.click()
    assert download.value.suggested_filename == "a_predicted.csv"
    download.value.save_as(tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [row["smiles"] for row in rows] == ["CCO", "C("]


def test_a_file_beyond_the_limit_is_not_sent(open_page):
    page = open_page()
    sent = []
    page.route("**/limits", lambda route: route.fulfill(json={"file_bytes": 1_000_000}))
    page.on("request", lambda request: request.method == "POST" and sent.append(request.url))
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.set_input_files("#file", {"name": "a.csv", "mimeType": "text/csv", "buffer": b"C\n" * 600_000})
    page.wait_for_selector(".files .problem")
    assert "more than 1 MB. Use molslice predict" in page.locator(".files .problem").inner_text()
    assert sent == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 390, 1280])
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
