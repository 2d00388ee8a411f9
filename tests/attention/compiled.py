"""Program that compares compiled attentions with eager ones.

Usage: `python -m tests.attention.compiled BACKEND LABEL...`. It runs in a separate process, because the shape
checks that the tests add to every function cannot be compiled.
"""

import sys
from dataclasses import replace

import torch

from molslice.testing import Inputs
from tests.attention.subjects import all_subjects


def compare(label: str, backend: str) -> None:
    """Compare one attention forward and backward, compiled without graph breaks."""
    torch._dynamo.reset()
    subject = next(subject for subject in all_subjects() if subject.label == label)
    attention = subject.attention(torch.float32)
    compiled = torch.compile(attention, backend=backend, fullgraph=True)
    tokens, context, _ = Inputs.draw(9, 5, 1).batch(subject.spec, 10)
    tokens = tokens.float().requires_grad_()
    floats = {name: getattr(context, name) for name in ("pair_bias", "memory")}
    context = replace(context, **{name: None if x is None else x.float() for name, x in floats.items()})
    results = []
    for module in (attention, compiled):
        output = module(tokens, context)
        loss = (output.tokens * torch.linspace(-1, 1, tokens.numel()).view_as(tokens)).sum()
        loss = loss if output.penalty is None else loss + output.penalty
        given = [tokens, *attention.parameters()]  # the mean of a memory does not depend on the tokens
        results.append([output.tokens, *torch.autograd.grad(loss, given, materialize_grads=True)])
    for plain, fused in zip(*results, strict=True):
        torch.testing.assert_close(fused, plain, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in sys.argv[2:]:
        compare(name, sys.argv[1])
