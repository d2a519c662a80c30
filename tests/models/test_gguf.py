"""The head of a GGUF file: written here, a real one, and every way of being damaged."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epicrisis.core.errors import ModelFileInvalid
from epicrisis.models.chat.embedded import GgufHeader, list_gguf_parts, read_gguf_header

U32, I32, F32, BOOL, TEXT, ARRAY = 4, 5, 6, 7, 8, 9
Entry = tuple[int, bytes]


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def u32(value: int) -> Entry:
    return U32, struct.pack("<I", value)


def string(value: str) -> Entry:
    return TEXT, text(value)


def array(*values: int) -> Entry:
    return ARRAY, struct.pack(f"<IQ{len(values)}I", U32, len(values), *values)


def strings(*values: str) -> Entry:
    return ARRAY, struct.pack("<IQ", TEXT, len(values)) + b"".join(map(text, values))


def gguf(entries: Mapping[str, Entry]) -> bytes:
    """Return the header of a file without tensors."""
    encoded = (text(key) + struct.pack("<I", kind) + value for key, (kind, value) in entries.items())
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(encoded)


SMALL = {
    "general.architecture": string("llama"),
    "general.languages": strings("en", "de"),
    "llama.block_count": u32(30),
    "llama.context_length": u32(8192),
    "llama.embedding_length": u32(576),
    "llama.attention.head_count": u32(9),
    "llama.attention.head_count_kv": u32(3),
    "llama.rope.freq_base": (F32, struct.pack("<f", 1e5)),
}
"""What SmolLM2-135M says of itself."""

VOCABULARY = {"tokenizer.ggml.tokens": strings("a", "b"), "tokenizer.ggml.token_type": array(1, 3)}


def read_changed_header(folder: Path, **changed: Entry | None) -> GgufHeader:
    """Read the header of a file like SMALL with changes. None leaves a key out."""
    changes = {f"llama.{key.replace('__', '.')}": value for key, value in changed.items()}
    entries = {key: value for key, value in (SMALL | changes | VOCABULARY).items() if value is not None}
    (folder / "model.gguf").write_bytes(gguf(entries))
    return read_gguf_header(folder / "model.gguf")


@pytest.mark.models
def test_gguf_header_real_model_matches_llama_cpp_buffer_size(model_home: Path) -> None:
    # "CPU KV buffer size = 180.00 MiB" for 8192 tokens.
    real = read_gguf_header(model_home / "models" / "smollm2-135m" / "model.gguf")
    assert real == GgufHeader("llama", 8192, 180 * 2**20 // 8192)


def test_gguf_header_is_independent_of_vocabulary_position(tmp_path: Path) -> None:
    assert read_changed_header(tmp_path) == GgufHeader("llama", 8192, 23040)
    (tmp_path / "model.gguf").write_bytes(gguf(VOCABULARY | SMALL))
    assert read_gguf_header(tmp_path / "model.gguf") == GgufHeader("llama", 8192, 23040)


@pytest.mark.parametrize(
    ("changed", "kv_bytes"),
    [
        ({"attention__head_count_kv": None}, 30 * 9 * 128 * 2),
        ({"attention__head_count_kv": array(*[3, 0] * 15)}, 15 * 3 * 128 * 2),
        ({"attention__head_count": array(*[9] * 30), "attention__head_count_kv": None}, 30 * 9 * 128 * 2),
        ({"attention__key_length": u32(128), "attention__value_length": u32(32)}, 30 * 3 * 160 * 2),
        ({"attention__sliding_window": u32(1024)}, 0),
        ({"attention__kv_lora_rank": u32(512)}, 0),
        ({"attention__head_count": None}, 0),
        ({"attention__head_count": u32(0)}, 0),
        ({"block_count": None}, 0),
    ],
)
def test_gguf_header_kv_bytes_follow_attention_settings(
    tmp_path: Path, changed: dict[str, Entry | None], kv_bytes: int
) -> None:
    assert read_changed_header(tmp_path, **changed) == GgufHeader("llama", 8192, kv_bytes)


def test_gguf_header_without_context_length_is_none(tmp_path: Path) -> None:
    assert read_changed_header(tmp_path, context_length=None).context_tokens is None
    assert read_changed_header(tmp_path, context_length=u32(0)).context_tokens is None


@pytest.mark.parametrize(
    "changed",
    [
        {"context_length": string("8192")},
        {"context_length": (I32, struct.pack("<i", -1))},
        {"block_count": string("30")},
        {"block_count": (F32, struct.pack("<f", float("inf")))},
        {"attention__head_count": array()},
        {"attention__head_count_kv": string("3")},
        {"attention__head_count_kv": (I32, struct.pack("<i", -3))},
        {"rope__freq_base": (99, b"")},
        {"rope__freq_base": (ARRAY, struct.pack("<IQ", 99, 1))},
        {"rope__freq_base": (ARRAY, struct.pack("<IQ", ARRAY, 1) * 20_000)},
        {"rope__freq_base": (ARRAY, struct.pack("<IQ", U32, 2**64 - 1))},
        {"rope__freq_base": (TEXT, struct.pack("<Q", 2**64 - 1))},
        {"rope__freq_base": (TEXT, struct.pack("<Q", 1) + b"\xff")},
    ],
)
def test_gguf_header_impossible_value_raises_model_file_invalid(
    tmp_path: Path, changed: dict[str, Entry | None]
) -> None:
    with pytest.raises(ModelFileInvalid, match=r"model\.gguf") as caught:
        read_changed_header(tmp_path, **changed)
    assert "\n" not in caught.value.message


@pytest.mark.slow
@settings(deadline=None)
@given(cut=st.integers(0, len(gguf(SMALL)) - 1))
def test_gguf_header_truncated_file_raises_model_file_invalid(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.gguf"
    path.write_bytes(gguf(SMALL)[:cut])
    with pytest.raises(ModelFileInvalid, match=r"cut\.gguf"):
        read_gguf_header(path)


@pytest.mark.slow
@settings(deadline=None)
@given(flips=st.lists(st.integers(0, 8 * len(gguf(SMALL | VOCABULARY)) - 1), min_size=1, max_size=4, unique=True))
def test_gguf_header_flipped_bits_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, flips: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "flipped.gguf"
    content = bytearray(gguf(SMALL | VOCABULARY))
    for flip in flips:
        content[flip // 8] ^= 1 << flip % 8
    path.write_bytes(content)
    try:
        read = read_gguf_header(path)
    except ModelFileInvalid:
        return
    assert read.kv_bytes >= 0
    assert read.context_tokens is None or read.context_tokens > 0


def test_list_gguf_parts_any_part_finds_all_parts(tmp_path: Path) -> None:
    parts = tuple(tmp_path / f"model-q4-{number:05}-of-00003.gguf" for number in (1, 2, 3))
    for part in parts:
        part.touch()
    assert list_gguf_parts(parts[0]) == list_gguf_parts(parts[2]) == parts
    alone = tmp_path / "model-00001.gguf"
    assert list_gguf_parts(alone) == (alone,)
    parts[1].unlink()
    with pytest.raises(ModelFileInvalid, match=r"model-q4-00002-of-00003.gguf is missing: .* one of 3 parts"):
        list_gguf_parts(parts[0])
