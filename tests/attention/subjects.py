"""Attentions under test, with every option, pair bias mode and direction that their traits declare."""

from itertools import product

from molslice.attention import ATTENTIONS
from molslice.attention.references import find_reference
from molslice.testing import Subject, subjects_of

# Options that deserve a contract of their own; an attention that is not named here is tested as it comes.
OPTIONS = {
    "slice_sort": [
        {"order": order, "form": form, "placement": placement}
        for order, form, placement in product(
            ["ascending", "descending", "half", "interleave", "max_exchange", "multi_permutation", "shuffle"],
            ["sort_of_mix", "mix_plus_sort"],
            ["index", "aligned"],
        )
    ],
    "softmax": [{}, {"fused": False}],
    "flow": [{}, {"clamp": 1.0}],
    "singular": [{}, {"rank": 3}],
    "performer": [{}, {"num_features": 3, "seed": 1}],
    "random_feature": [{}, {"num_features": 7, "learned_scale": False}],
    "linformer": [{"rank": 3, "share": share} for share in ("heads", "none", "kv")],
    "sample_permutation": [{}, {"group_size": 3}, {"shift": "power"}],
    "soft_sort": [{}, {"temperature": 0.2}],
    "key_sort": [{}, {"gate": False, "slope": 1.0}],
    "flash_quad": [{"key_dim": 4}],
    "flash_linear": [{"chunk_size": 2, "key_dim": 3}, {"chunk_size": 3, "key_dim": 8, "expansion": 1}],
    "sinkhorn": [{}, {"iterations": 5}],
    "synthesizer": [{"kind": "dense"}, {"kind": "random"}, {"kind": "factorized", "rank": 3}],
    "nystrom": [{"landmarks": 3}, {"landmarks": 4, "iterations": 2}],
    "reformer": [
        {"chunk_size": 2, "num_rounds": 2, "num_buckets": 2},
        {"chunk_size": 3, "num_rounds": 3, "num_buckets": 4},
    ],
    "sinkhorn_blocks": [
        {"block_size": 2, "iterations": 1, "temperature": 4.0},
        {"block_size": 3, "iterations": 2, "temperature": 4.0},
    ],
    "local": [{"window": 2}],
    "longformer": [{"window": 2, "num_global": 2}],
    "sparse": [
        {},
        {"pattern": "fixed", "summary": 1},
        {"pattern": "strided", "stride": 2},
        {"pattern": "fixed", "stride": 3, "factors": "heads"},
    ],
    "bigbird": [
        {"block": 1, "num_global": 1, "num_random": 1},
        {"block": 2, "num_global": 1, "num_random": 0},
    ],
    "soft": [{"num_landmarks": 3}],
    "yoso": [{"form": "expected", "code_length": 3}, {"form": "sampled", "code_length": 2, "num_hashes": 4}],
}
# Parameters that a softmax cancels: a key's bias adds the same number to all scores of a query. They stand in
# the published counts, so they stay.
CANCELLED = {("softmax", "key.bias"), ("singular", "key.bias"), ("soft", "query.bias")}
CANCELLED |= {("realformer", "key.bias"), ("sinkhorn", "key.bias")}
CANCELLED |= {("efficient", "key.bias"), ("nystrom", "key.bias")}
CANCELLED |= {(name, "key.bias") for name in ("local", "longformer", "sparse", "bigbird")}
CANCELLED |= {("longformer", "global_key.bias")}

# Causal forms that see a window of the past, a bucket or a pattern of it, or what a relu lets through
LOCAL = ("local", "reformer", "sparse", "flash_quad", "flash_linear")


def all_subjects() -> list[Subject]:
    return [
        subject
        for name in ATTENTIONS.names()
        for options in OPTIONS.get(name, [{}])
        for subject in subjects_of(
            name,
            options,
            cancelled=frozenset(parameter for owner, parameter in CANCELLED if owner == name),
            reference=find_reference(name),
            is_local=name in LOCAL,
        )
    ]
