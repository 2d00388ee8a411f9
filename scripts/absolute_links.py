"""Make the links of README.md absolute, to the files of the version's tag, for the page of a package index.

usage: python scripts/absolute_links.py       changes README.md; after the build: git restore README.md
"""

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)]+)\)")


def absolute_links(text: str, repository: str, tag: str) -> str:
    """Return Markdown whose relative links are links to the files of a tag."""

    def absolute(link: re.Match[str]) -> str:
        picture, label, target = link["picture"], link["text"], link["target"]
        if target.startswith("#") or re.match(r"\w+:", target):
            return link[0]
        view = "raw" if picture else "blob"
        return f"{picture}[{label}]({repository}/{view}/{tag}/{target})"

    return LINK.sub(absolute, text)


def main() -> None:
    """Change README.md."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    version = runpy.run_path(str(ROOT / "molslice" / "version.py"))["__version__"]
    page = ROOT / "README.md"
    text = absolute_links(page.read_text(encoding="utf-8"), project["urls"]["Repository"], f"v{version}")
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
