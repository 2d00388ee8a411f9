"""Tables of many molecules on the page, in headless Chromium."""

import csv

import openpyxl
import pytest
from rdkit import Chem

from molslice.cli import main
from molslice.inference.load import load_model
from tests.browser import NEEDS_BROWSER
from tests.serve.running import Running, wait_until

pytestmark = NEEDS_BROWSER
LIST = "smiles\tname\nCCO\tethanol\nC(\tbroken\nc1ccccc1\tbenzene\nCCCC"
ATTACK = "<img src=x onerror=\"document.title='attacked'\">"


def listed(page):
    """Return the names of the rows, in their order."""
    return page.locator("#rows tbody th").all_inner_texts()


def cells(page, row):
    return page.locator("#rows tbody tr").nth(row).locator("td").all_inner_texts()


def paste(page, text, rows):
    """Paste a list as a person does, and wait for its predictions."""
    field = page.get_by_role("textbox", name="SMILES", exact=True)
    field.focus()
    page.evaluate(
        """text => {
            const data = new DataTransfer();
            data.setData("text/plain", text);
            const event = new ClipboardEvent("paste", {clipboardData: data, bubbles: true, cancelable: true});
            document.activeElement.dispatchEvent(event);
            document.execCommand("insertText", false, text);
        }""",
        text,
    )
    page.get_by_role("button", name="Predict").click()
    wait_until(lambda: page.locator("#rows tbody tr").count() == rows)
    wait_until(lambda: page.locator("#table-progress").is_hidden())


def test_a_pasted_list_is_a_table_with_names_structures_and_reasons(open_page):
    page = open_page()
    paste(page, LIST, 4)
    assert page.locator("#table-title").inner_text() == "List: first"
    assert page.locator("#table-state").inner_text() == "4 molecules, 1 without a prediction."
    assert listed(page) == ["ethanol", "broken", "benzene", "CCCC"]
    assert cells(page, 1) == ["not valid SMILES: parenthesis at position 2 is not closed: C("]
    float(cells(page, 0)[0])
    assert page.locator("#rows thead th").first.inner_text().startswith("Molecule")
    assert page.locator("#rows thead th").nth(1).inner_text().split("\n") == ["gap_eV"]
    wait_until(lambda: page.evaluate("document.querySelector('#rows img').naturalWidth > 100"))
    assert page.locator("#result").is_hidden()


def test_one_molecule_may_have_a_name(open_page):
    page = open_page()
    field = page.get_by_role("textbox", name="SMILES", exact=True)
    field.fill("CCO grain alcohol")
    field.press("Enter")
    wait_until(lambda: page.locator("#result-title").inner_text() == "Prediction: grain alcohol")
    wait_until(lambda: page.locator("#values tbody tr").count() == 1)


def test_long_names_are_whole(open_page):
    page = open_page()
    paste(page, "CCO CHEMBL1223212345678\nCCN CHEMBL1223212345679", 2)
    names = page.locator("#rows .name")
    assert names.all_inner_texts() == ["CHEMBL1223212345678", "CHEMBL1223212345679"]
    widths = names.evaluate_all("names => names.map(one => [one.scrollWidth, one.clientWidth])")
    assert all(needed <= given for needed, given in widths)


def test_enter_sends_one_molecule_and_divides_the_lines_of_a_list(open_page):
    page = open_page()
    field = page.get_by_role("textbox", name="SMILES", exact=True)
    field.press_sequentially("CCO")
    field.press("Shift+Enter")
    field.press_sequentially("CCN amine")
    field.press("Enter")
    field.press_sequentially("CCC")
    assert field.input_value() == "CCO\nCCN amine\nCCC"
    field.press("Control+Enter")
    wait_until(lambda: page.locator("#rows tbody tr").count() == 3)
    assert listed(page) == ["CCO", "amine", "CCC"]


def explain_caffeine(page, shown):
    """Open the page of the real models, and compute contributions, until an element is shown."""
    page.unroute("**/models")
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.get_by_role("button", name="caffeine").click()
    page.get_by_role("button", name="Compute").click()
    page.wait_for_selector(shown, state="visible")


