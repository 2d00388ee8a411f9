"""SECURITY.md names tests that exist, and the versions and hashes of files that the package contains."""

import ast
import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
VENDOR = ROOT / "molslice" / "serve" / "static" / "vendor"


def table(heading):
    """Return the cells of the rows of the table below a heading."""
    rows = re.findall(r"^\|(.*)\|$", PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in rows[2:]]


def test_every_line_of_the_threat_model_names_tests_that_exist():
    rows = table("Threat model")
    assert len(rows) > 10
    for *_, cell in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", cell)
        assert named, cell
        for file, name in named:
            tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
            assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name


def test_software_of_others_is_what_the_page_says():
    notice = (VENDOR / "NOTICE.txt").read_text(encoding="utf-8")
    rows = table("Software of others in the package")
    programs = [path.relative_to(ROOT).as_posix() for path in VENDOR.iterdir() if path.suffix == ".js"]
    assert [row[0].strip("`") for row in rows] == programs
    for file, version, license_name, digest in rows:
        assert hashlib.sha256((ROOT / file.strip("`")).read_bytes()).hexdigest() == digest.strip("`")
        assert version.partition(",")[0] in notice
        assert license_name in notice
