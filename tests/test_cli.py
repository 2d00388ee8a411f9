import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from molslice import __version__
from molslice.cli import build_parser, find_verbs, main
from molslice.cli.arguments import split_overrides
from molslice.data import DATASETS, Dataset
from molslice.data.text.imdb import Imdb
from molslice.folders.run import read_config
from molslice.inference.load import find_model
from molslice.model.base import SIZES
from molslice.training.start import load_run_config
from molslice.types import DataSpec, MolsliceError
from tests.inference.models import checkpoint_folder, write_tiny_config
from tests.programs import run_in_shell

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write a CSV file of 60 molecules and a configuration."""
    folder = tmp_path_factory.mktemp("cli")
    write_tiny_config(folder, "gap", 0.1, units=["eV"], cache_dir=str(folder / "cache"))
    return folder


@pytest.fixture(scope="module")
def run_folder(folder):
    words = [
        "train",
        "--config",
        str(folder / "config.yaml"),
        "--out",
        str(folder / "run"),
        "--quiet",
        "--json",
    ]
    assert main(words) == 0
    return folder / "run"


@pytest.fixture
def molslice(capsys):
    """Run a command and return exit code, standard output and standard error."""

    def run(*words):
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as stop:
            code = stop.code
        return code, *capsys.readouterr()

    return run


def command(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "molslice", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_params_of_a_configuration_that_starts_from_a_model(molslice):
    code, out, _ = molslice("params", "--config", ROOT / "configs" / "molecule" / "gap_xtb_100k.yaml")
    assert code == 0
    assert "1,819,473" in out


def test_train_evaluate_predict_params(molslice, folder, tmp_path, caplog):
    run, config = tmp_path / "run", folder / "config.yaml"
    code, out, err = molslice("train", "--config", config, "--out", run, "--attention.name=slice_sort")
    assert code == 0
    assert re.search(r"gap( +\d\.\d{3,4}){3} +eV", out)
    assert str(run) in err
    assert {"model.safetensors", "config.yaml", "metrics.csv", "summary.json", "checkpoints"} <= set(
        os.listdir(run)
    )
    summary = json.loads((run / "summary.json").read_text())
    assert summary["attention"] == "slice_sort"

    code, out, err = molslice("evaluate", run, "--json", "--quiet")
    result = json.loads(out)
    assert (code, err) == (0, "")
    assert result["targets"][0]["mae"] == pytest.approx(summary["test"]["mae"]["gap"], abs=1e-5)
    code, out, _ = molslice("evaluate", run, "--split", "valid")
    assert code == 0
    value, error = map(float, re.search(r"gap +(\S+) ± (\S+) +eV", out).groups())
    assert value == pytest.approx(summary["valid"]["mae"]["gap"], abs=0.1 * error)
    assert f"{summary['parameters']:,}" in out

    identity = json.loads((run / "data.json").read_text())
    (run / "data.json").write_text(json.dumps({**identity, "split test": "0"}))
    assert molslice("evaluate", run)[0] == 0
    assert f"is not divided as it was when {run} was trained (different: the split test)" in caplog.text

    code, out, err = molslice("predict", run, "--smiles", "CCO", "nonsense", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["targets"] == [{"name": "gap", "unit": "eV", "column": "gap_eV"}]
    assert [entry["smiles"] for entry in result["predictions"]] == ["CCO", "nonsense"]
    assert result["predictions"][0]["error"] is None
    assert result["predictions"][1]["gap_eV"] is None
    assert result["predictions"][1]["error"]

    code, out, _ = molslice("params", "--config", config, "--attention.name", "slice_sort", "--json")
    assert (code, json.loads(out)["parameters"]["total"]) == (0, summary["parameters"])


def test_evaluate_on_other_data(molslice, folder):
    own = ["--data.name", "csv", "--data.path", folder / "molecules.csv", "--data.target-columns", "gap"]
    words = [
        "evaluate",
        "gap-xtb",
        *own,
        "--data.max-atoms",
        "9",
        f"--data.cache-dir={folder / 'cache'}",
        "--json",
    ]
    code, out, err = molslice(*words, "--quiet", "--split", "all")
    assert (code, "are homolumogap; set data.units" in err) == (1, True), err
    code, out, err = molslice(*words, "--quiet", "--split", "all", "--data.units", "eV")
    assert (code, err) == (0, "")
    result = json.loads(out)
    assert result["rows"] + result["failed"] == 60
    assert result["failed"] > 0


def test_predict_prints_a_table(molslice, run_folder):
    code, out, _ = molslice("predict", run_folder, "--smiles", "CCO", "c1ccccc1")
    assert code == 0
    assert re.fullmatch(r"SMILES +gap \[eV\]\nCCO +-?[\d.]+\nc1ccccc1 +-?[\d.]+\n", out)


def test_predict_a_table(molslice, run_folder, tmp_path):
    (tmp_path / "in.csv").write_text("name,structure\na,CCO\nb,bad\n")
    words = ["predict", run_folder, "--input", tmp_path / "in.csv", "--output", tmp_path / "out.csv"]
    code, out, err = molslice(*words, "--smiles-column", "structure", "--json")
    assert code == 0
    result = json.loads(out)
    assert (result["rows"], result["failed"]) == (2, 1)
    assert "1 of 2 rows have no prediction\n" in err
    assert err.count("not valid SMILES") == 1
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[0] == "name,structure,gap_eV,error"
    assert lines[2].startswith("b,bad,nan,")

    code, out, err = molslice(*words, "--smiles-column", "smiles")
    assert (code, out) == (1, "")
    assert "no column 'smiles'" in err
    assert "structure" in err


def test_only_bad_smiles(molslice, run_folder, tmp_path):
    code, out, err = molslice("predict", run_folder, "--smiles", "x", "y")
    assert code == 1
    assert "none of the SMILES can be read" in err
    assert "nan" in out
    (tmp_path / "in.csv").write_text("smiles\nx\ny\n")
    code, out, err = molslice(
        "predict", run_folder, "--input", tmp_path / "in.csv", "--output", tmp_path / "out.csv"
    )
    assert (code, out) == (1, "")
    assert "none of the 2 SMILES in column 'smiles' can be read" in err
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 3  # with the reasons


def test_prepare(molslice, folder):
    code, out, err = molslice("prepare", "--config", folder / "config.yaml", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["rows"] == sum(result["splits"].values()) == 60
    assert Path(result["store"]).is_dir()


def test_prepare_the_embedded_data_by_name(molslice, tmp_path):
    root = ROOT / "data" / "gap_xtb"
    code, out, err = molslice("prepare", "--dataset", "pcqm4m", "--root", tmp_path / "none")
    assert (code, "--download" in err) == (1, True)
    code, out, err = molslice("prepare", "--dataset", "pcqm4m-v2", "--root", root)
    assert (code, out) == (1, "")
    assert "v1, not the splits of pcqm4m-v2" in err


class Fetched(Dataset):
    """Data set that downloads a file and reads it."""

    kind, target_names, target_units = "multiclass", ("label",), ("",)
    class_names = ("a", "b")

    def __init__(self, *, root, more=0):
        self.source = str(root)
        self.labels = np.array([[float(mark)] for mark in (Path(root) / "labels.txt").read_text()])
        self.splits = {"train": np.arange(len(self.labels))}

    spec = property(lambda self: DataSpec(2, "ids", vocabulary_size=2, max_tokens=1))
    num_tokens = property(lambda self: np.ones(len(self.labels), np.int64))
    targets = property(lambda self: self.labels)

    def collate(self, rows, draw=None):
        raise NotImplementedError

    @classmethod
    def download(cls, options):
        Path(options["root"]).mkdir()
        (Path(options["root"]) / "labels.txt").write_text("0110")


def test_prepare_fetches_what_a_configuration_names(molslice, tmp_path, monkeypatch):
    monkeypatch.setattr(DATASETS, "_added", {"fetched": Fetched})
    sequence = {"name": "sequence", "num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2}
    config = {"data": {"name": "fetched"}, "model": sequence, "task": "sequence"}
    (tmp_path / "config.yaml").write_text(json.dumps(config))
    words = ["prepare", "--config", tmp_path / "config.yaml", "--json", "--download"]
    code, out, err = molslice(*words)
    assert (code, out) == (1, "")
    assert "'fetched' needs the option 'root'" in err
    code, out, err = molslice(*words, "--data.root", tmp_path / "new")
    assert code == 0
    assert json.loads(out)["splits"] == {"train": 4}


def test_prepare_says_where_nothing_can_be_fetched(molslice, folder):
    code, out, err = molslice("prepare", "--config", folder / "config.yaml", "--download")
    assert (code, out) == (1, "")
    assert "'csv' reads existing files. They are your own; --download works for" in err
    assert "pcqm4m" in err
    configs = Path(__file__).parents[1] / "configs"
    small = ["--data.counts", "[4, 2, 2]"]
    code, out, err = molslice(
        "prepare", "--config", configs / "lra/listops_small.yaml", "--download", "--json", *small
    )
    assert (code, json.loads(out)["rows"]) == (0, 8)
    assert "nothing to download: data set 'listops' reads no files" in err
    hopper = configs / "rl/hopper_medium.yaml"
    code, _, err = molslice("prepare", "--config", hopper, "--download")
    assert code == 1
    assert "Download the files of D4RL from http" in err


@pytest.mark.parametrize(
    ("config", "setting", "words"),
    [
        ("text/fasta.yaml", "data.path", "https://scop.berkeley.edu/astral"),
        ("language/wikitext2_small.yaml", "data.train_path", "molslice prepare"),
        ("vision/flowformer_imagenet.yaml", "data.root", "https://image-net.org"),
        ("series/uwave.yaml", "data.root", "timeseriesclassification.com"),
        ("vision/cifar10.yaml", "data.root", "cifar-10-binary.tar.gz"),
        ("lra/retrieval.yaml", "data.root", "lra_release.gz"),
        ("text/bbc_singularformer.yaml", "data.root", "http://mlg.ucd.ie/datasets/bbc.html"),
        ("text/mimic3_singularformer.yaml", "data.root", "https://physionet.org"),
        ("text/scope95_singularformer.yaml", "data.path", "https://scop.berkeley.edu/astral"),
    ],
)
def test_missing_data_say_how_to_get_them(molslice, tmp_path, config, setting, words):
    file = Path(__file__).parents[1] / "configs" / config
    code, _, err = molslice("train", "--config", file, f"--{setting}", "nowhere", "--out", tmp_path / "run")
    assert code == 1
    assert "no such f" in err
    assert words in err


def test_a_failed_download_says_how_to_get_the_data_by_hand(molslice, tmp_path, monkeypatch):
    def fail(options):
        raise MolsliceError("no network")

    monkeypatch.setattr(Imdb, "download", fail)
    file = Path(__file__).parents[1] / "configs/text/imdb_small.yaml"
    code, _, err = molslice("prepare", "--config", file, "--download", "--data.root", tmp_path)
    assert code == 1
    assert "no network. By hand: unpack https" in err


def test_a_finished_run_resumes_to_itself(molslice, run_folder):
    before = (run_folder / "model.safetensors").read_bytes()
    code, _, _ = molslice("train", "--resume", "--out", run_folder, "--quiet")
    assert code == 0
    assert (run_folder / "model.safetensors").read_bytes() == before


def test_a_run_is_never_overwritten(molslice, folder, run_folder):
    code, out, err = molslice("train", "--config", folder / "config.yaml", "--out", run_folder)
    assert (code, out) == (1, "")
    assert "--resume" in err


def bad_inputs(folder):
    config, run = folder / "config.yaml", folder / "run"
    truncated, foreign, empty = folder / "truncated", folder / "foreign", folder / "empty"
    for path in (truncated, foreign, empty):
        path.mkdir(exist_ok=True)
    (truncated / "model.safetensors").write_bytes((run / "model.safetensors").read_bytes()[:200])
    (foreign / "model.safetensors").write_bytes(b"PK\x03\x04 of another program")
    train = ["train", "--config", config, "--out", folder / "new"]
    data = {
        "empty": "",
        "bad": "smiles,gap\nx,1\ny,2\n",
        "infinite": "smiles,gap\nCCO,1\nCCN,inf\n",
        "words": "smiles,gap\nCCO,1\nCCN,much\n",
    }
    for name, text in data.items():
        (folder / f"{name}.csv").write_text(text)
    return {
        "no configuration": (["train", "--config", folder / "no.yaml", "--out", folder / "new"], "no.yaml"),
        "misspelt key": ([*train, "--optimizer.learning_rate", "1"], "unknown key 'optimizer.learning_rate'"),
        "misspelt section": ([*train, "--optimiser.lr", "1"], "did you mean 'optimizer'"),
        "wrong type": ([*train, "--model.dim", "wide"], "model.dim is 'wide'"),
        "unknown attention": ([*train, "--attention.name", "sotfmax"], "did you mean 'softmax'"),
        "negative workers": ([*train, "--data.workers", "-3"], "workers must be 0 to 1024, got -3"),
        "a million workers": ([*train, "--data.workers", "1000000"], "workers must be 0 to 1024"),
        "a billion layers": ([*train, "--model.num_layers", "1000000000"], "model.num_layers must be"),
        "a million threads": (
            [*train, "--trainer.num_threads", "1000000"],
            "trainer: num_threads is 1000000",
        ),
        "no data": ([*train, "--data.path", folder / "no.csv"], "no.csv"),
        "wrong column": ([*train, "--data.target_columns", "[gpa]"], "gpa"),
        "empty data": ([*train, "--data.path", folder / "empty.csv"], "empty.csv"),
        "only bad SMILES": ([*train, "--data.path", folder / "bad.csv"], "bad.csv"),
        "infinite target": ([*train, "--data.path", folder / "infinite.csv"], "infinite.csv"),
        "words for numbers": ([*train, "--data.path", folder / "words.csv"], "'much'"),
        "no run": (["evaluate", folder / "no"], "/no"),
        "not a run": (["evaluate", empty], "model.safetensors"),
        "truncated": (["predict", truncated, "--smiles", "C"], "truncated"),
        "foreign": (["predict", foreign, "--smiles", "C"], "foreign"),
        "no such model": (["predict", "gap-xbt", "--smiles", "C"], "models that ship"),
        "no such split": (["evaluate", run, "--split", "tset"], "tset"),
        "no such file": (["predict", run, "--input", "no.csv", "--output", folder / "o.csv"], "no.csv"),
        "not YAML": (["evaluate", run, "--data.root", "[a"], "--data.root"),
        "not a file": (["evaluate", run, "--data.path", folder], "Is a directory"),
        "a key below a name": (["evaluate", run, "--data.split.kind", "randm"], "did you mean 'random'"),
        "not of the data": (["evaluate", run, "--model.dim", "8"], "--model.dim"),
        "meta device": (["predict", run, "--smiles", "C", "--device", "meta"], "meta"),
        "a key that is a list": ([*train, "--model.name", "[a]"], "model.name is ['a']"),
        "a date": ([*train, "--seed", "2024-13-45"], "seed is '2024-13-45'"),
        "a large seed": ([*train, "--seed", "1" + "0" * 22], "64 bits"),
        "a folder for a file": (["params", "--config", folder], "Is a directory"),
        "a file for a folder": (["compare", "--runs", config, "--out", folder / "new"], "config.yaml"),
        "no device": (["predict", run, "--smiles", "C", "--device", "frog"], "frog"),
        "no such entry": (
            ["compare", "--config", config, "--attention", "softmax,frog", "--out", folder / "new"],
            "frog",
        ),
        "a million seeds": (
            ["compare", "--config", config, "--seeds", "1000000", "--out", folder / "new"],
            "seeds is 1000000, expected 1 to 10,000",
        ),
        "not finished": (["compare", "--runs", run, empty, "--out", folder / "new"], "empty"),
        "settings of params": (["params", "--config", config, "--model.preset", "hugh"], "model.preset"),
    }


def test_bad_input_is_one_line(molslice, folder, run_folder):
    for case, (words, message) in bad_inputs(folder).items():
        code, out, err = molslice(*words)
        assert (code, out) == (1, ""), case
        assert re.fullmatch(r"molslice: error: .+\n", err), (case, err)
        assert message in err, (case, err)
        assert not (folder / "new" / "model.safetensors").exists(), case
        assert not (folder / "o.csv").exists(), case


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["frob"],
        ["train"],
        ["train", "--config", "x.yaml"],
        ["train", "--out", "x"],
        ["train", "--config", "x.yaml", "--out", "y", "--optimizer.lr"],
        ["train", "--config", "x.yaml", "--out", "y", "--frob", "1"],
        ["predict", "gap-xtb"],
        ["predict", "gap-xtb", "--smiles", "C", "--input", "x.csv"],
        ["predict", "gap-xtb", "--smiles", "C", "--optimizer.lr", "1"],
        ["predict", "gap-xtb", "--smi", "C"],  # no abbreviations: they break when a flag is added
        ["compare", "--out", "x"],
        ["compare", "--config", "x", "--out", "x", "--seeds", "0"],
        ["compare", "--config", "x", "--out", "x", "--minutes", "-1"],
        ["compare", "--runs", "x", "--out", "x", "--minutes", "1"],
        ["compare", "--runs", "x", "--out", "x", "--seeds", "1"],
        ["prepare", "--dataset", "pcqm4m"],
        ["prepare", "--dataset", "qm9", "--root", "x"],
        ["prepare", "--config", "x.yaml", "--root", "y"],
        ["train", "--config", "", "--out", "y"],
        ["predict", "", "--smiles", "C"],
        ["predict", "gap-xtb", "--smiles", "C", "--workers", "-1"],
        ["predict", "gap-xtb", "--smiles", "C", "--workers", "100000"],
        ["generate", "x", "--seed", "10000000000000000000000"],
        ["generate", "x", "--tokens", "\u00b2"],
        ["fit", "a.csv", "--target", "y", "--out", "m", "--members", "1"],
        ["fit", "a.csv", "--target", "y", "--out", "m", "--members", "21"],
        ["rollout", "x", "--target-return", "nan"],
        ["study", "permutation", "--out", "x", "--seed", "-1"],
        ["bench", "--lengths", "8,,9"],
    ],
)
def test_wrong_usage(molslice, words):
    code, out, err = molslice(*words)
    assert (code, out) == (2, "")
    assert "error:" in err


def test_waiting_threads_sleep_soon_unless_the_user_says_otherwise(molslice, monkeypatch):
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    molslice("models")
    assert os.environ["GOMP_SPINCOUNT"] == "5"
    monkeypatch.delenv("GOMP_SPINCOUNT")
    with monkeypatch.context() as patch:
        patch.setenv("OMP_WAIT_POLICY", "ACTIVE")
        molslice("models")
        assert "GOMP_SPINCOUNT" not in os.environ
    molslice("models")
    assert os.environ["GOMP_SPINCOUNT"] == "10000"


@pytest.mark.parametrize("words", [["report", "x"], ["export", "x"], ["data", "show", "x", "--row", "0"]])
def test_a_folder_for_a_file_to_write_is_refused_before_the_work(molslice, tmp_path, words):
    code, _, err = molslice(*words, "--out", str(tmp_path))
    assert (code, "is a folder; give the name of a file" in err) == (2, True)


def test_wrong_usage_is_one_line_without_control_characters(molslice):
    code, _, err = molslice("train", "--out", "x", "--frob\nmore\x1b[31m")
    assert code == 2
    assert err.endswith("molslice train: error: unrecognized arguments: --frob\\nmore\\x1b[31m\n")


@pytest.mark.parametrize("option", ["--member", "--member=3"])
def test_an_unknown_option_is_an_error_of_its_verb(molslice, option):
    code, _, err = molslice("fit", "a.csv", "--target", "y", "--out", "m", option)
    assert (code, err.startswith("usage: molslice fit ")) == (2, True)
    assert err.endswith(f"error: unrecognized arguments: {option}; did you mean --members?\n")
    code, _, err = molslice("bench", "data", "--foo")
    assert (code, err.endswith("molslice bench data: error: unrecognized arguments: --foo\n")) == (2, True)


def test_an_unknown_option_is_reported_before_a_missing_one(molslice):
    code, _, err = molslice("fit", "a.csv", "--targt", "y", "--out", "m")
    assert code == 2
    assert err.endswith("error: unrecognized arguments: --targt; did you mean --target?\n")
    err = molslice("fit", "a.csv", "--out", "m", "--", "--targt")[2]
    assert err.endswith("error: the following arguments are required: --target\n")


def test_an_unknown_verb_names_similar_ones(molslice):
    code, out, err = molslice("fitt", "a.csv")
    assert (code, out) == (2, "")
    assert (
        f"molslice: error: unknown verb 'fitt'; did you mean 'fit'? choices: {', '.join(find_verbs())}" in err
    )
    assert "error: unknown verb 'a\\nb'; choices: bench, " in molslice("a\nb")[2]


def test_input_and_output_belong_together(molslice, run_folder):
    assert molslice("predict", run_folder, "--input", "x.csv")[0] == 2
    assert molslice("predict", run_folder, "--smiles", "C", "--output", "x.csv")[0] == 2


def test_help_shows_examples_that_parse(molslice):
    for verb in find_verbs():
        code, out, _ = molslice(verb, "--help")
        assert code == 0
        examples = out.partition("example:\n")[2].replace("\\\n", " ").strip().splitlines()
        assert examples
        for example in examples:
            program, *words = shlex.split(example, comments=True)
            assert program == "molslice"
            words, _ = split_overrides(words)
            args = build_parser().parse_args(words)
            assert args.verb == verb
            config = getattr(args, "config", None)
            assert config is None or (ROOT / config).is_file(), example
            if start := getattr(args, "start", None):
                wanted = load_run_config(ROOT / str(config), [("start.model", start)]).model
                found = read_config(find_model(start)).model
                assert [getattr(wanted, size) for size in SIZES] == [getattr(found, size) for size in SIZES]


def test_version(molslice):
    assert molslice("--version")[:2] == (0, f"molslice {__version__}\n")


def test_settings_are_taken_out_of_the_words():
    words = ["train", "--a.b", "1", "--out", "x.y", "--c.d=e=f", "--g.h", "-1", "--i.j", "--json"]
    rest, overrides = split_overrides(words)
    assert rest == ["train", "--out", "x.y", "--json"]
    assert overrides == [("a.b", "1"), ("c.d", "e=f"), ("g.h", "-1"), ("i.j", None)]


def test_a_bug_shows_its_traceback(molslice, run_folder, monkeypatch):
    from molslice.inference import load

    def faulty(*arguments, **options):
        raise ValueError("a fault")

    monkeypatch.setattr(load, "load_model", faulty)
    with pytest.raises(ValueError, match="a fault"):
        molslice("evaluate", run_folder)


@pytest.mark.parametrize("way", ["flag", "variable"])
def test_debug_shows_the_traceback(molslice, way, monkeypatch):
    if way == "variable":
        monkeypatch.setenv("MOLSLICE_DEBUG", "1")
    code, _, err = molslice("evaluate", "nothing", *(["--debug"] if way == "flag" else []))
    assert code == 1
    assert "Traceback" in err
    assert err.endswith("ship with molslice are " + err.rsplit("are ", 1)[1])
    assert MolsliceError.__name__ in err


def test_a_closed_output_is_not_an_error(tmp_path):
    folder = checkpoint_folder(tmp_path / "model")
    process = command("predict", folder, "--json", "--smiles", *["CCO"] * 3)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()  # before anything is written
    assert process.wait(timeout=120) == 0
    assert process.stderr.read() == ""


def test_an_interruption_ends_with_130(folder, tmp_path):
    words = ["train", "--config", folder / "config.yaml", "--out", tmp_path / "run"]
    process = command(*words, "--training.max_steps", "1000000", "--training.valid_every_steps", "5")
    deadline = time.monotonic() + 120
    while not (tmp_path / "run" / "checkpoints" / "last.ckpt").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert "--resume" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            "--help > /dev/full",
            1,
            "molslice: error: cannot write to standard output: No space left on device\n",
        ),
        ("study --list >&-", 1, "molslice: error: cannot write to standard output: it is closed\n"),
        ("--help | true", 0, ""),
        ("--help 2>&- > /dev/full", 1, ""),
        ("--bad 2> /dev/full", 2, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_one_line(words, code, message, tmp_path):
    done = run_in_shell(words, tmp_path)
    assert (done.returncode, done.stderr) == (code, message)


def test_a_closed_pipe_ends_a_prediction_quietly(tmp_path):
    (tmp_path / "in.csv").write_text("smiles\n" + "CCO\n" * 5000)
    words = "predict gap-xtb --input in.csv --output - --workers 0 --quiet | head -1"
    done = run_in_shell(words, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "smiles,homolumogap_eV,error\n", "")


def test_help_is_fast():
    code = "import sys; from molslice.cli import main; main(['--help']); main(['train', '--help']); "
    code += "print(sorted({'torch', 'numpy', 'rdkit', 'lightning', 'yaml'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: x\ny")]
)
def test_too_little_memory_is_one_line(molslice, monkeypatch, error):
    from molslice.inference import load

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr(load, "load_model", fail)
    code, out, err = molslice("evaluate", "gap-xtb")
    assert (code, out) == (1, "")
    assert re.fullmatch(r"molslice: error: not enough memory.*\n", err)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a.jsonl", "predict gap-xtb --output out.csv --input"),
        ("a.parquet.gz", "embed gap-xtb --output out.csv --input"),
        ("a.sdf", "rank gap-xtb --goal homolumogap>1 --input"),
        ("a.ism", "explain gap-xtb --out out --input"),
        ("a.xlsx", "fit --target y --out out"),
        ("a.JSONL.zst", "prepare --out out"),
    ],
)
def test_a_delimiter_is_refused_if_no_file_has_one(molslice, name, words):
    code, _, err = molslice(*words.split(), name, "--delimiter", ";")
    assert code == 2
    assert f"error: --delimiter needs a file of separated values, got {name}" in err


def test_what_is_kept_nowhere_is_not_resumed(molslice):
    words = ["embed", "gap-xtb", "--input", "a.csv", "--output", "memory://out.csv", "--resume"]
    code, _, err = molslice(*words)
    assert (code, "--resume needs a file on this machine as --output" in err) == (2, True)
