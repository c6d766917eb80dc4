"""A tiny GGUF file with random weights, a tokenizer, and settings that a test may falsify."""

from pathlib import Path

import gguf
import numpy as np

D_MODEL, D_MLP, N_HEADS, VOCAB = 32, 48, 4, 64
SETTINGS = {
    "block_count": 2,
    "context_length": 16,
    "embedding_length": D_MODEL,
    "feed_forward_length": D_MLP,
    "attention.head_count": N_HEADS,
    "attention.head_count_kv": N_HEADS,
    "rope.dimension_count": D_MODEL // N_HEADS,
    "vocab_size": VOCAB,
}


def write_tiny(
    path: Path, architecture: str = "llama", rope_factors: bool = False, **changed: int
) -> Path:
    """The file; `changed` are settings by name, dots as double underscores."""
    writer = gguf.GGUFWriter(path, architecture)
    settings = SETTINGS | {name.replace("__", "."): value for name, value in changed.items()}
    for name, value in settings.items():
        writer.add_uint32(f"{architecture}.{name}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    writer.add_float32(f"{architecture}.rope.freq_base", 10_000.0)
    _add_tokenizer(writer)
    generator = np.random.default_rng(0)
    shapes = _shapes() | ({"rope_freqs.weight": (D_MODEL // N_HEADS // 2,)} if rope_factors else {})
    for name, shape in shapes.items():
        values = (0.3 * generator.standard_normal(shape)).astype(np.float32)
        if len(shape) == 2 and name.startswith("blk"):
            kind = gguf.GGMLQuantizationType.Q8_0 if shape[1] % 32 == 0 else None
            if kind is not None:
                writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
                continue
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_tokenizer(writer: gguf.GGUFWriter) -> None:
    letters = [chr(ord("!") + n) for n in range(VOCAB - 2)]
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(["<s>", *letters, "AB"])
    writer.add_token_types([3] + [1] * (VOCAB - 1))
    writer.add_token_merges(["A B"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)


def _shapes() -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, D_MODEL),
        "output_norm.weight": (D_MODEL,),
    }
    for layer in range(SETTINGS["block_count"]):
        shapes |= {f"blk.{layer}.attn_{one}.weight": (D_MODEL, D_MODEL) for one in "qkv"}
        shapes |= {
            f"blk.{layer}.attn_output.weight": (D_MODEL, D_MODEL),
            f"blk.{layer}.attn_norm.weight": (D_MODEL,),
            f"blk.{layer}.ffn_norm.weight": (D_MODEL,),
            f"blk.{layer}.ffn_gate.weight": (D_MLP, D_MODEL),
            f"blk.{layer}.ffn_up.weight": (D_MLP, D_MODEL),
            f"blk.{layer}.ffn_down.weight": (D_MODEL, D_MLP),
        }
    return shapes
