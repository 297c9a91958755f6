"""Attention on a CPU in which several heads read the same keys and values (2305.13245), without the copy of these for
every head.

transformers makes that copy wherever there is a mask, because a GPU's fast kernels want it; on a CPU it took a third of
the time of sampling. Results
agree to rounding: torch promises no more, and on some processors gives other last bits.
"""

import torch
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

GROUPED = "grouped_sdpa"
"""Name under which models find it."""


def grouped_attention(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **more
) -> tuple[torch.Tensor, None]:
    """As `sdpa_attention_forward`: query (B, H, L, D), key and value (B, K, M, D), a mask or None; returns (B, L, H,
    D)."""
    usual = torch.is_grad_enabled() or query.device.type != "cpu" or more.get("position_bias") is not None
    if usual or attention_mask is None or query.shape[1] == key.shape[1]:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **more
        )
    out = functional.scaled_dot_product_attention(query, key, value, attention_mask, scale=scaling, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), None


def group_heads(model: PreTrainedModel) -> None:
    """Have a model on a CPU attend in this way, where it would attend by torch's own function."""
    if model.device.type == "cpu" and model.config._attn_implementation == "sdpa":
        model.set_attn_implementation(GROUPED)


AttentionInterface.register(GROUPED, grouped_attention)
AttentionMaskInterface.register(GROUPED, sdpa_mask)