def values_of(page):
    return [float(cell) for cell in page.locator("#rows tbody td.number").all_inner_texts()]


def test_a_heading_sorts_and_failed_rows_stay_at_the_end(open_page):
    page = open_page()
    paste(page, LIST, 4)
    before = values_of(page)
    heading = page.locator("#rows thead th").nth(1)
    button = page.get_by_role("button", name="gap_eV")
    button.focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert values_of(page) == sorted(before)
    assert listed(page)[-1] == "broken"
    button.click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert values_of(page) == sorted(before, reverse=True)
    assert listed(page)[-1] == "broken"
    page.get_by_role("button", name="Molecule").click()
    assert heading.get_attribute("aria-sort") == "none"
    assert listed(page) == ["benzene", "broken", "CCCC", "ethanol"]
    page.get_by_role("button", name="Molecule").click()
    page.get_by_role("button", name="Molecule").click()  # the order of the list
    assert listed(page) == ["ethanol", "broken", "benzene", "CCCC"]


def test_filters_keep_the_rows_that_match(open_page):
    page = open_page()
    paste(page, LIST, 4)
    values = sorted(values_of(page))
    page.get_by_label("Name or SMILES").fill("ENZ")
    assert listed(page) == ["benzene"]
    assert page.locator("#table-state").inner_text().startswith("1 of 4 molecules match")
    page.get_by_label("Name or SMILES").fill("")
    page.get_by_label("At least").fill(str(values[1]))
    assert min(values_of(page)) == values[1]
    assert "broken" not in listed(page)
    page.get_by_label("At least").fill("many")
    assert page.get_by_label("At least").get_attribute("aria-invalid") == "true"
    assert len(listed(page)) == 4


def test_a_row_opens_to_the_molecule_and_back(open_page):
    page = open_page()
    paste(page, LIST, 4)
    page.get_by_role("button", name="Open benzene").click()
    page.wait_for_selector("#values td.number")
    assert page.locator("#result-title").inner_text() == "Prediction: benzene"
    assert page.evaluate("document.activeElement.id") == "result-title"
    assert page.locator("#values caption").inner_text() == "first: c1ccccc1"
    assert page.locator("#table").is_hidden()
    page.get_by_role("button", name="Back to the table").click()
    assert page.locator("#result").is_hidden()
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Open benzene"


def test_a_table_is_there_again_after_a_molecule_that_has_no_prediction(open_page):
    page = open_page()
    paste(page, LIST, 4)
    page.route("**/predict", lambda route: route.fulfill(status=503, json={"detail": "not now"}))
    page.get_by_role("button", name="Open benzene").click()
    wait_until(lambda: page.locator("#smiles-problem").inner_text() == "not now")
    assert len(listed(page)) == 4
    assert page.locator("#table").is_visible()
    page.unroute("**/predict")
    page.get_by_role("button", name="Open benzene").click()
    page.wait_for_selector("#values td.number")
    assert page.locator("#table").is_hidden()


def test_another_model_predicts_the_list_again(open_page):
    page = open_page()
    paste(page, LIST, 4)
    page.get_by_role("combobox", name="Model").select_option("second")
    wait_until(lambda: page.locator("#table-title").inner_text() == "List: second")
    wait_until(lambda: len(listed(page)) == 4)
    assert len(cells(page, 0)) == 2


def saved(page, button, path):
    with page.expect_download() as download:
        page.get_by_role("button", name=button, exact=True).click()
    download.value.save_as(path)
    return download.value.suggested_filename


