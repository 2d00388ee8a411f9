import copy

import pytest
import torch
from torch import nn

from molslice.attention import ATTENTIONS
from molslice.config import OptimizerConfig
from molslice.model import MODELS, AttentionChoice, build_model
from molslice.model.count import parameters_by_part
from molslice.model.graphormer import GraphormerSpec
from molslice.model.sequences.hierarchical import HierarchicalSpec
from molslice.training.fabric import seed_step
from molslice.training.optimizer import WeightAverage, build_optimizer, learning_rate, parameter_groups
from molslice.training.run import train
from molslice.types import AttentionSpec, DataSpec, MolsliceError


@pytest.fixture(scope="module")
def model():
    return build_model(
        GraphormerSpec(num_layers=2, dim=16, ffn_dim=16, num_heads=2), AttentionChoice(), DataSpec(1)
    )


def test_matrices_decay_and_norms_biases_and_tables_do_not(model):
    groups = {
        group["weight_decay"]: {id(p) for p in group["params"]} for group in parameter_groups(model, 0.1)
    }
    names = {id(p): name for name, p in model.named_parameters()}
    decayed = {names[i] for i in groups[0.1]}
    kept = {names[i] for i in groups[0.0]}
    assert decayed | kept == set(names.values())
    assert not decayed & kept
    assert all("embedding" not in name and "norm" not in name and name[-4:] != "bias" for name in decayed)
    assert {"readout.weight", "graph_bias.hop_weight"} <= decayed
    assert {"readout.bias", "atom_embedding.features.weight", "graph_bias.distance_embedding.weight"} <= kept


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"warmup_steps": 4}, {0: 0.25, 3: 1.0, 4: 1.0, 52: 0.5, 99: 1 / 96}),
        ({"warmup_fraction": 0.04}, {0: 0.25, 3: 1.0, 52: 0.5}),
        ({"warmup_steps": 0, "schedule": "cosine"}, {0: 1.0, 50: 0.5}),
        ({"warmup_steps": 0, "schedule": "cosine", "end_lr_fraction": 0.2}, {0: 1.0, 50: 0.6}),
        ({"warmup_steps": 2, "schedule": "constant"}, {0: 0.5, 99: 1.0}),
        ({"warmup_steps": 200}, {0: 1 / 200, 99: 0.5}),
        ({"warmup_steps": 4, "schedule": "inverse_sqrt"}, {0: 0.25, 3: 1.0, 4: (4 / 5) ** 0.5, 99: 0.2}),
        ({"warmup_steps": 0, "schedule": "inverse_sqrt"}, {0: 1.0, 3: 0.5}),
    ],
)
def test_the_schedule(options, expected):
    config = OptimizerConfig(lr=3.0, **options)
    for step, fraction in expected.items():
        assert learning_rate(config, step, 100) == pytest.approx(3.0 * fraction)


def test_the_betas_are_those_of_the_configuration():
    config = OptimizerConfig(lr=0.1, weight_decay=0.0, betas=(0.5, 0.75))
    layer = nn.Linear(1, 1, bias=False)
    before = layer.weight.item()
    optimizer = build_optimizer(layer, config, fused=True)
    for gradient in (1.0, -3.0):
        layer.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
    # the moments of the second step: (0.25 - 1.5) / 0.75 and (0.1875 + 2.25) / 0.4375
    second = -(1.25 / 0.75) / (2.4375 / 0.4375) ** 0.5
    assert layer.weight.item() == pytest.approx(before - 0.1 - 0.1 * second, abs=1e-6)


def test_radam_is_the_formula_of_the_paper_with_decay_apart():
    config = OptimizerConfig(name="radam", lr=0.1, weight_decay=0.5, betas=(0.9, 0.8))
    layer = nn.Linear(1, 1, bias=False).double()
    optimizer, draw = build_optimizer(layer, config, fused=True), torch.Generator().manual_seed(0)
    weight, first, second, longest = layer.weight.item(), 0.0, 0.0, 2 / (1 - 0.8) - 1
    rectified = 0
    for step in range(1, 13):
        gradient = torch.randn(1, 1, generator=draw, dtype=torch.float64)
        layer.weight.grad, g = gradient, gradient.item()
        optimizer.step()
        first, second = 0.9 * first + 0.1 * g, 0.8 * second + 0.2 * g * g
        length = longest - 2 * step * 0.8**step / (1 - 0.8**step)
        change = first / (1 - 0.9**step)
        if length > 5:
            top = (length - 4) * (length - 2) * longest
            change *= (top / ((longest - 4) * (longest - 2) * length)) ** 0.5
            change /= (second / (1 - 0.8**step)) ** 0.5
            rectified += 1
        weight = weight * (1 - 0.1 * 0.5) - 0.1 * change
        assert layer.weight.item() == pytest.approx(weight, abs=1e-7)
    assert 0 < rectified < 12  # both forms of a step


