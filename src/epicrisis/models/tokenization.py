"""Texts to token ids, with the tokenizer.json of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.errors import ContextOverflow, ModelFileInvalid

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Ids: TypeAlias = npt.NDArray[np.int64]
"""`(n, tokens)`."""

USUAL_TOKENS = 512
"""The window of most encoders, and the measure of a batch."""


def load_tokenizer(
    path: Path, max_tokens: int | None = None, *, lowercase: bool = False, end_token: str | None = None
) -> Tokenizer:
    """Load a tokenizer that truncates at `max_tokens`, special tokens included, or never: of a pair the longer text.

    `end_token` closes every text, even if the file itself does not ask for it. Raise ModelFileInvalid.
    """
    from tokenizers import Tokenizer, normalizers, processors

    try:
        tokenizer = Tokenizer.from_str(path.read_text("utf-8"))
    except Exception as error:  # the library raises plain Exception
        raise ModelFileInvalid(f"{path} is not a tokenizer.json: pull or export the model again") from error
    if end_token is not None:
        end = get_token_id(tokenizer, end_token, path)
        if tokenizer.encode("a").ids[-1:] != [end]:
            steps = [] if tokenizer.post_processor is None else [tokenizer.post_processor]
            steps.append(processors.TemplateProcessing(single=f"$A {end_token}", special_tokens=[(end_token, end)]))
            tokenizer.post_processor = processors.Sequence(steps)
    if lowercase:
        steps = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_tokens is not None:
        tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    return tokenizer


def load_wordpiece_tokenizer(path: Path, *, lowercase: bool) -> Tokenizer:
    """Load BERT's tokenizer with a bare `vocab.txt`, without truncation. `lowercase` also strips accents.

    Raise ModelFileInvalid.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    try:
        tokenizer = Tokenizer(models.WordPiece.from_file(str(path), unk_token="[UNK]"))
    except Exception as error:  # the library raises plain Exception
        raise ModelFileInvalid(f"{path} is not a vocabulary of BERT: pull the model again") from error
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    start, end = get_token_id(tokenizer, "[CLS]", path), get_token_id(tokenizer, "[SEP]", path)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", end), ("[CLS]", start))
    return tokenizer


def get_token_id(tokenizer: Tokenizer, token: str, path: Path) -> int:
    """Return the id of a token. Raise ModelFileInvalid if the vocabulary lacks it."""
    number: int | None = tokenizer.token_to_id(token)
    if number is None:
        raise ModelFileInvalid(f"{path} has no token {token}: correct the settings in model.json")
    return number


def encode_untruncated(
    tokenizer: Tokenizer, texts: Sequence[str | tuple[str, str]], max_tokens: int, *, reader: str, remedy: str
) -> list[Encoding]:
    """Return the encodings of texts or pairs. Raise ContextOverflow if one exceeds the window of `reader`."""
    encodings: list[Encoding] = tokenizer.encode_batch(list(texts))
    longest = max((len(encoding.ids) for encoding in encodings), default=0)
    if longest > max_tokens:
        subject = "a pair" if isinstance(texts[0], tuple) else "a text"
        raise ContextOverflow(f"{subject} has {longest} tokens, and {reader} reads {max_tokens}: {remedy}")
    return encodings


def pad_batch(encodings: Sequence[Encoding]) -> tuple[Ids, Ids, Ids]:
    """Return token ids, attention mask and token types of one batch, shorter texts padded with zeros."""
    shape = (len(encodings), max(1, *(len(encoding.ids) for encoding in encodings)))
    ids, mask, types = np.zeros((3, *shape), dtype=np.int64)
    for row, encoding in enumerate(encodings):
        length = len(encoding.ids)
        ids[row, :length] = encoding.ids
        mask[row, :length] = encoding.attention_mask
        types[row, :length] = encoding.type_ids
    return ids, mask, types


def split_batches(encodings: Sequence[Encoding], size: int) -> Iterator[list[int]]:
    """Yield the indices of the encodings, up to `size` at a time, those of similar length together.

    A padded batch has at most as many tokens as `size` texts of `USUAL_TOKENS`.
    """
    by_length = sorted(range(len(encodings)), key=lambda index: len(encodings[index].ids))
    batch: list[int] = []
    for index in by_length:
        if batch and (len(batch) == size or (len(batch) + 1) * len(encodings[index].ids) > size * USUAL_TOKENS):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def iterate_batches(encodings: Sequence[Encoding], size: int) -> Iterator[tuple[list[int], tuple[Ids, Ids, Ids]]]:
    """Yield each batch of `split_batches` with its padded arrays."""
    for batch in split_batches(encodings, size):
        yield batch, pad_batch([encodings[index] for index in batch])


def join_title(title: str, text: str, separator: str) -> str:
    """Join title and text. A separator's leading full stop is dropped after a title that ends a sentence."""
    if title.endswith((".", "?", "!")):
        separator = separator.removeprefix(".")
    return f"{title}{separator}{text}" if title else text
