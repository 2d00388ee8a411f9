"""Write docs/results/parameters.md: the parameter counts that papers print, beside the models of `configs/`.

Models are counted on the meta device, so no data are read. A test compares the page with the code:

    python benchmarks/parameter_page.py
"""

from dataclasses import dataclass

import torch
from tables import ROOT, left_aligned, markdown

from molslice.attention import ATTENTIONS
from molslice.config import RunConfig, load_config
from molslice.config.entries import describe_data
from molslice.data.images.base import Cutting
from molslice.model import AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.types import DataSpec, MolsliceError

PAGE = ROOT / "docs" / "results" / "parameters.md"
CONFIGS = ROOT / "configs"
MORE_ALLOWED = 0.10
SHOWN = ("softmax", "slice_sort", "flow", "singular")
HEAD = """# Parameters of the papers' models

The number of trainable parameters of each model whose count a paper prints, beside the same model here.
`benchmarks/parameter_page.py` generates the page from the files in `configs/`, and
`molslice params` counts the model of any configuration. *Difference* is ours minus the paper's. It is 0 if
ours, rounded as in the paper, is the printed number. Tables without counts and models that molslice does not
have are left out.
"""
ARENA = f"""## Long Range Arena

The arena prints no counts, but its rules allow a model at most {MORE_ALLOWED:.0%} more parameters than its
Transformer. Every attention is counted with its default options in each configuration, and compared with
`softmax` there. An attention is refused where it does not support a setting, such as `head_dim`.
"""


@dataclass(frozen=True)
class Printed:
    """A count that a paper prints.

    Attributes:
        model: The model as the paper names it.
        config: The configuration, a path in `configs/` without its ending.
        attention: The attention.
        millions: The printed count in millions, with the digits of the paper.
        why: Reason of a difference, or what a count depends on; empty without one.
        overrides: Settings that differ from the configuration.
        classes: Number of classes of a folder of images, which the configuration does not determine.
    """

    model: str
    config: str
    attention: str
    millions: str
    why: str = ""
    overrides: tuple[tuple[str, str], ...] = ()
    classes: int | None = None

    @property
    def settings(self) -> str:
        """The configuration with its overrides, for the page."""
        words = [f"{self.config}.yaml", *(f"--{key} {value}" for key, value in self.overrides)]
        return f"`{' '.join(words)}`"


def orders(
    config: str, counts: tuple[str, str], *, why: tuple[str, str] = ("", ""), classes: int | None = None
) -> list[Printed]:
    """Return the rows of a Transformer and of Sliceformer, whose orders have equal counts."""
    names = ("Transformer", "softmax"), ("Sliceformer, ascending and interleave", "slice_sort")
    return [
        Printed(model, f"{config}", attention, millions, reason, classes=classes)
        for (model, attention), millions, reason in zip(names, counts, why, strict=True)
    ]


LEGACY = (("model.legacy_vocab", "true"),)
SMALL = tuple((f"model.{key}", value) for key, value in (("preset", "small"), ("legacy_vocab", "true")))
GIN = tuple(
    (f"model.{key}", value) for key, value in (("name", "gin_virtual"), ("num_layers", "5"), ("dim", "600"))
)
NO_DEAD_ROWS = "embedding tables have no rows for features that do not occur; the function is the same"
THOUSAND = "the paper counts an output for 1,000 classes, here there are 200"
TABLES: dict[str, list[Printed]] = {
    "PCQM4M-LSC: Graphormer (arXiv 2106.05234) and Sliceformer (arXiv 2310.17683)": [
        Printed("Graphormer, base", "molecule/pcqm4m_v1", "softmax", "47.09", NO_DEAD_ROWS),
        Printed("Graphormer, base", "molecule/pcqm4m_v1", "softmax", "47.09", overrides=LEGACY),
        Printed("Sliceformer", "molecule/pcqm4m_v1", "slice_sort", "32.91", NO_DEAD_ROWS),
        Printed("Sliceformer", "molecule/pcqm4m_v1", "slice_sort", "32.91", overrides=LEGACY),
        Printed(
            "Graphormer, small",
            "molecule/pcqm4m_v1",
            "softmax",
            "12.5",
            "the paper drops the digits after 12.5",
            SMALL,
        ),
        Printed("GIN-virtual", "molecule/pcqm4m_v1", "softmax", "6.7", overrides=GIN),
    ],
    "Images: ViT and Sliceformer (arXiv 2310.17683)": [
        *orders("vision/dogs_vs_cats", ("1.90", "1.11"), classes=2),
        *orders(
            "vision/mnist",
            ("9.60", "6.50"),
            why=("the paper has the count for images of 32 x 32", "the paper's count is for neither size"),
        ),
        *orders("vision/cifar10", ("9.60", "6.46")),
        *orders("vision/cifar100", ("9.65", "6.50")),
        *orders("vision/tiny_imagenet", ("22.05", "18.50"), why=(THOUSAND, THOUSAND), classes=200),
    ],
    "ImageNet: Flowformer (arXiv 2202.06258) and DeiT (arXiv 2012.12877)": [
        Printed(
            "Flowformer",
            "vision/flowformer_imagenet",
            "flow",
            "41",
            "ours is the count of the released code, 41.3 x 2^20; the table of the paper has the unit MB",
            classes=1000,
        ),
        Printed("DeiT-S", "vision/image_folder", "softmax", "22", classes=1000),
        Printed("DeiT-S, distilled", "vision/deit_distilled", "softmax", "22", classes=1000),
    ],
    "IMDB: Transformer and Sliceformer (arXiv 2310.17683)": orders("text/imdb_sliceformer", ("8.84", "8.05")),
}


