"""The description on a package index has no relative links."""

import re
import shutil
from pathlib import Path

import absolute_links
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = "https://example.org/them/it"


def test_files_pictures_and_other_links():
    text = "[a](docs/a.md#part) ![b](b.png) [c](#here) [d](https://d.org/d) [two\nlines](e.md)"
    expected = (
        f"[a]({FILES}/blob/v1/docs/a.md#part) ![b]({FILES}/raw/v1/b.png) [c](#here) [d](https://d.org/d) "
        f"[two\nlines]({FILES}/blob/v1/e.md)"
    )
    assert absolute_links.absolute_links(text, FILES, "v1") == expected
    assert absolute_links.absolute_links(expected, FILES, "v1") == expected


def test_every_link_of_the_readme_is_to_a_file_of_the_repository(tmp_path, monkeypatch):
    for name in ("README.md", "pyproject.toml", "molslice/version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(absolute_links, "ROOT", tmp_path)
    absolute_links.main()
    targets = re.findall(r"\]\(([^)]+)\)", (tmp_path / "README.md").read_text(encoding="utf-8"))
    prefix = re.compile(r"https://github\.com/[\w-]+/[\w-]+/(?:blob|raw)/v\d+\.\d+\.\d+\w*/")
    assert len(targets) > 30
    for target in targets:
        assert prefix.match(target), target
        assert (ROOT / prefix.sub("", target).partition("#")[0]).is_file(), target


@pytest.mark.parametrize(("workflow", "job"), [("checks", "package"), ("release", "build")])
def test_packages_are_built_with_absolute_links(workflow, job):
    text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text(encoding="utf-8")
    commands = [step.get("run") for step in yaml.safe_load(text)["jobs"][job]["steps"]]
    assert commands.index("python -m build") == commands.index("python scripts/absolute_links.py") + 1
