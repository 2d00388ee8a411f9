"""Tools for agents and programs over the Model Context Protocol: predict, explain, fit, list models.

Each tool runs a command of molslice in a process of its own, and returns what it prints with `--json`. An
error ends that process only, and nothing but messages of the protocol reaches standard output. The arguments
of the command are sent to its standard input, because the system limits the length of a command line.
"""

import functools
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from molslice.pretrained import pretrained_names
from molslice.types import MolsliceError
from molslice.version import __version__

INSTRUCTIONS = (
    "Predict molecular properties from SMILES. `models` lists the models. `fit` makes one from a table of "
    "measurements. All paths are inside of one folder, relative to it. A molecule that cannot be read has no "
    "prediction and the reason in `error`."
)
PROGRAM = "import json, sys; from molslice.cli import main; sys.exit(main(json.load(sys.stdin)))"
MAX_SMILES = 1000
MAX_FOLDERS = 10_000  # that are searched for models


class AgentTools:
    """The tools for one folder.

    Args:
        root: The folder. Every path of a call must be inside of it, also after links are followed.

    Raises:
        MolsliceError: The folder does not exist.
    """

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        if not self.root.is_dir():
            raise MolsliceError(f"no such folder: {root}")

    def models(self) -> dict[str, Any]:
        """List the models that can predict.

        Returns:
            `shipped`, the models that every installation has, with targets, units, errors on held-out
            molecules and data; `folders`, the paths of other models.
        """
        from molslice.folders.ensemble import is_ensemble
        from molslice.folders.fitted import is_fitted_folder
        from molslice.folders.run import CONFIG, MODEL

        folders = []
        for place, _ in zip(os.walk(self.root), range(MAX_FOLDERS), strict=False):
            path, names = Path(place[0]), place[1]
            names[:] = sorted(name for name in names if not name.startswith("."))
            has_network = (path / CONFIG).is_file() and (path / MODEL).is_file()
            if is_fitted_folder(path) or is_ensemble(path) or has_network:
                folders.append(path.relative_to(self.root).as_posix())
                names.clear()
        return {"shipped": self._run("models"), "folders": folders}

    def predict(
        self,
        model: str,
        smiles: list[str] | None = None,
        table: str | None = None,
        output: str | None = None,
        interval: float | None = None,
        domain: bool = False,
        conditions: dict[str, bool | str | float] | None = None,
    ) -> dict[str, Any]:
        """Predict the properties of molecules: of a list of SMILES, or of each row of a table.

        Args:
            model: Name of a shipped model, or path of a model's folder.
            smiles: Up to 1,000 SMILES.
            table: In place of `smiles`, path of a file with a column of SMILES: .csv, .parquet, .sdf, ...
            output: With `table`, path of the file to write: .csv, .parquet or .jsonl. It may exist.
            interval: Also return intervals, or sets of classes, of this level, such as 0.9.
            domain: Also return the nearest training molecule, and whether the model knows such molecules.
            conditions: For `smiles`, the value of each condition of the model, such as a temperature. A table
                has a column for each.
        """
        words = [self._model(model)]
        if (smiles is None) == (table is None):
            raise MolsliceError("give either smiles or table")
        if table is not None:
            if output is None:
                raise MolsliceError("a table needs output, the path of the file to write")
            words += [f"--input={self._file(table)}", f"--output={self._inside(output)}"]
        elif output is not None:
            raise MolsliceError("output needs table")
        words += [] if interval is None else [f"--interval={interval}"]
        words += ["--domain"] * domain
        return self._run("predict", *words, *_condition_words(conditions), *_smiles_words(smiles))

    def explain(
        self,
        model: str,
        smiles: list[str],
        method: Literal["gradients", "shapley", "attention"] | None = None,
        target: str | None = None,
        class_name: str | None = None,
        conditions: dict[str, bool | str | float] | None = None,
    ) -> dict[str, Any]:
        """Return how much each atom contributes to the prediction for each molecule.

        Args:
            model: Name of a shipped model, or path of a model's folder.
            smiles: Up to 1,000 SMILES. Atoms are counted in their order, from 0.
            method: How contributions are computed; by default `shapley` for models of `fit`, and `gradients`
                for others. The method `attention` returns attention maps.
            target: The target; needed if the model has several.
            class_name: The class to explain, of a target of three and more; by default the predicted one.
            conditions: The value of each condition of the model, such as a temperature.
        """
        words = [self._model(model)]
        words += [] if method is None else [f"--method={method}"]
        words += [] if target is None else [f"--target={target}"]
        words += [] if class_name is None else [f"--class={class_name}"]
        return self._run("explain", *words, *_condition_words(conditions), *_smiles_words(smiles))

    def fit(
        self,
        table: str,
        targets: list[str],
        out: str,
        unit: str | None = None,
        quality: Literal["fast", "good", "best"] = "good",
        split: str | None = None,
        smiles_column: str | None = None,
        conditions: list[str] | None = None,
    ) -> dict[str, Any]:
        """Fit a model to a table of molecules with measured values, and measure its error on held-out rows.

        It takes seconds to minutes, with the quality `best` longer.

        Args:
            table: Path of the file: a column of SMILES and one for each target.
            targets: Columns to learn; numbers or classes.
            out: Path of the model's folder to write. It must not exist.
            unit: Unit of the targets, such as `log mol/L`.
            quality: How much time to spend; `best` also trains networks.
            split: How rows are held out: `random`, `scaffold`, `cluster`, `all` for none, or a column with
                train and test.
            smiles_column: Column of SMILES; it is found by default.
            conditions: Columns that the model takes beside the molecule, such as a temperature.
        """
        words = [str(self._file(table)), f"--out={self._inside(out)}", f"--quality={quality}"]
        words += [f"--target={target}" for target in targets]
        words += [f"--condition={name}" for name in conditions or ()]
        given = {"unit": unit, "split": split, "smiles-column": smiles_column}
        words += [f"--{name}={value}" for name, value in given.items() if value is not None]
        return self._run("fit", *words)

    def _model(self, name: str) -> str:
        if name in pretrained_names() and not (self.root / name).exists():
            return name
        path = self._inside(name)
        if not (self.root / path).is_dir():
            shipped = ", ".join(pretrained_names())
            raise MolsliceError(f"no model {name!r}: no such folder, and the shipped models are {shipped}")
        return str(path)

    def _file(self, text: str) -> Path:
        path = self._inside(text)
        if not (self.root / path).is_file():
            raise MolsliceError(f"no such file: {text}")
        return path

    def _inside(self, text: str) -> Path:
        """Return a path relative to the folder.

        Raises:
            MolsliceError: It is outside of the folder, or could be read as an option, a URL or a pattern.
        """
        if "\0" in text or "://" in text or any(sign in text for sign in "*?[") or not text:
            raise MolsliceError(f"{text!r} is not the path of one file or folder")
        path = Path(os.path.realpath(self.root / text))
        if not path.is_relative_to(self.root):
            raise MolsliceError(f"{text!r} is outside of the folder of this server")
        if (relative := path.relative_to(self.root)).as_posix().startswith("-"):
            raise MolsliceError(f"{text!r} begins with a hyphen")
        return relative

    def _run(self, verb: str, *words: str) -> Any:  # noqa: ANN401
        """Run a command in the folder and return its result.

        Python does not import modules from the folder (`-P`).

        Raises:
            MolsliceError: The command cannot be started or failed, with its message.
        """
        quiet = () if verb == "models" else ("--quiet",)
        try:
            done = subprocess.run(
                [sys.executable, "-P", "-c", PROGRAM],
                input=json.dumps([verb, *words, "--json", *quiet]),
                cwd=self.root,
                capture_output=True,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONUTF8": "1"},
                check=False,
            )
        except OSError as error:  # too many processes or open files
            raise MolsliceError(f"cannot start molslice {verb}: {error.strerror}") from error
        if done.stdout.strip():  # also of a command that fails because no molecule can be read
            return json.loads(done.stdout)
        lines = [line for line in done.stderr.splitlines() if "error: " in line] or done.stderr.splitlines()
        reason = lines[-1].partition("error: ")[2] or lines[-1] if lines else f"exit code {done.returncode}"
        raise MolsliceError(reason)


