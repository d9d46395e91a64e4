"""Everything that a description says changes the logits: one field after another is taken out of it."""

from dataclasses import replace

import pytest
from tests.engine.families import FAMILIES, LENGTH, config, logits, make, tokens
from tests.engine.test_reference import BOUND, chunk, error, pages_of, runner

from tilepress.engine.family import describe

LEAST = 100 * BOUND


def blocks(change):
    """A change of every block, by a function of the block."""
    return lambda decoder: replace(decoder, blocks=tuple(map(change, decoder.blocks)))


def attention(**fields):
    return blocks(lambda block: replace(block, attention=replace(block.attention, **fields)))


def rotary(**fields):
    def change(block):
        own = block.attention.rotary
        changed = None if own is None else replace(own, **fields)
        return replace(block, attention=replace(block.attention, rotary=changed))

    return blocks(change)


def scaling(**fields):
    """A change of the positions' scaling, where it has the fields."""

    def change(decoder):
        own = [block.attention.rotary for block in decoder.blocks]
        own = next((one.scaling for one in own if one is not None and one.scaling is not None), None)
        has_all = own is not None and all(hasattr(own, name) for name in fields)
        return rotary(scaling=replace(own, **fields))(decoder) if has_all else decoder

    return change


def mlp(**fields):
    return blocks(lambda block: replace(block, mlp=replace(block.mlp, **fields)))


def rotating_all(decoder):
    own = next(block.attention.rotary for block in decoder.blocks if block.attention.rotary)
    return blocks(lambda b: replace(b, attention=replace(b.attention, rotary=b.attention.rotary or own)))(decoder)


def local_rotary_everywhere(decoder):
    return attention(rotary=decoder.blocks[0].attention.rotary)(decoder)


def experts(change):
    def of_block(block):
        own = block.mlp.experts
        return block if own is None else replace(block, mlp=replace(block.mlp, experts=change(own)))

    return blocks(of_block)


def swiglu(**fields):
    def of_block(block):
        own = block.mlp.activation
        return (
            block if isinstance(own, str) else replace(block, mlp=replace(block.mlp, activation=replace(own, **fields)))
        )

    return blocks(of_block)


def interleaved_as_stacked(block):
    layout = "stacked" if block.mlp.gate_up == "interleaved" else block.mlp.gate_up
    return replace(block, mlp=replace(block.mlp, gate_up=layout))


CHANGES = {
    "scaling": blocks(lambda b: replace(b, attention=replace(b.attention, scaling=b.attention.head_dim**-0.5))),
    "rotary": attention(rotary=None),
    "no rotary in some blocks": rotating_all,
    "another rotary in global blocks": local_rotary_everywhere,
    "rope_theta": rotary(rope_theta=77.0),
    "rotary scaling": rotary(scaling=None),
    "interleaved": rotary(interleaved=True),
    "attention_factor": scaling(attention_factor=1.0),
    "long_factor": scaling(long_factor=(1.0, 1.2, 1.5)),
    "beta_fast": scaling(beta_fast=0.5),
    "truncate": scaling(truncate=True),
    "low_freq_factor": scaling(low_freq_factor=2.0),
    "sliding_window": attention(sliding_window=None),
    "sliding_window in all": attention(sliding_window=8),
    "sliding_window longer by one": blocks(
        lambda b: replace(b, attention=replace(b.attention, sliding_window=9)) if b.attention.sliding_window else b
    ),
    "attn_logit_softcapping": attention(attn_logit_softcapping=None),
    "qk_norm": attention(qk_norm=None),
    "sinks": attention(sinks=False),
    "activation": mlp(activation="silu"),
    "swiglu_limit": swiglu(swiglu_limit=100.0),
    "swiglu_alpha": swiglu(swiglu_alpha=1.0),
    "gate_up interleaved": blocks(interleaved_as_stacked),
    "norm_topk_prob": experts(lambda own: replace(own, norm_topk_prob=not own.norm_topk_prob)),
    "num_experts_per_tok": experts(lambda own: replace(own, num_experts_per_tok=1)),
    "attn_norm": blocks(lambda block: replace(block, attn_norm=None)),
    "attn_post_norm": blocks(lambda block: replace(block, attn_post_norm=None)),
    "ffn_norm": blocks(lambda block: replace(block, ffn_norm=None)),
    "ffn_post_norm": blocks(lambda block: replace(block, ffn_post_norm=None)),
    "residual_multiplier": blocks(lambda block: replace(block, residual_multiplier=1.0)),
    "rms_norm_eps": lambda decoder: replace(decoder, norm=replace(decoder.norm, rms_norm_eps=0.1)),
    "weight_offset": lambda decoder: replace(decoder, norm=replace(decoder.norm, weight_offset=0.0)),
    "embedding_multiplier": lambda decoder: replace(decoder, embedding_multiplier=1.0),
    "logits_scaling": lambda decoder: replace(decoder, logits_scaling=1.0),
    "final_logit_softcapping": lambda decoder: replace(decoder, final_logit_softcapping=None),
}
DESCRIBED = {family: describe(config(family)) for family in FAMILIES}
PAIRS = [
    (family, change) for family, own in DESCRIBED.items() for change in CHANGES if CHANGES[change](own) != own
]  # fmt: skip


@pytest.fixture(scope="module")
def expected():
    """Family → its model, and transformers' logits of the last token."""
    models = {family: make(family) for family in FAMILIES}
    return {family: (model, logits(model, tokens())[-1]) for family, model in models.items()}


@pytest.mark.parametrize("family, change", PAIRS)
def test_without_it_logits_are_others(family, change, expected):
    model, right = expected[family]
    changed = runner(model, decoder=CHANGES[change](DESCRIBED[family]))
    wrong = changed.run([chunk(tokens(), 0, LENGTH, pages_of(0))])[0]
    assert error(wrong, right) > LEAST


def test_every_change_is_one_for_some_family():
    assert {change for _, change in PAIRS} == set(CHANGES)