def test_the_rows_that_are_shown_are_saved_in_their_order(open_page, tmp_path):
    page = open_page(accept_downloads=True)
    paste(page, 'CCO =1+1\nC( a "broken", one\nc1ccccc1 benzene\nCCCC', 4)
    assert saved(page, "CSV", tmp_path / "a.csv") == "molecules_predicted.csv"
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["name"] for row in rows] == ["=1+1", 'a "broken", one', "benzene", ""]
    assert list(rows[0]) == ["smiles", "name", "gap_eV", "error"]
    page.get_by_role("button", name="gap_eV").click()
    page.get_by_label("At least").fill("-1e9")  # not the row that failed
    wanted = listed(page)
    assert len(wanted) == 3
    assert saved(page, "SDF", tmp_path / "a.sdf") == "molecules_predicted.sdf"
    records = list(Chem.SDMolSupplier(str(tmp_path / "a.sdf")))
    assert [mol.GetProp("_Name") or Chem.MolToSmiles(mol) for mol in records] == wanted
    assert saved(page, "Excel", tmp_path / "a.xlsx") == "molecules_predicted.xlsx"
    sheet = openpyxl.load_workbook(tmp_path / "a.xlsx").worksheets[0]
    found = [[cell.value for cell in row] for row in sheet.iter_rows(min_row=2)]
    assert [name or smiles for smiles, name, *_ in found] == wanted
    assert {type(row[2]) for row in found} == {float}
    assert {cell.data_type for row in sheet.iter_rows(min_row=2, max_col=2) for cell in row} <= {"s", "n"}
    assert page.locator("#download-state").inner_text() == ""


def test_excel_is_offered_where_it_can_be_written(open_page):
    page = open_page()
    limits = page.evaluate("fetch('/limits').then((answer) => answer.json())")
    page.route("**/limits", lambda route: route.fulfill(json={**limits, "formats": ["csv", "sdf"]}))
    page.reload()
    wait_until(lambda: page.locator("#downloads button").count() == 2)
    assert page.locator("#downloads button").all_text_contents() == ["CSV", "SDF"]


DROP = """async ([name, text]) => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([text], name, {type: "text/csv"}));
    for (const kind of ["dragenter", "dragover", "drop"]) {
        const event = new DragEvent(kind, {dataTransfer: transfer, bubbles: true, cancelable: true});
        document.querySelector("h1").dispatchEvent(event);
    }
}"""


def test_a_file_dropped_anywhere_is_shown_as_a_table_with_names(open_page, tmp_path):
    page = open_page(accept_downloads=True)
    quoted = ATTACK.replace('"', '""')
    rows = [f'"{quoted}",CCO,1', 'two,C(,"=2+2"', "three,c1ccccc1,3"]
    page.evaluate(DROP, ["mine.csv", "\n".join(["Name,smiles,id", *rows])])
    wait_until(lambda: page.locator("#rows tbody tr").count() == 3)
    assert page.locator("#table-title").inner_text() == "mine.csv: first"
    assert page.locator("#rows .name").first.inner_text() == ATTACK  # as text
    assert page.title() == "molslice: predict molecules"
    assert page.locator("#rows img").count() == 2
    page.get_by_role("button", name="Molecule").click()
    order = listed(page)
    assert saved(page, "CSV", tmp_path / "a.csv") == "mine_predicted.csv"
    found = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert [row["Name"] for row in found] == order
    assert {row["id"] for row in found} == {"1", "=2+2", "3"}  # all columns of the file
    page.get_by_role("button", name="Open three").click()
    page.wait_for_selector("#values td.number")
    page.get_by_role("button", name="Show the rows of mine.csv").click()
    wait_until(lambda: page.locator("#table").is_visible())
    page.get_by_role("button", name="Delete mine.csv").click()
    wait_until(lambda: page.locator("#files li").count() == 0)
    wait_until(
        lambda: page.evaluate("fetch('/health').then((answer) => answer.ok)")  # after the deletion
    )
    page.get_by_role("button", name="SDF").click()
    wait_until(lambda: page.locator("#download-state").inner_text() == "there is no such file")


def test_a_long_list_is_sent_as_a_file(open_page):
    page = open_page()
    limits = page.evaluate("fetch('/limits').then((answer) => answer.json())")
    page.route("**/limits", lambda route: route.fulfill(json={**limits, "molecules": 2}))
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    paste(page, "CCO ethanol\nC( broken\nc1ccccc1 benzene", 3)
    assert page.locator("#table-title").inner_text() == "list.smi: first"
    assert listed(page) == ["ethanol", "broken", "benzene"]


