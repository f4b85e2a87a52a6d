"""Writes a small model of the Qwen3 kind with random weights: the same figures, the same bytes.

Runs in the engine environment, started by path; it imports nothing of phasewise, and neither torch
nor transformers, which would take longer than the work. What it writes is what vLLM reads:
`config.json`, a byte-level tokenizer made by rule, and `model.safetensors` in float32.

The weights are random but not arbitrary, because a fault in the KV must show in the answer:

- Attention is sharp (`_QK_SCALE`), so that an answer hangs on single tokens far back in the
  prompt and not on an average of all of them.
- What the layers add outweighs the token that goes in, so that no answer repeats itself.
- Rows of the output of special tokens and of bytes that are no text of their own are zero. A
  greedy answer has no end of text in it, and each of its tokens is text.
- float32: two ways to the same sum differ by a millionth, and no two logits are that close. In
  bfloat16 they differ by a hundredth, and some greedy answers do.
"""

from __future__ import annotations

import argparse
import json
from itertools import islice, product
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

VOCABULARY = 2048
LONGEST_TOKENS = 32768
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LETTERS = " etaoinshrdlucmfwypvbgkjqxz"
_QK_SCALE = 1.8  # attention logits of about its square
_GAIN = 1.5  # of what a layer adds, against what goes into it
_CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_characters() -> list[str]:
    """The character that stands for each of the 256 bytes, as byte-level BPE (GPT-2) has it."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def tokenizer() -> dict[str, object]:
    """A byte-level tokenizer: the bytes, then pairs and triples of letters, in a fixed order."""
    characters = byte_characters()
    letters = [characters[ord(letter)] for letter in _LETTERS]
    pairs = list(product(letters, letters))
    triples = (((a + b), c) for (a, b), c in product(pairs, letters))
    merges = list(islice([*pairs, *triples], VOCABULARY - len(_SPECIAL) - len(characters)))
    words = [*_SPECIAL, *characters, *(left + right for left, right in merges)]
    bytes_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False}
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number,
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, word in enumerate(_SPECIAL)
        ],
        "pre_tokenizer": bytes_level,
        "post_processor": bytes_level,
        "decoder": bytes_level,
        "model": {
            "type": "BPE",
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [list(merge) for merge in merges],
        },
    }


def weights(asked: argparse.Namespace) -> dict[str, np.ndarray]:
    """Every tensor by the name under which vLLM looks for it."""
    rng = np.random.default_rng(asked.seed)
    hidden, inner = asked.hidden_size, 2 * asked.hidden_size
    wide, narrow = asked.attention_heads * asked.head_dim, asked.kv_heads * asked.head_dim

    def matrix(out: int, into: int, gain: float = 1.0) -> np.ndarray:
        drawn = rng.standard_normal((out, into), dtype=np.float32)
        return drawn * np.float32(gain / np.sqrt(into))

    def scale(size: int, value: float = 1.0) -> np.ndarray:
        return np.full(size, value, dtype=np.float32)

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, hidden, np.sqrt(hidden))}
    for layer in range(asked.layers):
        at = f"model.layers.{layer}"
        tensors |= {
            f"{at}.input_layernorm.weight": scale(hidden),
            f"{at}.self_attn.q_proj.weight": matrix(wide, hidden),
            f"{at}.self_attn.k_proj.weight": matrix(narrow, hidden),
            f"{at}.self_attn.v_proj.weight": matrix(narrow, hidden),
            f"{at}.self_attn.o_proj.weight": matrix(hidden, wide, _GAIN),
            f"{at}.self_attn.q_norm.weight": scale(asked.head_dim, _QK_SCALE),
            f"{at}.self_attn.k_norm.weight": scale(asked.head_dim, _QK_SCALE),
            f"{at}.post_attention_layernorm.weight": scale(hidden),
            f"{at}.mlp.gate_proj.weight": matrix(inner, hidden, _GAIN),
            f"{at}.mlp.up_proj.weight": matrix(inner, hidden, _GAIN),
            f"{at}.mlp.down_proj.weight": matrix(hidden, inner),
        }
    tensors["model.norm.weight"] = scale(hidden)
    head = matrix(VOCABULARY, hidden, 3.0)
    text = np.zeros(VOCABULARY, dtype=bool)
    text[len(_SPECIAL) + 0x20 : len(_SPECIAL) + 0x7F] = True
    text[len(_SPECIAL) + 256 :] = True
    tensors["lm_head.weight"] = head * text[:, None]
    return tensors


def config(asked: argparse.Namespace) -> dict[str, object]:
    """The architecture, in Hugging Face's words."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "hidden_size": asked.hidden_size,
        "intermediate_size": 2 * asked.hidden_size,
        "num_hidden_layers": asked.layers,
        "num_attention_heads": asked.attention_heads,
        "num_key_value_heads": asked.kv_heads,
        "head_dim": asked.head_dim,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": LONGEST_TOKENS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 0,
        "use_cache": True,
    }


def write(asked: argparse.Namespace) -> None:
    """All files into the folder, which is made."""
    asked.folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "tokenizer.json": tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_max_length": LONGEST_TOKENS,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "chat_template": _CHAT,
            "clean_up_tokenization_spaces": False,
        },
        "config.json": config(asked),
        "generation_config.json": {
            "bos_token_id": 0,
            "eos_token_id": 2,
            "pad_token_id": 0,
            "do_sample": False,
        },
    }
    for name, content in texts.items():
        (asked.folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    save_file(weights(asked), asked.folder / "model.safetensors", metadata={"format": "pt"})


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="Writes a small model with random weights.")
    parser.add_argument("folder", type=Path)
    for name in ("layers", "hidden-size", "attention-heads", "kv-heads", "head-dim", "seed"):
        parser.add_argument(f"--{name}", type=int, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    write(arguments())
