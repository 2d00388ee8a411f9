"""Measure speed and memory of attentions, of the training of molecule models, and of data loading.

Without an action, `molslice bench` measures attentions.
"""

from molslice.cli.bench import attention, data, flops, train

SUMMARY = "measure speed and memory"
EXAMPLE = """\
  molslice bench attention --attention softmax,slice_sort --lengths 256,512
  molslice bench train --models slim --attentions softmax,slice_sort
  molslice bench data --input molecules.csv --workers 2
  molslice bench flops --config configs/lra/text.yaml"""
ACTIONS = {"attention": attention, "train": train, "data": data, "flops": flops}
DEFAULT_ACTION = "attention"
