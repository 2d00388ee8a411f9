"""Tests of seeds of dropout and of types of results; the kernels are tested in `test_triton_layers.py`."""

import torch

from molslice.ops.layer_steps import add_and_norm, draw_seed, seeds_drawn_at_once

TOKENS = torch.zeros(2, 3, 4)


def test_seeds_drawn_at_once_are_like_seeds_drawn_one_by_one():
    with seeds_drawn_at_once(TOKENS, 2):
        seeds = [draw_seed(TOKENS, 0.1) for _ in range(3)]  # the third is drawn alone
    for seed in [*seeds, draw_seed(TOKENS, 0.1)]:
        assert seed is not None
        assert (seed.shape, seed.dtype) == ((1,), torch.int64)
    assert len({int(seed) for seed in seeds}) == 3


def test_without_dropout_no_seed_is_drawn():
    with seeds_drawn_at_once(TOKENS, 0):
        assert draw_seed(TOKENS, 0.0) is None
    state = torch.get_rng_state()
    assert draw_seed(TOKENS, 0.0) is None
    assert torch.equal(torch.get_rng_state(), state)


def test_the_first_sum_has_the_type_asked_for():
    change, bias, norm = torch.randn(2, 3, 4), torch.randn(4), torch.nn.LayerNorm(4)
    total, normed = add_and_norm(None, change, bias, norm, 0.0, torch.float32, torch.bfloat16)
    assert (total.dtype, normed.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(total, (change + bias).bfloat16())
    assert add_and_norm(total, change, bias, norm, 0.0, torch.float32)[0].dtype == torch.bfloat16
    assert add_and_norm(None, change, bias, norm, 0.0, torch.bfloat16)[0].dtype == torch.float32


def test_a_compiled_function_draws_its_own_seed():
    def draw(tokens):
        return draw_seed(tokens, 0.1)

    with seeds_drawn_at_once(TOKENS, 2):
        seed = torch.compile(draw, backend="eager", fullgraph=True)(TOKENS)
    assert seed.shape == (1,)
    assert seed.dtype == torch.int64
