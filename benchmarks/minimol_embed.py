"""Write the fingerprints of MiniMol: float32 [n, 512] in a .npy file, from a file with one SMILES a line.

`small_data.py` starts this program in a separate environment, so it does not import molslice. The wheel of
minimol has the weights. Without dependencies it needs no compiled extensions of torch:

    python -m venv minimol
    minimol/bin/pip install --no-deps minimol==1.3.5 graphium==2.4.7 mup==1.0.0
    minimol/bin/pip install torch torch-geometric lightning torchmetrics==0.10.3 rdkit datamol scipy==1.14.1
    minimol/bin/pip install 'setuptools<81' fastparquet 'hydra-core>=1.3' loguru matplotlib platformdirs
    minimol/bin/pip install scikit-learn

Later versions of scipy have no sparse matrices of float16. The extensions torch-scatter and torch-sparse are
replaced here. The model uses nothing of torch-sparse, and torch_geometric reduces as torch-scatter does.

Source: Klaeser et al. 2024, https://arxiv.org/abs/2404.14986
"""

import sys
import warnings
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import scatter  # it would use the replacements, so it is imported first


def scatter_rows(
    src: Tensor,
    index: Tensor,
    dim: int = -1,
    out: None = None,
    dim_size: int | None = None,
    reduce: str = "sum",
) -> Tensor:
    """Reduce by index, with the arguments of torch-scatter."""
    assert out is None
    return scatter(src, index, dim, dim_size, reduce)


def replace_extensions() -> None:
    """Make torch-scatter and torch-sparse importable."""
    for module, content in {
        "torch_scatter": {"scatter": scatter_rows, "scatter_add": scatter_rows},
        "torch_sparse": {"SparseTensor": type("SparseTensor", (), {})},
    }.items():
        sys.modules[module] = ModuleType(module)
        vars(sys.modules[module]).update(content)


def main(lines: str, out: str) -> None:
    """Embed the molecules of a file."""
    replace_extensions()
    warnings.simplefilter("ignore")
    from minimol import Minimol  # pyright: ignore[reportMissingImports]

    model = Minimol()
    model.datamodule.featurization_n_jobs = 1  # another process would not have the replacements
    smiles = Path(lines).read_text(encoding="utf-8").splitlines()
    np.save(out, torch.stack(model(smiles)).numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