def test_one_update_is_adamw_with_decay_on_matrices_alone():
    config = OptimizerConfig(lr=0.1, weight_decay=0.5)
    layer = nn.Linear(2, 2)
    before = copy.deepcopy(layer)
    optimizer = build_optimizer(layer, config, fused=True)
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    # the first step of Adam is lr times the sign of the gradient, which is one here
    assert torch.allclose(layer.weight, before.weight * (1 - 0.1 * 0.5) - 0.1, atol=1e-6)
    assert torch.allclose(layer.bias, before.bias - 0.1, atol=1e-6)


@pytest.mark.parametrize("steps", [1, 5, 199])  # after many steps the decay of the first ones is forgotten
def test_the_average_is_the_sum_with_growing_decay(steps):
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    average = WeightAverage(module, 0.9)
    expected, statistics = module[0].weight.detach().clone(), torch.zeros(2)
    for step in range(1, steps + 1):
        with torch.no_grad():
            module[0].weight += 0.1
            module[1].running_mean += 1.0
            module[1].num_batches_tracked += 1
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * module[0].weight.detach()
        statistics = decay * statistics + (1 - decay) * module[1].running_mean
    assert torch.allclose(average.model[0].weight, expected, atol=1e-4)
    assert torch.allclose(average.model[1].running_mean, statistics, atol=1e-2)
    assert average.model[1].num_batches_tracked == 0
    average.take_counters()
    assert average.model[1].num_batches_tracked == steps
    assert not any(p.requires_grad for p in average.model.parameters())
    assert not average.model.training


def test_random_numbers_of_a_step_depend_on_seed_step_and_rank():
    def draw(*key):
        seed_step(*key, torch.device("cpu"))
        return torch.rand(4).tolist()

    assert draw(1, 2, 3) == draw(1, 2, 3)
    assert len({tuple(draw(*key)) for key in [(1, 2, 3), (2, 2, 3), (1, 3, 3), (1, 2, 4), (2, 1, 3)]}) == 5


def test_the_positions_of_a_model_in_stages_do_not_decay():
    data = DataSpec(3, "values", channels=4, max_tokens=16, grid=(4, 4))
    model = build_model(HierarchicalSpec((8, 8), (1, 1), 2), AttentionChoice(), data)
    kept = {id(parameter) for parameter in parameter_groups(model, 0.1)[1]["params"]}
    assert id(model.embedding.positions) in kept
    assert id(model.embedding.linear.weight) not in kept


DISTILLED = {"readout": "cls_distilled"}
TABLES = {  # of more than one dimension, which do not decay
    "graphormer": (
        DataSpec(1),
        {},
        {
            "atom_embedding.features.weight",
            "atom_embedding.degree.0.weight",
            "graph_bias.bond_embedding.weight",
            "graph_bias.distance_embedding.weight",
        },
    ),
    "graphormer_pretraining": (
        DataSpec(1, num_atom_outputs=1),
        {},
        {
            "atom_embedding.features.weight",
            "atom_embedding.degree.0.weight",
            "graph_bias.bond_embedding.weight",
            "graph_bias.distance_embedding.weight",
        },
    ),
    "gin_virtual": (DataSpec(1), {}, {"atom_embedding.weight", "bond_embedding.0.weight"}),
    "sequence": (
        DataSpec(2, "ids", vocabulary_size=5, max_tokens=4),
        DISTILLED,
        {"embedding.table.weight", "embedding.positions"},
    ),
    "language": (
        DataSpec(5, "ids", vocabulary_size=5, max_tokens=4),
        {"positions": "learned"},
        {"embedding.table.weight", "embedding.positions"},
    ),
    "decision": (
        DataSpec(2, "steps", channels=3, max_tokens=6, timesteps=9),
        {},
        {"embedding.positions.weight"},
    ),
    "behavior_cloning": (DataSpec(2, "steps", channels=3, max_tokens=6, timesteps=9), {}, set()),
    "hierarchical": (
        DataSpec(3, "values", channels=4, max_tokens=16, grid=(4, 4)),
        {"dims": (8,), "depths": (1,)},
        {"embedding.positions"},
    ),
}