def count(config: RunConfig, attention: AttentionChoice, data: DataSpec) -> int:
    """Count the trainable parameters of a model on the meta device.

    Raises:
        MolsliceError: The attention does not support the configuration.
    """
    with torch.device("meta"):
        return parameters_by_part(build_model(config.model, attention, data))["total"]


def count_printed(row: Printed) -> int:
    """Count the parameters of our model of a row."""
    config = load_config(CONFIGS / f"{row.config}.yaml", list(row.overrides))
    return count(config, AttentionChoice(row.attention), describe(config, row.classes))


def describe(config: RunConfig, classes: int | None = None) -> DataSpec:
    """Return the properties of the data, from the configuration alone.

    Args:
        config: The configuration.
        classes: Number of classes of a folder of color images; None for other data.
    """
    if config.data.name.startswith("pcqm4m"):
        return DataSpec(1)
    if classes is None:
        return describe_data(config)
    size = config.data.options["size"]
    return Cutting.of(config.data.options).describe(classes, size, size, 3)


def difference(parameters: int, millions: str) -> str:
    """Return a count minus a printed one, in millions and percent, or `0` if it rounds to that one."""
    digits = len(millions.partition(".")[2])
    if f"{parameters / 1e6:.{digits}f}" == millions:
        return "0"
    change = parameters / 1e6 - float(millions)
    return f"{change:+.2f} M ({change / float(millions):+.1%})"


def printed_table(rows: list[Printed]) -> str:
    """Return the table of the counts that a paper prints."""
    cells = []
    for row in rows:
        parameters = count_printed(row)
        numbers = [f"{row.millions} M", f"{parameters:,}", difference(parameters, row.millions)]
        cells.append([row.model, row.settings, f"`{row.attention}`", *numbers, row.why])
    return left_aligned(["model", "configuration", "attention", "paper", "ours", "difference", "why"], cells)


def compare(config: RunConfig) -> tuple[dict[str, int], list[str]]:
    """Return the count of each attention in a configuration, and the attentions that do not support it."""
    data, counts, refused = describe(config), {}, []
    for name in ATTENTIONS.names():
        try:
            counts[name] = count(config, AttentionChoice(name), data)
        except MolsliceError:
            refused.append(name)
    return counts, refused


def above_limit(counts: dict[str, int]) -> list[str]:
    """Return the attentions with more parameters than the rule of the arena allows."""
    return [name for name, number in counts.items() if number > (1 + MORE_ALLOWED) * counts["softmax"]]


def arena_section() -> str:
    """Return the section of Long Range Arena."""
    rows = []
    for path in sorted(CONFIGS.glob("lra/**/*.yaml")):
        if path.stem.endswith("_small"):
            continue
        counts, refused = compare(load_config(path))
        lists = [", ".join(f"`{name}`" for name in names) or "-" for names in (above_limit(counts), refused)]
        rows.append([f"`{path.relative_to(CONFIGS)}`", *(f"{counts[name]:,}" for name in SHOWN), *lists])
    header = ["", *(f"`{name}`" for name in SHOWN), f"above {MORE_ALLOWED:.0%}", "refused"]
    return f"{ARENA}\n{markdown(header, rows)}\n"


def make_page() -> str:
    """Return the page."""
    parts = [f"## {title}\n\n{printed_table(rows)}\n" for title, rows in TABLES.items()]
    return "\n".join([HEAD, *parts, arena_section()])


if __name__ == "__main__":
    PAGE.write_text(make_page(), encoding="utf-8")