CLASSES = [
    {
        "name": f"grade: {word}",
        "target": "grade",
        "unit": "",
        "kind": "multiclass",
        "column": f"grade_{word}",
    }
    for word in ("low", "B: medium", "high")
]
SIZE = {"name": "size", "target": "size", "unit": "m", "kind": "regression", "column": "size_m"}
NONE = {"lower": None, "upper": None, "spread": None, "calibrated": None, "set": None}


def fake_rows(count):
    """Return rows of a file whose values, widths of intervals and similarities have different orders."""
    rows = []
    for place in range(count):
        value, similarity = (place * 7) % count, ((place * 3) % count) / count
        width = None if place == 0 else (place * 11) % count + 1
        grades = {target["column"]: 0.1 for target in CLASSES}
        rows.append(
            {
                "smiles": "C" * (place % 30 + 1),
                "name": f"m{place}",
                "conditions": None,
                "values": {"size_m": value, **grades},
                "uncertainty": {
                    **NONE,
                    "lower": {"size_m": value - 1},
                    "upper": {"size_m": None if width is None else value + width},
                    "set": dict.fromkeys(grades, ["low", "high"]),
                },
                "domain": {
                    "place": "outside" if place % 2 else "like the training molecules",
                    "reason": "" if place % 2 == 0 else ATTACK,
                    "is_training": place == 58,
                    "neighbors": [{"smiles": "C", "similarity": similarity, "measured": None}],
                },
                "error": None,
            }
        )
    return rows


def show_fake(page, count, total):
    card = {
        "name": "fitted",
        "kind": "mixed",
        "targets": [SIZE, *CLASSES],
        "intervals": True,
        "domain": True,
        "explanations": False,
        "method": None,
        "measured_widths": {"size_m": 50.0},
        "conditions": [],
    }
    job = {"id": "x", "name": "big.csv", "model": "fitted", "state": "done", "rows": total, "share": 1}
    job |= {"failed": 0, "refusals": [], "columns": [], "message": ""}
    answer = {"model": "fitted", "targets": card["targets"], "rows": total, "predictions": fake_rows(count)}
    page.route("**/models", lambda route: route.fulfill(json=[card]))
    page.route("**/files?*", lambda route: route.fulfill(json=job))
    page.route("**/files/x/rows", lambda route: route.fulfill(json=answer))
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    page.set_input_files("#file", {"name": "big.csv", "mimeType": "text/csv", "buffer": b"smiles\nC\n"})
    wait_until(lambda: page.locator("#rows tbody tr").count() == 50)


def test_ten_thousand_rows_are_shown_page_by_page(open_page):
    page = open_page()
    show_fake(page, 10_000, 12_000)
    state = page.locator("#table-state")
    assert state.inner_text() == "10,000 molecules, the first of 12,000 rows; the file has all."
    assert page.locator("#page-text").inner_text() == "1 to 50 of 10,000"
    assert page.locator("#rows tbody tr").count() == 50
    assert page.get_by_role("button", name="Previous").is_disabled()
    page.get_by_role("button", name="Next").click()
    assert listed(page)[0] == "m50"
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.get_by_role("button", name="size_m", exact=True).click()
    page.get_by_role("button", name="size_m", exact=True).click()
    assert values_of(page)[::4][:3] == [9999.0, 9998.0, 9997.0]
    page.get_by_label("At most").fill("20")
    assert state.inner_text().startswith("21 of 10,000 molecules match")
    assert page.locator("#pages").is_hidden()
    assert not [url for url in asked if "draw" not in url]  # computed in the page


