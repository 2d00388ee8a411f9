"""Attentions under test, with every option, pair bias mode and direction that their traits declare."""

from collections.abc import Callable, Iterator

from molslice.attention import ATTENTIONS
from molslice.testing import CHECKS, Subject, checks, in_model, subjects_of, traits
from molslice.types import AttentionSpec
from tests.attention.references import find_reference

Check = Callable[[Subject], None]

ORDERS = ["ascending", "descending", "half", "interleave", "max_exchange", "multi_permutation", "shuffle"]
# Orders that differ from each other by more than the directions of their columns
DISTINCT_ORDERS = ["ascending", "max_exchange", "multi_permutation"]

# Options that deserve a contract of their own; an attention that is not named here is tested as it comes.
OPTIONS = {
    "slice_sort": [
        {"order": order, "form": form, "placement": placement}
        for form, placement, orders in [
            ("sort_of_mix", "index", ORDERS),
            ("sort_of_mix", "aligned", DISTINCT_ORDERS),
            ("mix_plus_sort", "index", DISTINCT_ORDERS),
            ("mix_plus_sort", "aligned", DISTINCT_ORDERS),
        ]
        for order in orders
    ],
    "softmax": [{}, {"fused": False}],
    "flow": [
        {},
        {"clamp": 1.0},
        {"phi": "elu", "competition": "sigmoid", "allocation": "softmax"},
        {"competition": "relu", "allocation": None},
        {"competition": None, "allocation": "relu"},
        {"phi": "relu"},
    ],
    "singular": [{}, {"rank": 3}, {"shared_map": False, "scaled": False}],
    "performer": [{}, {"num_features": 3, "seed": 1}],
    "random_feature": [{}, {"num_features": 7, "learned_scale": False}, {"gate": True}],
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
CANCELED = {("softmax", "key.bias"), ("singular", "key.bias"), ("soft", "query.bias")}
CANCELED |= {("realformer", "key.bias"), ("sinkhorn", "key.bias")}
CANCELED |= {("efficient", "key.bias"), ("nystrom", "key.bias")}
CANCELED |= {(name, "key.bias") for name in ("local", "longformer", "sparse", "bigbird")}
CANCELED |= {("longformer", "global_key.bias")}

# Causal forms that see a window of the past, a bucket or a pattern of it, or what a relu lets through
LOCAL = ("local", "reformer", "sparse", "flash_quad", "flash_linear")


# Specs to which a check applies. For others it returns at once or repeats itself.
SPECS: dict[Check, Callable[[AttentionSpec], bool]] = {
    traits.check_causal: lambda spec: not spec.causal and not spec.cross,
    traits.check_cost: lambda spec: spec.pair_bias_mode == "none" and not spec.cross,
    traits.check_cross: lambda spec: spec.pair_bias_mode == "none" and not spec.causal and not spec.cross,
    traits.check_pair_bias: lambda spec: not spec.cross,
    traits.check_shared_bias: lambda spec: spec.pair_bias_mode != "none",
    traits.check_symmetric_tokens: lambda spec: not spec.causal,
    traits.check_symmetry: lambda spec: not spec.causal,
}
# Checks implied by the reference, which takes one sequence at a time, one of them a single token
OF_REFERENCE = {checks.check_batch_mates, checks.check_one_token}
# Checks that do not depend on pair bias, direction or memory
OF_PLAIN_FORM = {
    checks.check_evaluation,
    traits.check_activation_checkpointing,
    in_model.check_initialization_in_a_model,
}
# Checks of other options in other forms: the first options pass all checks in all forms
OF_OPTIONS = {
    checks.check_padding,
    checks.check_padding_gradient,
    checks.check_every_parameter_trained,
    checks.check_empty_sequence,
    checks.check_reference,
    traits.check_causal,
    traits.check_shared_bias,
    traits.check_symmetry,
}


def all_subjects() -> list[Subject]:
    return [
        subject
        for name in ATTENTIONS.names()
        for options in OPTIONS.get(name, [{}])
        for subject in _subjects(name, options)
    ]


def contract() -> Iterator[tuple[Subject, Check]]:
    """Yield each form of each attention with its checks. The first form with the first options has all."""
    for name in ATTENTIONS.names():
        for place, options in enumerate(OPTIONS.get(name, [{}])):
            for number, subject in enumerate(_subjects(name, options)):
                for check in CHECKS:
                    if _is_wanted(check, place == 0, number == 0) and _applies(check, subject.spec):
                        yield subject, check


def _is_wanted(check: Check, is_first_options: bool, is_first_form: bool) -> bool:
    if is_first_options and is_first_form:
        return True
    if check in OF_REFERENCE:
        return False
    if is_first_form:
        return True
    return check not in OF_PLAIN_FORM if is_first_options else check in OF_OPTIONS


def _applies(check: Check, spec: AttentionSpec) -> bool:
    return check not in SPECS or SPECS[check](spec)


def _subjects(name: str, options: dict) -> list[Subject]:
    return subjects_of(
        name,
        options,
        canceled=frozenset(parameter for owner, parameter in CANCELED if owner == name),
        reference=find_reference(name),
        is_local=name in LOCAL,
    )
