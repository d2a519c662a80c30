"""Texts to token ids, as the tokenizer.json of a model has it. Knows nothing of what a network makes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.errors import ModelFileInvalid

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

Ids: TypeAlias = npt.NDArray[np.int64]
"""`(n, tokens)`."""

USUAL_TOKENS = 512
"""The window of most encoders; a batch is measured by it."""


def load_tokenizer(
    path: Path, max_tokens: int | None = None, *, lowercase: bool = False, end_token: str | None = None
) -> Tokenizer:
    """One that cuts at `max_tokens`, special tokens included, or never. Of a pair the longer text is cut first.

    `end_token` closes every text, also where the file itself does not say so. Raises ModelFileInvalid.
    """
    from tokenizers import Tokenizer, normalizers, processors

    try:
        tokenizer = Tokenizer.from_str(path.read_text("utf-8"))
    except Exception as error:  # the library raises plain Exception
        raise ModelFileInvalid(f"{path} is not a tokenizer.json: pull or export the model again") from error
    if end_token is not None:
        end = get_token_id(tokenizer, end_token, path)
        if tokenizer.encode("a").ids[-1:] != [end]:
            close = processors.TemplateProcessing(single=f"$A {end_token}", special_tokens=[(end_token, end)])
            rest = [tokenizer.post_processor] if tokenizer.post_processor is not None else []
            tokenizer.post_processor = processors.Sequence([*rest, close])
    if lowercase:
        rest = [tokenizer.normalizer] if tokenizer.normalizer is not None else []
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *rest])
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if max_tokens is not None:
        tokenizer.enable_truncation(max_tokens, strategy="longest_first")
    return tokenizer


def load_wordpiece_tokenizer(path: Path, *, lowercase: bool) -> Tokenizer:
    """BERT's own over a bare `vocab.txt`, never cut; in lower case it leaves accents out as well. Raises
    ModelFileInvalid."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    try:
        tokenizer = Tokenizer(models.WordPiece.from_file(str(path), unk_token="[UNK]"))
    except Exception as error:  # the library raises plain Exception
        raise ModelFileInvalid(f"{path} is not a vocabulary of BERT: pull the model again") from error
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    first, last = (get_token_id(tokenizer, mark, path) for mark in ("[CLS]", "[SEP]"))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", last), ("[CLS]", first))
    return tokenizer


def get_token_id(tokenizer: Tokenizer, token: str, path: Path) -> int:
    """Raises ModelFileInvalid where the vocabulary does not have the token."""
    number: int | None = tokenizer.token_to_id(token)
    if number is None:
        raise ModelFileInvalid(f"{path} has no token {token}: mend the settings in model.json")
    return number


def pad_batch(encodings: Sequence[Encoding]) -> tuple[Ids, Ids, Ids]:
    """Token ids, attention mask and token types of one batch, zeros behind what is shorter than the longest."""
    shape = (len(encodings), max(1, *(len(encoding.ids) for encoding in encodings)))
    ids, mask, types = (np.zeros(shape, dtype=np.int64) for _ in range(3))
    for row, encoding in enumerate(encodings):
        length = len(encoding.ids)
        ids[row, :length] = encoding.ids
        mask[row, :length] = encoding.attention_mask
        types[row, :length] = encoding.type_ids
    return ids, mask, types


def split_batches(encodings: Sequence[Encoding], size: int) -> Iterator[list[int]]:
    """The numbers of the encodings, up to `size` at a time, those of like length together.

    Fewer at a time where they are long: a batch, padded, holds no more tokens than `size` texts of `USUAL_TOKENS`.
    """
    waiting = sorted(range(len(encodings)), key=lambda number: len(encodings[number].ids))
    batch: list[int] = []
    for number in waiting:
        if batch and (len(batch) == size or (len(batch) + 1) * len(encodings[number].ids) > size * USUAL_TOKENS):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def join_title(title: str, text: str, separator: str) -> str:
    """Title and text as one; a separator that begins with a full stop loses it where the title has ended already."""
    if title.endswith((".", "?", "!")):
        separator = separator.removeprefix(".")
    return f"{title}{separator}{text}" if title else text