def test_intervals_sort_by_their_width_and_the_domain_by_similarity(open_page):
    page = open_page()
    show_fake(page, 90, 90)
    headings = [text.split("\n") for text in page.locator("#rows thead th").all_inner_texts()]
    assert [" ".join(lines) for lines in headings] == [
        *("Molecule", "size_m", "size_lower, _upper 90% interval, by width"),
        *("grade_low probability", "grade_B: medium probability", "grade_high probability"),
        *("grade_set 90% set", "domain by nearest_similarity"),
    ]
    assert cells(page, 0) == [
        "0.0",
        "-1.0 to unlimited\n\nwide",
        "0.100",
        "0.100",
        "0.100",
        "low or high",
        "like the training molecules, 0.00",
    ]
    assert cells(page, 1)[-1].split("\n") == ["outside, 0.03", "", ATTACK]
    page.get_by_role("button", name="90% interval of size, by width").click()
    assert listed(page)[:2] == ["m41", "m82"]  # 11 * 41 and 11 * 82 leave 1 and 2
    page.get_by_role("button", name="90% interval of size, by width").click()
    assert listed(page)[:2] == ["m0", "m49"]  # without an end, and 11 * 49 leaves 89
    page.get_by_role("button", name="domain by nearest_similarity").click()
    page.get_by_role("button", name="domain by nearest_similarity").click()
    assert cells(page, 0)[-1].split("\n")[0] == "outside, 0.97"
    page.get_by_label("Domain").select_option("like the training molecules")
    assert page.locator("#table-state").inner_text().startswith("45 of 90 molecules match")


def endpoint_rows(page):
    rows = page.locator("#endpoints tbody tr").all()
    return [row.locator("th, td").all_inner_texts() for row in rows]


def test_all_models_are_shown_for_one_molecule(open_page):
    page = open_page()
    page.get_by_role("button", name="caffeine").click()
    page.wait_for_selector("#values td.number")
    wait_until(lambda: page.locator("#endpoints td.number").count() == 3)
    rows = endpoint_rows(page)
    assert page.locator("#endpoints tbody th").all_inner_texts() == ["first", "gap", "second", "gap", "logp"]
    assert rows[0][2] == page.locator("#values td.number").inner_text()
    second = rows[1][2]
    page.set_viewport_size({"width": 390, "height": 844})  # a prediction is seen without scrolling
    for cell in page.locator("#endpoints td.number").all():
        box = cell.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390
        assert cell.evaluate("cell => getComputedStyle(cell, '::before').content") == '"Prediction"'
    assert page.locator("#endpoints .scroll").evaluate("box => box.scrollWidth <= box.clientWidth")
    page.get_by_role("button", name="second").click()
    wait_until(lambda: page.locator("#values caption").inner_text().startswith("second: "))
    assert page.locator("#values td.number").first.inner_text() == second
    assert page.get_by_role("combobox", name="Model").input_value() == "second"


def open_with_conditions(open_page):
    """Open the page with a second model that takes a condition, and a third one without a predictor."""
    page = open_page()
    models = page.evaluate("fetch('/models').then((answer) => answer.json())")
    cards = [models[0], {**models[1], "conditions": ["temperature"]}, {**models[1], "name": ATTACK}]
    page.route("**/models", lambda route: route.fulfill(json=cards))
    page.reload()
    page.wait_for_selector("#model option", state="attached")
    return page


def test_a_model_that_cannot_predict_says_why_beside_the_others(open_page):
    page = open_with_conditions(open_page)
    page.get_by_role("button", name="caffeine").click()
    wait_until(lambda: "no model" in page.locator("#endpoints").inner_text())
    rows = endpoint_rows(page)
    assert rows[1] == ["second", "needs temperature; choose the model to give it"]
    assert rows[2][0] == ATTACK
    assert page.title() == "molslice: predict molecules"


