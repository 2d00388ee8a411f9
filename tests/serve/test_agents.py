"""Tools for agents answer as the commands do, and reach no file outside of their folder."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from molslice.cli import main
from molslice.serve.agents import AgentTools
from molslice.types import MolsliceError


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "root"
    folder.mkdir()
    (folder / "table.csv").write_text("smiles\nCCO\nc1ccccc1\n")
    (tmp_path / "secret.csv").write_text("smiles\nC\n")
    (folder / "link.csv").symlink_to(tmp_path / "secret.csv")
    (folder / "up").symlink_to(tmp_path)
    return folder


def test_predictions_are_what_the_command_prints(root, capsys):
    words = ["gap-xtb", "--interval", "0.9", "--json", "--smiles", "CCO", "not one"]
    assert main(["predict", *words]) == 0
    expected = json.loads(capsys.readouterr().out)
    tools = AgentTools(root)
    assert tools.predict("gap-xtb", ["CCO", "not one"], interval=0.9) == expected
    report = tools.predict("gap-xtb", table="table.csv", output=str(root / "predicted.csv"))
    assert (report["rows"], report["output"]) == (2, "predicted.csv")
    assert (root / "predicted.csv").is_file()


def test_a_fitted_model_with_conditions_is_explained(root):
    shutil.copytree(Path(__file__).parents[1] / "saved_models" / "fit_pairs", root / "fitted")
    given = {"solvent": "CCO", "temperature": 300, "species": "rat"}
    tools = AgentTools(root)
    (listed,) = tools.explain("fitted", ["CCO"], conditions=given)["explanations"]
    assert listed["method"] == "shapley"
    (predicted,) = tools.predict("fitted", ["CCO"], conditions=given)["predictions"]
    assert listed["headline"]["value"] == pytest.approx(predicted["gap"], rel=1e-6)


def test_molecules_are_longer_than_a_command_line(root, monkeypatch):
    tools = AgentTools(root)
    (row,) = tools.predict("gap-xtb", ["C" * 140_000])["predictions"]
    assert row["error"] == "SMILES of 140000 characters, more than 100000"
    monkeypatch.setattr(sys, "executable", str(root / "absent"))
    with pytest.raises(MolsliceError, match=r"^cannot start molslice predict: No such file or directory$"):
        tools.predict("gap-xtb", ["C"])


@pytest.mark.parametrize(
    "path",
    [
        "../secret.csv",
        "link.csv",
        "up/secret.csv",
        "/etc/hostname",
        "s3://bucket/a.csv",
        "*.csv",
        "-",
        "",
        "a\0",
    ],
)
def test_no_path_outside_of_the_folder_is_read_or_written(path, root):
    tools = AgentTools(root)
    reason = "outside of the folder|is not the path|no such file|begins with a hyphen"
    with pytest.raises(MolsliceError, match=reason):
        tools.predict("gap-xtb", table=path, output="predicted.csv")
    with pytest.raises(MolsliceError, match=f"{reason}|no model"):
        tools.predict(path, ["CCO"])
    with pytest.raises(MolsliceError, match=reason):
        tools.fit("table.csv", ["y"], path)
    with pytest.raises(MolsliceError, match=reason):
        tools.predict("gap-xtb", table="table.csv", output=path)
    assert sorted(os.listdir(root)) == ["link.csv", "table.csv", "up"]


def test_no_text_is_read_as_an_option(root):
    tools = AgentTools(root)
    smiles = ["CCO", "--output=../stolen.csv", "-", "C\0C", ""]
    errors = [row["error"] for row in tools.predict("gap-xtb", smiles)["predictions"]]
    assert errors[0] is None
    assert None not in errors[1:]
    assert "no atom before '-'" in errors[1]
    explained = tools.explain("gap-xtb", ["CCO", "-"])["explanations"]
    assert [entry["error"] is None for entry in explained] == [True, False]
    assert not (root.parent / "stolen.csv").exists()
    with pytest.raises(MolsliceError, match="no column"):
        tools.fit("table.csv", ["--out=../stolen"], "fitted")
    with pytest.raises(MolsliceError, match="give 1 to 1000 SMILES, got 0"):
        tools.explain("gap-xtb", [])


def test_modules_in_the_folder_are_not_imported(root):
    for name in ("torch", "numpy", "molslice", "sitecustomize"):
        (root / f"{name}.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    (root / "model").mkdir()
    for name in ("config.yaml", "model.safetensors"):
        (root / "model" / name).touch()
    models = AgentTools(root).models()
    assert models["folders"] == ["model"]
    assert "gap-xtb" in [model["name"] for model in models["shipped"]]
    assert not (root / "imported").exists()


def test_errors_are_what_the_command_prints(root):
    with pytest.raises(MolsliceError, match="^table.csv has no column 'absent'"):
        AgentTools(root).fit("table.csv", ["absent"], "fitted")
    with pytest.raises(MolsliceError, match="^no such folder: "):
        AgentTools(root / "absent")


def test_a_client_of_the_protocol_is_answered(root):
    mcp = pytest.importorskip("mcp")

    async def talk():
        words = ["-m", "molslice", "mcp", "--root", str(root)]
        server = mcp.StdioServerParameters(command=sys.executable, args=words, env={**os.environ})
        async with mcp.stdio_client(server) as streams, mcp.ClientSession(*streams) as session:
            await session.initialize()
            tools = (await session.list_tools()).tools
            good = await session.call_tool("predict", {"model": "gap-xtb", "smiles": ["CCO"]})
            bad = await session.call_tool("predict", {"model": "../model", "smiles": ["CCO"]})
            return tools, good, bad

    tools, good, bad = asyncio.run(talk())
    assert [tool.name for tool in tools] == ["models", "predict", "explain", "fit"]
    assert set(tools[1].input_schema["properties"]) > {"model", "smiles", "table", "output"}
    assert good.structured_content["predictions"][0]["homolumogap_eV"] == pytest.approx(11.62, abs=0.01)
    assert bad.is_error
    assert "outside of the folder" in bad.content[0].text


def test_a_missing_sdk_is_named(root, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    assert main(["mcp", "--root", str(root)]) == 1
    assert "molslice mcp needs mcp: pip install 'molslice[mcp]'" in capsys.readouterr().err
