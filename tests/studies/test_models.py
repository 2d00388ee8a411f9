"""The calls of the attentions of a model that a study looks at."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from molslice.model import AttentionChoice
from molslice.model.sequences.sequence import SequenceClassifier, SequenceSpec
from molslice.studies.models import calls_of
from molslice.types import DataSpec, SequenceBatch

WORDS = DataSpec(3, "ids", vocabulary_size=11, max_tokens=12)


@pytest.mark.parametrize("paired", [False, True])
def test_of_paired_sequences_the_calls_are_of_the_first(paired):
    data = replace(WORDS, paired=paired)
    spec = SequenceSpec(num_layers=2, dim=8, ffn_dim=16, num_heads=2)
    model = SequenceClassifier(spec, AttentionChoice("softmax"), data)
    batch = SequenceBatch(torch.randint(1, 11, (2, 5)), torch.ones(2, 5, dtype=torch.bool))
    if paired:
        other = torch.randint(1, 11, (2, 7))
        batch = replace(batch, pair_tokens=other, pair_mask=torch.ones(2, 7, dtype=torch.bool))
    calls = calls_of(model, SimpleNamespace(spec=data), batch)
    assert [call.tokens.shape[1] for call in calls] == [5, 5]