def test_the_other_models_are_shown_beside_a_list(open_page, model_folders, tmp_path):
    page = open_page(accept_downloads=True)
    paste(page, LIST, 4)
    page.get_by_role("button", name="Add second").click()
    wait_until(lambda: page.locator("#beside").is_hidden())
    headings = [text.split("\n") for text in page.locator("#rows thead th").all_inner_texts()]
    assert headings[1:] == [["gap_eV", "first"], ["gap_eV", "second"], ["logp", "second"]]
    wanted = load_model(model_folders["second"]).predict(["CCO", "c1ccccc1", "CCCC"])
    for row, (gap, logp) in zip((0, 2, 3), wanted, strict=True):
        assert list(map(float, cells(page, row)))[1:] == [
            pytest.approx(gap, rel=1e-3),
            pytest.approx(logp, rel=1e-3),
        ]
    assert cells(page, 1) == ["not valid SMILES: parenthesis at position 2 is not closed: C("]
    page.get_by_role("button", name="logp second").click()
    shown = [float(cells(page, row)[2]) for row in range(3)]
    assert shown == sorted(shown)
    saved(page, "CSV", tmp_path / "a.csv")
    with (tmp_path / "a.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] or row["smiles"] for row in rows] == listed(page)
    assert [float(row["second: logp"]) for row in rows if row["second: logp"]] == pytest.approx(
        sorted(float(logp) for _, logp in wanted)
    )
    page.get_by_role("textbox", name="SMILES", exact=True).fill("")
    paste(page, "C\nCC", 2)  # another list begins without them
    assert page.locator("#rows thead th").count() == 2
    assert page.get_by_role("button", name="Add second").is_visible()


def test_another_model_that_cannot_predict_a_row_says_why(open_page):
    page = open_with_conditions(open_page)
    paste(page, "CCO\nCC", 2)

    def predict(route):
        row = {
            "smiles": "C",
            "values": {"gap_eV": 1, "logp": 2},
            "uncertainty": None,
            "domain": None,
            "error": None,
        }
        failed = {**row, "values": None, "error": "too long"}
        assert "conditions" not in route.request.post_data_json
        route.fulfill(json={"predictions": [row, failed]})

    page.route("**/predict", predict)
    page.get_by_role("button", name=f"Add {ATTACK}").click()
    wait_until(lambda: page.locator("#beside").is_hidden())
    assert list(map(float, cells(page, 0)[1:])) == [1, 2]
    assert cells(page, 1)[1:] == ["no prediction", "no prediction"]
    assert page.locator("#rows td[title='too long']").count() == 2
    assert page.title() == "molslice: predict molecules"


def test_a_refused_goal_is_an_error(open_page):
    page = open_page()
    show_fake(page, 60, 60)
    page.route("**/predict", lambda route: route.fulfill(status=422, json={"detail": "invalid goal"}))
    page.get_by_text("What next").click()
    page.get_by_label("Limit").fill("x")
    page.get_by_role("button", name="Compute probabilities").click()
    problem = page.locator("#next-field [role=alert]")
    wait_until(lambda: problem.is_visible())
    assert problem.inner_text() == "invalid goal"
    assert "problem" in problem.get_attribute("class")
    page.get_by_role("button", name="Choose diverse ones").click()  # says what to do
    assert problem.is_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_tables_fit_the_window_and_pictures_have_no_background(open_page, theme, width):
    page = open_page(color_scheme=theme, viewport={"width": width, "height": 800})
    show_fake(page, 60, 60)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if width == 390:
        scroll = page.locator("#table-scroll")
        assert scroll.evaluate("box => box.scrollWidth <= box.clientWidth")
        for cell in page.locator("#rows tbody tr").nth(1).locator("td").all():
            box = cell.bounding_box()
            assert 0 <= box["x"] < box["x"] + box["width"] <= 390
        domain = page.locator("#rows td.domain").first
        assert domain.evaluate("cell => getComputedStyle(cell, '::before').content") == '"domain"'
        assert page.locator("#rows .open img").first.bounding_box()["width"] > 130
        for heading in page.locator("#rows thead th").all():  # still sorts
            assert heading.bounding_box()["x"] + heading.bounding_box()["width"] <= 390
    else:
        page.set_viewport_size({"width": 700, "height": 800})
        scroll = page.locator("#table-scroll")
        assert scroll.evaluate("box => box.scrollWidth > box.clientWidth")
        assert "linear-gradient" in scroll.evaluate("box => getComputedStyle(box).backgroundImage")
        scroll.focus()
        page.keyboard.press("ArrowRight")
        wait_until(lambda: scroll.evaluate("box => box.scrollLeft") > 0)
        page.set_viewport_size({"width": width, "height": 800})
    explain_caffeine(page, "#contributions-picture")
    corner = """picture => {
        const canvas = new OffscreenCanvas(picture.naturalWidth, picture.naturalHeight);
        const context = canvas.getContext("2d");
        context.drawImage(picture, 0, 0);
        return [...context.getImageData(2, 2, 1, 1).data];
    }"""
    for name in ("#structure", "#contributions-picture"):
        assert page.locator(name).evaluate(corner)[3] == 0  # transparent
    assert page.locator("#contributions-scale").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_what_next_ranks_by_a_goal_and_chooses_diverse_molecules(open_page, tmp_path):
    page = open_page(accept_downloads=True)
    show_fake(page, 60, 60)
    asked = {"predict": [], "choose": [], "save": []}

    def predict(route):
        body = route.request.post_data_json
        asked["predict"].append(body)
        done = sum(len(each["smiles"]) for each in asked["predict"][:-1])
        rows = [{"probability": (done + place) / 100} for place in range(len(body["smiles"]))]
        notes = ["no training value meets size > 1.5; they are from 0 to 1 m"]
        route.fulfill(json={"predictions": rows, "notes": notes})

    def choose(route):
        asked["choose"].append(route.request.post_data_json)
        choices: list[dict | None] = [None] * len(asked["choose"][0]["smiles"])
        choices[0], choices[4] = {"rank": 2, "similarity": 0.25}, {"rank": 1, "similarity": 0}
        route.fulfill(json={"choices": choices})

    def save(route):
        asked["save"].append(route.request.post_data_json)
        route.fulfill(body="smiles")

    page.route("**/predict", predict)
    page.route("**/choose", choose)
    page.route("**/files/x/result", save)
    page.get_by_text("What next").click()
    page.get_by_role("button", name="Choose diverse ones").click()
    assert page.locator("#next-state").inner_text().startswith("Sort the table first")
    page.get_by_label("Limit").fill("1,5")
    page.get_by_role("button", name="Compute probabilities").click()
    wait_until(lambda: page.locator("#table-progress").is_hidden() and len(asked["predict"]) == 2)
    assert asked["predict"][0]["goals"] == ["size > 1.5"]
    assert asked["predict"][0]["model"] == "fitted"
    heading = page.locator("#rows thead th").nth(1)
    assert (heading.inner_text().split("\n"), heading.get_attribute("aria-sort")) == (
        ["probability", "size > 1.5"],
        "descending",
    )
    assert listed(page)[:2] == ["m59", "m58"]
    assert cells(page, 0)[0] == "0.590"
    page.get_by_role("button", name="Choose diverse ones").click()
    wait_until(lambda: len(listed(page)) == 2)
    note = "No training value meets size > 1.5; they are from 0 to 1 m."
    assert page.locator("#goal-note").inner_text() == note
    assert asked["choose"][0]["scores"][:2] == [0.59, 0.57]  # m58 is in the training table
    assert asked["choose"][0]["number"] == 20
    assert len(asked["choose"][0]["smiles"]) == 59
    assert listed(page) == ["m54", "m59"]
    assert page.locator("#table-state").inner_text() == "2 molecules chosen of 60."
    fewer = "There are only 2 molecules to choose from."
    assert page.locator("#next-state").inner_text().startswith(fewer)
    saved(page, "CSV", tmp_path / "a.csv")
    assert asked["save"] == [
        {
            "format": "csv",
            "rows": [55, 60],
            "columns": {"probability": ["0.54", "0.59"], "similarity_before": ["0", "0.25"]},
        }
    ]
    page.get_by_role("button", name="size_m", exact=True).click()  # shows all again
    assert len(listed(page)) == 50
    assert page.evaluate("document.activeElement.textContent") == "size_m"


def test_small_probabilities_are_not_shown_as_zero(open_page):
    page = open_page()
    show_fake(page, 60, 60)
    shares = (0.000004, 0.00423, 0.0567, 0.59, 0.99996, 1.0, 0.0)

    def predict(route):
        rows = [{"probability": share} for share in shares]
        given = len(route.request.post_data_json["smiles"])
        route.fulfill(json={"predictions": (rows * 10)[:given], "notes": []})

    page.route("**/predict", predict)
    page.get_by_text("What next").click()
    page.get_by_label("Limit").fill("1")
    page.get_by_role("button", name="Compute probabilities").click()
    wait_until(lambda: page.locator("#table-progress").is_hidden() and len(cells(page, 0)[0]) > 0)
    texts = {cells(page, row)[0] for row in range(50)}
    assert texts <= {"<0.001", "0.00423", "0.0567", "0.590", ">0.999", "1", "0"}
    page.get_by_role("button", name="probability size").click()
    assert {"<0.001", "0.00423", "0"} <= {cells(page, row)[0] for row in range(50)}


def test_the_page_has_the_columns_of_the_command(browser, tmp_path):
    """The table and the download have the names and the cells of `molslice predict` with the same options."""
    source, written = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_text("smiles,name\nCCO,ethanol\nC(,broken\nc1ccccc1O,phenol\n")
    options = ["--interval", "0.9", "--domain", "--quiet"]
    assert main(["predict", "solubility", "--input", str(source), "--output", str(written), *options]) == 0
    wanted = list(csv.DictReader(written.open()))
    with Running("solubility") as server:
        page = browser.new_context(accept_downloads=True).new_page()
        page.goto(f"http://{server.host}:{server.port}")
        page.wait_for_selector("#model option", state="attached")
        paste(page, source.read_text().replace(",", "\t"), 3)
        headings = page.locator("#rows thead button > :first-child").all_inner_texts()
        saved(page, "CSV", tmp_path / "saved.csv")
        page.set_input_files("#file", source)
        wait_until(lambda: page.locator("#table-title").inner_text() == "in.csv: solubility")
        saved(page, "CSV", tmp_path / "file.csv")
        page.context.close()
    assert headings == [
        *("Molecule", "log_solubility_log ug/mL", "log_solubility_lower, _upper", "domain"),
    ]
    columns = {name for title in headings[1:] for name in title.replace(" _", " log_solubility_").split(", ")}
    assert columns <= set(wanted[0])
    for path in (tmp_path / "saved.csv", tmp_path / "file.csv"):
        rows = list(csv.DictReader(path.open()))
        assert sorted(rows[0]) == sorted(wanted[0])
        assert rows == wanted


def test_a_similarity_is_written_once_and_minus_signs_are_hyphens(open_page):
    page = open_page()
    show_fake(page, 60, 60)
    reason = "similarity 0.10 to the nearest training molecule, below 0.20"
    answer = {"model": "fitted", "targets": [SIZE, *CLASSES], "rows": 60, "predictions": fake_rows(60)}
    answer["predictions"][0]["domain"] |= {"place": "outside", "reason": reason}
    page.route("**/files/x/rows", lambda route: route.fulfill(json=answer))
    page.get_by_role("button", name="Show the rows of big.csv").click()
    wait_until(lambda: reason in cells(page, 0)[-1])
    assert cells(page, 0)[-1].split("\n") == ["outside", "", reason]
    page.get_by_label("At most").fill("\N{MINUS SIGN}1")  # as it is copied from texts
    assert page.get_by_label("At most").get_attribute("aria-invalid") is None
    page.get_by_label("At most").fill("")
    explain_caffeine(page, "#contributions-scale")
    assert page.locator("#contributions-scale span").first.inner_text().startswith("-")
    assert "\N{MINUS SIGN}" not in page.locator("body").inner_text()


def test_an_interval_as_wide_as_the_measured_values_is_marked(open_page):
    page = open_page()
    show_fake(page, 60, 60)
    rows = {name: cells(page, row)[1].split("\n")[-1] for row, name in enumerate(listed(page))}
    widths = {f"m{place}": (place * 11) % 60 + 2 for place in range(1, 50)} | {"m0": float("inf")}
    assert {name for name, text in rows.items() if text == "wide"} == {
        name for name, width in widths.items() if width >= 50
    }
    hint = page.locator("#rows .bounds .soft").first.get_attribute("title")
    assert hint == "wide interval: the model knows little more than the mean of the measured values"
