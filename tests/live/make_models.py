"""Which tiny models does the real engine start with? Random weights and a tokenizer of single bytes, made in a second.

`python tests/live/make_models.py FOLDER` is run in .venv-live; it needs torch and transformers, and no network.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

COMMON = {
    "vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4, "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16", "bos_token_id": 256, "eos_token_id": 257,
}  # fmt: skip

CONFIGS: dict[str, dict[str, Any]] = {
    "tiny-llama": {
        **COMMON, "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 32,
    },
    "tiny-qwen3": {
        **COMMON, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
        "num_hidden_layers": 3, "num_key_value_heads": 1, "head_dim": 64, "tie_word_embeddings": True,
    },
    "tiny-qwen3-next": {
        **COMMON, "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
        "num_hidden_layers": 4, "num_key_value_heads": 2, "head_dim": 64, "full_attention_interval": 4,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64, "decoder_sparse_step": 1, "norm_topk_prob": True,
    },
}  # fmt: skip
"""A model with plain attention, one with tied embeddings and a single KV head, and a hybrid: three linear layers to one full."""


def tokenizer() -> dict[str, Any]:
    """Return a tokenizer.json in which every byte is a token, and three more are special."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = [byte for byte in range(256) if byte not in printable]
    letters = {**{byte: chr(byte) for byte in printable}, **{byte: chr(256 + index) for index, byte in enumerate(other)}}
    special = [
        {"id": 256 + index, "content": name, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for index, name in enumerate(("<s>", "</s>", "<unk>"))
    ]
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None, "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "vocab": {letters[byte]: byte for byte in range(256)}, "merges": [], "unk_token": None},
    }  # fmt: skip


def make(folder: Path, config: dict[str, Any]) -> None:
    """Write a checkpoint: config, random weights, tokenizer. The config is written last, as we have it."""
    torch, transformers = importlib.import_module("torch"), importlib.import_module("transformers")
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    own = transformers.AutoConfig.for_model(**config)
    transformers.AutoModelForCausalLM.from_config(own, dtype=torch.bfloat16).save_pretrained(folder)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "chat_template": "{% for message in messages %}{{ message['content'] }}\n{% endfor %}",
    }  # fmt: skip
    for name, value in (("tokenizer.json", tokenizer()), ("tokenizer_config.json", settings), ("config.json", config)):
        (folder / name).write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    for name, config in CONFIGS.items():
        make(Path(sys.argv[1]) / name, config)