SIZED = {"hierarchical": ("num_heads",), "behavior_cloning": ("num_layers", "dim")}


@pytest.mark.parametrize("name", MODELS.names())
def test_tables_that_do_not_decay_are_those_that_are_not_counted(name):
    data, options, tables = TABLES[name]
    sizes = {"num_layers": 1, "dim": 8, "ffn_dim": 8, "num_heads": 2}
    if name in SIZED:
        sizes = {key: sizes[key] for key in SIZED[name]}
    model = build_model(MODELS.find(name)(**sizes, **options), AttentionChoice(), data)
    named = dict(model.named_parameters())
    kept = {id(parameter) for parameter in parameter_groups(model, 0.1)[1]["params"]}
    assert {key for key, p in named.items() if p.ndim > 1 and id(p) in kept} == tables
    counts = parameters_by_part(model)
    # vectors that stand for a row of a table: the graph token, and the embeddings of hidden atoms and bonds
    vectors = {"graphormer": 8, "graphormer_pretraining": 8 + 8 + 2}
    embeddings = sum(named[key].numel() for key in tables) + vectors.get(name, 0)
    assert counts["total"] - counts["without embeddings"] == embeddings


def test_the_name_of_a_class_decides_nothing():
    class LinearEmbedding(nn.Linear):
        pass

    class Table(nn.Module):
        lookup_tables = ("rows",)

        def __init__(self):
            super().__init__()
            self.rows = nn.Parameter(torch.zeros(2, 2))

    linear, table = LinearEmbedding(2, 2), Table()
    decayed, kept = parameter_groups(nn.ModuleList([linear, table]), 0.1)
    assert decayed["params"] == [linear.weight]
    assert {id(p) for p in kept["params"]} == {id(linear.bias), id(table.rows)}


# parameters of the attentions that are matrices, besides the weights of their maps
MATRICES = {
    "linformer": {"project_key", "project_value"},
    "synthesizer": {"score_weight", "scores", "row_factor", "column_factor"},
}


@pytest.mark.parametrize("name", ATTENTIONS.names())
def test_vectors_of_an_attention_do_not_decay_and_are_no_matrices(name):
    options = {"random_feature": [{"learned_scale": True}], "slice_sort": [{"order": "multi_permutation"}]}
    for given in options.get(name, [{}]):
        attention = ATTENTIONS.build(name, AttentionSpec(16, 2, max_tokens=8), options=given)
        vectors = {
            key
            for key, parameter in attention.named_parameters()
            if not key.endswith("weight") and key not in MATRICES.get(name, ())
        }
        decays = {
            id(parameter): group["weight_decay"] > 0
            for group in parameter_groups(attention, 0.1)
            for parameter in group["params"]
        }
        optimizer = build_optimizer(attention, OptimizerConfig(name="muon"), fused=False)
        of_muon = {
            id(parameter)
            for group in optimizer.param_groups
            if "momentum" in group
            for parameter in group["params"]
        }
        for key, parameter in attention.named_parameters():
            assert decays[id(parameter)] == (key not in vectors), key
            assert (id(parameter) in of_muon) == (parameter.ndim == 2 and key not in vectors), key


def newton_schulz(matrix):
    """The iteration of Muon in float64, on the smaller side."""
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / max(x.norm().item(), 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


@pytest.mark.parametrize("has_mkldnn", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)])
def test_muon_moves_matrices_by_orthogonal_steps(shape, has_mkldnn, monkeypatch):
    if not has_mkldnn:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    tolerance = 5e-3 if has_mkldnn else 1e-5
    config = OptimizerConfig(name="muon", lr=0.1, weight_decay=0.5)
    layer = nn.Linear(shape[1], shape[0], bias=False)
    optimizer, draw = build_optimizer(layer, config, fused=True), torch.Generator().manual_seed(0)
    weight, momentum = layer.weight.detach().double(), torch.zeros(shape, dtype=torch.float64)
    for _ in range(3):
        gradient = torch.randn(shape, generator=draw)
        layer.weight.grad = gradient
        optimizer.step()
        momentum = 0.95 * momentum + 0.05 * gradient.double()
        step = newton_schulz(0.95 * momentum + 0.05 * gradient.double())
        singular = torch.linalg.svdvals(step)
        assert singular.min() > 0.6
        assert singular.max() < 1.3
        weight = weight * (1 - 0.1 * 0.5) - 0.1 * 0.2 * max(shape) ** 0.5 * step
        torch.testing.assert_close(layer.weight.double(), weight, atol=tolerance, rtol=0)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_muon_leaves_tables_vectors_and_stacks_to_adamw(model, decay):
    optimizer = build_optimizer(model, OptimizerConfig(name="muon", weight_decay=decay), fused=True)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    moved = {
        names[id(parameter)]
        for group in optimizer.param_groups
        if "momentum" in group
        for parameter in group["params"]
    }
    assert {"encoder.layers.0.attention.output.weight", "readout.weight"} <= moved
    assert not any("embedding" in name or "norm" in name or name.endswith("bias") for name in moved)
    assert "graph_bias.hop_weight" not in moved  # three axes
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(names)


