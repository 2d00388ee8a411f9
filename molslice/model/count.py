"""Counts of parameters by part, and the parameters that are lookup tables. See `molslice.model`."""

from collections.abc import Iterator

from torch import nn


def lookup_tables(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters that are looked up by an integer of the data or by a position.

    Their size depends on the vocabulary and the length, not on the model, and weight decay would shrink rows
    that are rarely looked up. They are the weights of each `nn.Embedding` and the parameters that a module
    names in `lookup_tables`.
    """
    for submodule in module.modules():
        is_embedding = isinstance(submodule, nn.Embedding)
        for name in ("weight",) if is_embedding else getattr(submodule, "lookup_tables", ()):
            parameter = getattr(submodule, name)
            if parameter is not None:
                yield parameter


def stacked_vectors(module: nn.Module) -> Iterator[nn.Parameter]:
    """Yield the parameters of several axes that are vectors and not matrices, such as a bias of each head.

    They are the parameters that a module names in `vectors`. They are optimized as biases and norms are.
    """
    for submodule in module.modules():
        for name in getattr(submodule, "vectors", ()):
            parameter = getattr(submodule, name, None)
            if parameter is not None:
                yield parameter


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Count the trainable parameters of each part, then "total" and "without embeddings".

    The attribute `parts` of the model maps names of children or parameters to names of parts. The last count
    omits `lookup_tables`.
    """
    parts = getattr(model, "parts", {})
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        child = name.split(".")[0]
        label = parts.get(child, child)
        counts[label] = counts.get(label, 0) + parameter.numel()
    total = sum(counts.values())
    embeddings = sum(table.numel() for table in lookup_tables(model))
    return {**counts, "total": total, "without embeddings": total - embeddings}