def _condition_words(conditions: Mapping[str, bool | str | float] | None) -> list[str]:
    return [f"--condition={name}={value}" for name, value in (conditions or {}).items()]


def _smiles_words(smiles: Sequence[str] | None) -> list[str]:
    """Return the SMILES as options, each with its value in one word, which may begin with a hyphen.

    Raises:
        MolsliceError: There are none or too many.
    """
    if smiles is None:
        return []
    if not 0 < len(smiles) <= MAX_SMILES:
        raise MolsliceError(f"give 1 to {MAX_SMILES} SMILES, got {len(smiles)}; a table may have more")
    return [f"--smiles={text}" for text in smiles]


def serve_agents(root: Path) -> None:
    """Answer requests on standard input until it closes.

    Raises:
        MolsliceError: The folder does not exist, or the SDK of the protocol is not installed.
    """
    tools = AgentTools(root)
    try:
        from mcp.server import MCPServer  # pyright: ignore[reportMissingImports]
        from mcp.server.mcpserver.exceptions import ToolError  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MolsliceError("molslice mcp needs mcp: pip install 'molslice[mcp]'") from error

    def answering(tool: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        @functools.wraps(tool)
        def answer(*values: Any, **options: Any) -> dict[str, Any]:  # noqa: ANN401
            try:
                return tool(*values, **options)
            except MolsliceError as error:
                raise ToolError(str(error)) from error  # other errors are not shown to the client

        return answer

    server = MCPServer("molslice", instructions=INSTRUCTIONS, version=__version__, log_level="WARNING")
    for tool in (tools.models, tools.predict, tools.explain, tools.fit):
        server.add_tool(answering(tool), description=inspect.getdoc(tool))
    server.run("stdio")
