"""Parameters by part."""

from torch import nn

PARTS = {
    "atom_embedding": "atom embedding",
    "bond_embedding": "bond embedding",
    "virtual_node": "virtual node",
    "virtual_updates": "virtual node",
    "graph_bias": "graph bias",
    "encoder": "layers",
    "layers": "layers",
    "norms": "layers",
    "stages": "layers",
    "merges": "layers",
    "norm": "layers",
    "embedding": "embedding",
    "cls_token": "embedding",
    "distillation_token": "embedding",
    "head": "readout",
    "readout": "readout",
    "distilled_readout": "readout",
}
# tables looked up by an integer of the data; their size follows vocabulary and length, not the model
EMBEDDINGS = (
    "atom_embedding",
    "bond_embedding",
    "graph_bias.bond_embedding",
    "graph_bias.distance_embedding",
    "embedding.table",
    "embedding.positions",
)


def parameters_by_part(model: nn.Module) -> dict[str, int]:
    """Trainable parameters of each part, then "total" and "without embeddings".

    The last leaves out the tables that data look up (atoms, bonds, degrees, distances; words and positions).
    """
    counts: dict[str, int] = {}
    embeddings = 0
    for name, parameter in model.named_parameters():
        part = PARTS.get(name.split(".")[0], name.split(".")[0])
        counts[part] = counts.get(part, 0) + parameter.numel()
        if name.startswith(EMBEDDINGS):
            embeddings += parameter.numel()
    total = sum(counts.values())
    return {**counts, "total": total, "without embeddings": total - embeddings}