def test_the_other_parameters_of_muon_move_as_by_adamw(model):
    copies = [copy.deepcopy(model) for _ in range(2)]
    for name, one in zip(("muon", "adamw"), copies, strict=True):
        optimizer = build_optimizer(one, OptimizerConfig(name=name, lr=0.1, weight_decay=0.1), fused=True)
        for _ in range(2):
            for place, parameter in enumerate(one.parameters()):
                parameter.grad = torch.full_like(parameter, float(place + 1)) * (parameter.detach() > 0)
            optimizer.step()
    for (name, one), two in zip(copies[0].named_parameters(), copies[1].parameters(), strict=True):
        is_matrix = one.ndim == 2 and "embedding" not in name
        assert torch.equal(one, two) != is_matrix, name


def test_muon_continues_from_its_state(model):
    def steps(one, optimizer, seeds):
        for seed in seeds:
            draw = torch.Generator().manual_seed(seed)
            for parameter in one.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=draw)
            optimizer.step()

    config = OptimizerConfig(name="muon", lr=0.1)
    whole, first = copy.deepcopy(model), copy.deepcopy(model)
    steps(whole, build_optimizer(whole, config, fused=True), range(4))
    optimizer = build_optimizer(first, config, fused=True)
    steps(first, optimizer, range(2))
    second = copy.deepcopy(first)
    continued = build_optimizer(second, config, fused=True)
    continued.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    steps(second, continued, range(2, 4))
    assert all(torch.equal(*pair) for pair in zip(whole.parameters(), second.parameters(), strict=True))


def test_muon_is_refused_without_matrices():
    with pytest.raises(MolsliceError, match="needs a model with matrices"):
        build_optimizer(nn.LayerNorm(2), OptimizerConfig(name="muon"), fused=True)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon")
def test_muon_takes_the_steps_of_torch():
    shapes = [(8, 8), (8, 8), (4, 8), (8, 4), (3, 5), (8, 8)]
    draw = torch.Generator().manual_seed(0)
    layers = nn.ModuleList(nn.Linear(columns, rows, bias=False) for rows, columns in shapes)
    copies = copy.deepcopy(layers)
    one = build_optimizer(layers, OptimizerConfig(name="muon", lr=0.02, weight_decay=0.1), fused=True)
    two = torch.optim.Muon(copies.parameters(), lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for step in range(4):
        for place, (mine, other) in enumerate(zip(layers.parameters(), copies.parameters(), strict=True)):
            gradient = torch.randn(mine.shape, generator=draw)
            # one matrix has no gradient in some steps
            mine.grad, other.grad = (None, None) if place == step else (gradient, gradient.clone())
        one.step()
        two.step()
    for mine, other in zip(layers.parameters(), copies.parameters(), strict=True):
        torch.testing.assert_close(mine, other, atol=2e-3, rtol=0)  # both take bfloat16


def test_muon_reads_a_rate_from_memory(model):
    copies = [copy.deepcopy(model) for _ in range(2)]
    for is_tensor, one in zip((True, False), copies, strict=True):
        optimizer = build_optimizer(one, OptimizerConfig(name="muon", lr=0.1), fused=True)
        for group in optimizer.param_groups:
            group["lr"] = torch.tensor(0.03) if is_tensor else 0.03
        for place, parameter in enumerate(one.parameters()):
            parameter.grad = parameter.detach().cos() * (place + 1)
        optimizer.step()
    for mine, other in zip(copies[0].parameters(), copies[1].parameters(), strict=True):
        torch.testing.assert_close(mine, other)


def test_muon_is_refused_where_matrices_are_divided(build_config, tmp_path):
    config = build_config(optimizer={"name": "muon"}, trainer={"strategy": "fsdp"})
    with pytest.raises(MolsliceError, match="muon needs whole matrices"):
        train(config, tmp_path / "run", quiet=True)
