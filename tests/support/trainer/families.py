"""Kinds of models whose shapes are known, as transformers has them."""

from transformers import LlamaConfig, LlamaForCausalLM, Olmo2Config, Olmo2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

from rftlab.llm.budget.shapes import KNOWN

FAMILY = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "olmo2": (Olmo2Config, Olmo2ForCausalLM),
}
KINDS = dict(zip(KNOWN, ("llama", "qwen2", "llama", "olmo2"), strict=True))


def config_of(kind, shape):
    """The configuration of a real model of that shape."""
    heads = {"num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads}
    sizes = {"vocab_size": shape.vocabulary, "hidden_size": shape.hidden, "intermediate_size": shape.ffn}
    sizes |= {"num_hidden_layers": shape.layers, "tie_word_embeddings": shape.tied}
    sizes |= {"head_dim": shape.head_dim} if kind == "llama" else {}
    return FAMILY[kind][0](**sizes, **heads, pad_token_id=0, bos_token_id=1, eos_token_id=2)
