"""Families of models: which reader understands which architecture. Readers are imported when they are needed."""

from __future__ import annotations

READERS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(
        ("DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "DeepseekV32ForCausalLM", "GlmMoeDsaForCausalLM", "Glm4MoeLiteForCausalLM"),
        ("latent", "read"),
    ),
    "LongcatFlashForCausalLM": ("latent", "read_longcat"),
    **dict.fromkeys(("Qwen3NextForCausalLM", "Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM"), ("delta", "read_qwen_next")),
    "GraniteMoeHybridForCausalLM": ("mamba", "read_granite"),
    "NemotronHForCausalLM": ("mamba", "read_nemotron"),
    "FalconH1ForCausalLM": ("mamba", "read_falcon"),
    "JambaForCausalLM": ("mamba", "read_jamba"),
    **dict.fromkeys(("Lfm2ForCausalLM", "Lfm2MoeForCausalLM"), ("mamba", "read_lfm2")),
    "KimiLinearForCausalLM": ("delta", "read_kimi_linear"),
    **dict.fromkeys(("Gemma3ForCausalLM", "Gemma3TextModel"), ("gemma", "read_gemma3")),
    "Gemma3nForCausalLM": ("gemma", "read_gemma3n"),
    "Gemma4ForCausalLM": ("gemma", "read_gemma4"),
    "Llama4ForCausalLM": ("windowed", "read_llama4"),
    "DeciLMForCausalLM": ("other", "read_deci"),
    "Step3p5ForCausalLM": ("windowed", "read_step"),
    "Step3p7FlashForCausalLM": ("windowed", "read_step"),
    "MiMoV2FlashForCausalLM": ("windowed", "read_mimo_v2"),
    "MiniMaxM1ForCausalLM": ("other", "read_minimax_m1"),
    "MiniMaxM3ForCausalLM": ("other", "read_minimax_m3"),
    "MllamaForCausalLM": ("other", "read_mllama"),
    "LagunaForCausalLM": ("windowed", "read_laguna"),
    **dict.fromkeys(("BailingHybridForCausalLM", "BailingMoeV3ForCausalLM"), ("delta", "read_bailing")),
    "Glm5NextForCausalLM": ("delta", "read_glm5_next"),
    "DeepseekV4ForCausalLM": ("deepseek_v4", "read"),
    **dict.fromkeys(("XLMRobertaModel", "XLMRobertaForSequenceClassification", "BertModel"), ("other", "read_encoder")),
}

WRAPPERS: dict[str, tuple[str, str]] = {
    "Qwen3_5ForConditionalGeneration": ("Qwen3_5ForCausalLM", "qwen3"),
    "Qwen3_5MoeForConditionalGeneration": ("Qwen3_5MoeForCausalLM", "qwen3"),
    "Qwen3VLForConditionalGeneration": ("Qwen3ForCausalLM", "qwen3"),
    "Qwen3VLMoeForConditionalGeneration": ("Qwen3MoeForCausalLM", "qwen3"),
    "Qwen2_5_VLForConditionalGeneration": ("Qwen2ForCausalLM", "qwen25"),
    "Gemma3ForConditionalGeneration": ("Gemma3ForCausalLM", "gemma3"),
    "Gemma3nForConditionalGeneration": ("Gemma3nForCausalLM", "gemma3n"),
    "Gemma4ForConditionalGeneration": ("Gemma4ForCausalLM", "gemma4"),
    "Mistral3ForConditionalGeneration": ("MistralForCausalLM", "pixtral"),
    "Llama4ForConditionalGeneration": ("Llama4ForCausalLM", "llama4"),
    "KimiK25ForConditionalGeneration": ("DeepseekV3ForCausalLM", "kimi"),
    "KimiK3ForConditionalGeneration": ("KimiLinearForCausalLM", "kimi"),
    "InternVLChatModel": ("", "internvl"),
    "MllamaForConditionalGeneration": ("MllamaForCausalLM", "mllama"),
    "Glm5NextForConditionalGeneration": ("Glm5NextForCausalLM", "glm5"),
}
"""Models with a tower for images: the architecture of the text model (empty: named by its own config), and the tower."""


def known() -> list[str]:
    """Return every architecture that can be read, for hints."""
    from tonnage.facts.families.plain import TRAITS

    return sorted({*READERS, *WRAPPERS, *TRAITS})
