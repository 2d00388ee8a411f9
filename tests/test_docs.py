"""The README and the documentation agree with the results, the code and the files of the repository."""

import re
import runpy
import shlex
import subprocess
import sys

import pytest
from markdown.extensions.toc import slugify

import molslice
from molslice.cli import build_parser
from molslice.cli.arguments import split_overrides
from tests.programs import ROOT, load_program

PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINKING = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "data" / "README.md"]
HINT = "run python benchmarks/result_tables.py --write"


@pytest.fixture(scope="module")
def tables():
    return load_program("result_tables")


def test_measured_tables_are_those_of_the_results(tables):
    for path, text in tables.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: {HINT}"


def test_headers_of_configurations_hold_what_was_measured(tables):
    found = tables.headers()
    assert len(found) >= 9
    for path, text in found.items():
        assert path.read_text(encoding="utf-8") == text, HINT


def test_a_changed_number_would_be_noticed(tables):
    text = (ROOT / "docs/results/molecules.md").read_text(encoding="utf-8")
    number = re.findall(r"\d\.\d{3} ± ", text)[0]
    assert tables.fill(text.replace(number, "9.999 ± ")) == text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    folders, endings = "configs|scripts|benchmarks|data|docs|examples|tests", "yaml|py|sh|md|json|png"
    text = re.sub(r"\bas `[\w/.]+`:\n", "", text)  # a file that the reader writes
    named = set(re.findall(rf"(?<![\w/])(?:{folders})/[\w/.-]*\w\.(?:{endings})\b", text))
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def without_code(page):
    """Return the Markdown of a page without blocks of code and code in a line."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S)


def anchors(page):
    """Return the anchors of the headings of a page, as the site and code hosts make them."""
    headings = re.findall(
        r"^#+ (.+)$", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S), re.M
    )
    titles = [re.sub(r"\[([^\]]*)\]\([^)]*\)|`", r"\1", heading) for heading in headings]
    return {slugify(title, "-") for title in titles}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_and_their_headings_resolve(page):
    for link in re.findall(r"\]\(([^):\s]+)\)", without_code(page)):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_a_missing_heading_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A `b` [c](d.md), e\n[x](#a-b-c-e)\n```\n# code\n[y](z.md)\n```\n")
    assert anchors(page) == {"a-b-c-e"}
    assert "z.md" not in without_code(page)


def test_pictures_of_the_documentation_are_pictures():
    for picture in (ROOT / "docs" / "assets").rglob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG"), picture
    for name in ("compare_gap_xtb.png", "row_scaling.png", "row_scaling_qm9.png"):
        drawn = (ROOT / "benchmarks" / "results" / name).read_bytes()
        assert (ROOT / "docs" / "assets" / name).read_bytes() == drawn, "copy the new figure to docs/assets"


def commands(page):
    """Return the words of each command `molslice ...` in the code blocks of a page."""
    blocks = re.findall(r"```(?:bash|console)\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    split = [shlex.split(line.removeprefix("$ "), comments=True) for line in lines if "molslice " in line]
    return [words[1:] for words in split if words and words[0] == "molslice"]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "data/README.md"], ids=lambda page: page.name)
def test_commands_of_a_page_parse_and_their_configurations_exist(page):
    for words in commands(page):
        rest, overrides = split_overrides(words)
        args = build_parser().parse_args(rest)
        assert not overrides or args.takes_overrides, words
        config = getattr(args, "config", None)
        assert config is None or not str(config).startswith("configs/") or (ROOT / config).is_file(), words


def test_the_readme_shows_the_common_commands():
    assert {words[0] for words in commands(ROOT / "README.md")} == {
        *("predict", "fit", "report", "train", "evaluate", "prepare", "data", "compare"),
    }


def test_the_design_names_every_folder():
    table = (ROOT / "docs/design.md").read_text(encoding="utf-8").partition("## Folders")[2]
    folders = {path.parent.name for path in (ROOT / "molslice").glob("*/__init__.py")}
    assert set(re.findall(r"`(\w+)/`", table)) == folders


def test_the_top_level_has_few_entries():
    listed = subprocess.run(["git", "ls-files"], capture_output=True, text=True, cwd=ROOT, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    folders = {"molslice", "configs", "data", "scripts", "tests", "docs", "examples", "benchmarks"}
    about = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff", "LICENSE"}
    build = {"pyproject.toml", "MANIFEST.in", "constraints.txt", "environment.yml", "mkdocs.yml"}
    container = {"Dockerfile", ".dockerignore", "compose.yaml"}
    hidden = {".ci", ".github", ".gitignore", ".pre-commit-config.yaml"}
    tops = {line.partition("/")[0] for line in listed.stdout.splitlines()}
    assert tops == folders | about | build | container | hidden


def test_the_readme_stays_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 105


def test_every_exported_name_is_there_and_documented():
    reference = (ROOT / "docs/api/index.md").read_text(encoding="utf-8")
    for name in set(molslice.__all__) - {"__version__"}:
        assert getattr(molslice, name) is not None
        assert re.search(rf"[.`]{name}\b", reference), name
    with pytest.raises(AttributeError, match="nothing"):
        molslice.nothing  # noqa: B018


def test_importing_molslice_imports_no_torch():
    program = "import sys, molslice; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def example(page, tmp_path):
    """Return the names that the file in a guide defines."""
    text = (ROOT / "docs/guides" / page).read_text(encoding="utf-8")
    ((name, code),) = re.findall(r"`molslice/[\w/]+/(\w+)\.py`:\n\n```python\n(.*?)```", text, re.S)
    path = tmp_path / f"{name}.py"
    path.write_text(code, encoding="utf-8")
    return runpy.run_path(str(path))


def test_the_data_set_of_the_guide_is_read_and_batched(tmp_path):
    path = tmp_path / "series.jsonl"
    lines = [f'{{"values": [[{i}, 1], [2, {i}]], "label": "{"ab"[i % 2]}"}}' for i in range(20)]
    path.write_text("\n".join(lines))
    dataset = example("adding-a-data-set.md", tmp_path)["JsonSeries"](path=path)
    assert {name: len(rows) for name, rows in dataset.splits.items()} == {"train": 16, "valid": 2, "test": 2}
    batch = dataset.collate([0, 3])
    assert batch.targets[:, 0].tolist() == [0, 1]
    assert dataset.spec.channels == 2


def test_the_task_of_the_guide_computes_its_loss(tmp_path):
    import torch

    log_cosh = example("adding-a-task.md", tmp_path)["log_cosh"]
    difference = torch.tensor([0.0, -0.5, 40.0], dtype=torch.float64)
    assert torch.allclose(log_cosh(difference, torch.zeros(3)), difference.cosh().log())


VAGUE = re.compile(r"\b(that of|those of|is told|what is known of)\b", re.IGNORECASE)


@pytest.mark.parametrize("folder", ["docs", "molslice"])
def test_the_noun_is_repeated(folder):
    files = [*(ROOT / folder).rglob("*.md"), *(ROOT / folder).rglob("*.py"), ROOT / "README.md"]
    assert [str(file) for file in files if VAGUE.search(file.read_text(encoding="utf-8"))] == []
