"""Measure speed and memory: of attentions on sequences, and of the training of models of molecules.

Without an action, `molslice bench` measures attentions.
"""

from molslice.cli.bench import attention, train

SUMMARY = "measure speed and memory"
EXAMPLE = """\
  molslice bench attention --attention softmax,slice_sort --lengths 256,512
  molslice bench train --models slim --attentions softmax,slice_sort"""
ACTIONS = {"attention": attention, "train": train}
DEFAULT_ACTION = "attention"
