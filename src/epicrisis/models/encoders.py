"""Encoders: one vector per text, one per token, or weights of vocabulary words."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

import numpy as np

from epicrisis.core.errors import ModelFileInvalid, ModelMissing
from epicrisis.core.extensions import find_package, make_extension
from epicrisis.core.printable import quote_for_shell
from epicrisis.core.protocols import Encoder, SparseEncoder, TokenEncoder, TokenVectors, Vectors
from epicrisis.models import networks
from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.model_files import NETWORK_FOLDERS, ONNX, ModelFiles, compute_sha256, find_model
from epicrisis.models.model_recipes import EncoderRecipe, SparseRecipe, TokenVectorsRecipe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_FIRST_SETTINGS = {"pooling", "normalise", "max_tokens", "title"}
"""Settings that are always part of the fingerprint. Others enter it if they differ from their defaults."""


def load_encoder(name_or_path: str, home: Path, threads: int | None = None) -> Encoder:
    """Load the encoder of a catalogue name, an installed package, or a folder. `threads=None`: all cores.

    A folder holds `tokenizer.json`, weights (`model.onnx`, or `model.safetensors` and `config.json`, which need torch)
    and either a `model.json` with `{"settings": {"pooling": "mean", "normalise": true, "max_tokens": 256}}` or the
    files of sentence-transformers. An encoder of two networks has these files in `query/` and `article/`, with
    `model.json` above them. ONNX weights are preferred, unless the path is another file of the folder.
    """
    if name_or_path not in load_catalogue() and (extension := make_extension("encoder", name_or_path)) is not None:
        return extension  # type: ignore[no-any-return]
    return TextEncoder(find_model(name_or_path, "encoder", home), threads)


def runs_on_torch(name_or_path: str, home: Path) -> bool:
    """Return whether the encoder's weights need torch. It uses a GPU if there is one."""
    if name_or_path not in load_catalogue() and find_package("encoder", name_or_path) is not None:
        return False
    return ONNX not in find_model(name_or_path, "encoder", home).part("article/").files


CACHED_PASSAGES, CACHED_QUERIES = 20_000, 1_000
"""Vectors that stay in memory, about 2 KB each for 384 dimensions."""


def load_cached_encoder(name_or_path: str, home: Path, threads: int | None = None) -> Encoder:
    """Load an encoder as `load_encoder` does, with a memory for its last vectors."""
    return CachedEncoder(load_encoder(name_or_path, home, threads))


class CachedEncoder:
    """An encoder that remembers its last vectors: the questions of a server read the same sentences again and again.

    The 100 sentences of a question take 0.5 s of CPU. Weights of 8 bits give a text slightly different vectors in
    different batches, so rankings may differ from those without the memory where scores are almost equal.
    """

    def __init__(self, encoder: Encoder, passages: int = CACHED_PASSAGES, queries: int = CACHED_QUERIES) -> None:
        self.fingerprint, self.dimensions = encoder.fingerprint, encoder.dimensions
        self.max_tokens, self.max_query_tokens = encoder.max_tokens, encoder.max_query_tokens
        self.token_spans = encoder.token_spans
        self._encoder = encoder
        # Copies, so that no vector keeps its whole batch in memory.
        self._passages = _EncodingMemory[tuple[str, str], Vectors](
            lambda texts: (vector.copy() for vector in encoder.encode_passages(texts)), passages
        )
        self._queries = _EncodingMemory[str, Vectors](
            lambda texts: (vector.copy() for vector in encoder.encode_queries(texts)), queries
        )

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return self._join(self._queries.encode(texts))

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        return self._join(self._passages.encode(texts))

    def _join(self, vectors: Sequence[Vectors]) -> Vectors:
        return np.array(vectors, dtype=np.float32).reshape(len(vectors), self.dimensions)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class _EncodingMemory(Generic[K, V]):
    """What the texts that were encoded last were encoded as. Safe for several threads."""

    def __init__(self, encode: Callable[[Sequence[K]], Iterable[V]], size: int) -> None:
        self._encode, self._size = encode, size
        self._values: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def encode(self, texts: Sequence[K]) -> list[V]:
        """Return the value of each text. Only texts that are not remembered are encoded."""
        present: dict[K, V] = {}
        with self._lock:
            for text in texts:
                if text in self._values:
                    self._values.move_to_end(text)
                    present[text] = self._values[text]
        missing = [text for text in dict.fromkeys(texts) if text not in present]
        if missing:
            new = dict(zip(missing, self._encode(missing), strict=True))
            present |= new
            with self._lock:
                self._values.update(new)
                while len(self._values) > self._size:
                    self._values.popitem(last=False)
        return [present[text] for text in texts]


class TextEncoder:
    """An Encoder from model files. The constructor loads the weights."""

    def __init__(self, files: ModelFiles, threads: int | None = None) -> None:
        recipe = self._recipe = EncoderRecipe.read(files)
        query_files, passage_files = (files.part(folder) for folder in NETWORK_FOLDERS)
        query_window = recipe.max_query_tokens or recipe.max_tokens
        self._untruncated = _load_tokenizer(passage_files, None, recipe)
        passage_tokenizer = _load_tokenizer(passage_files, recipe.max_tokens, recipe)
        query_tokenizer = _load_tokenizer(query_files, query_window, recipe)
        passage_network = networks.load_network(passage_files, threads)
        query_network = passage_network if query_files is passage_files else networks.load_network(query_files, threads)
        self._passages = _TextNetwork(passage_tokenizer, passage_network, recipe)
        self._queries = _TextNetwork(query_tokenizer, query_network, recipe)
        has_pairs = recipe.title == "pair"
        self.max_tokens = _count_room(passage_tokenizer, recipe.max_tokens, recipe.passage_prefix, pair=has_pairs)
        self.max_query_tokens = _count_room(query_tokenizer, query_window, recipe.query_prefix, pair=False)
        if min(self.max_tokens, self.max_query_tokens) < 1:
            raise ModelFileInvalid(f"{files.folder}: its window has no room for a text: raise max_tokens")
        # Name and hash of all that decides the vectors. File hashes come from the catalogue or the record.
        hashes = [files.sha256.get(name) or compute_sha256(path) for name, path in sorted(files.files.items())]
        title = "title newline text" if recipe.title == "\n" else f"title {recipe.title!r} text"
        parts: list[object] = [hashes, recipe.pooling, recipe.normalise, recipe.max_tokens, title]
        if others := recipe.model_dump(exclude=_FIRST_SETTINGS | {"dimensions"}, exclude_defaults=True):
            parts.append(others)
        self.fingerprint = f"{files.name}-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"
        self.dimensions = self._passages.dimensions
        if self._queries.dimensions != self.dimensions:
            raise ModelFileInvalid(f"{files.folder} holds two networks of different dimensions: they are no pair")

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        """Return the character span of each token. A character of several tokens repeats its span."""
        # Unlike `encode`, `encode_batch` lets other threads run meanwhile.
        (encoding,) = self._untruncated.encode_batch([text], add_special_tokens=False)
        return [(start, end) for start, end in encoding.offsets if end > start]

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        return self._queries.encode([self._recipe.query_prefix + text for text in texts])

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        prefix, separator = self._recipe.passage_prefix, self._recipe.title
        if separator == "pair":
            # An empty title stays a text of the pair, as in MedCPT's published code.
            return self._passages.encode([(prefix + title, text) for title, text in texts])
        return self._passages.encode([prefix + networks.join_title(title, text, separator) for title, text in texts])


class _TextNetwork:
    """A tokenizer and a network, for questions or for passages."""

    def __init__(self, tokenizer: Tokenizer, network: networks.Network, recipe: EncoderRecipe) -> None:
        self._tokenizer = tokenizer
        self._network = network
        self._recipe = recipe
        self.dimensions = int(self._run(*networks.pad_batch(tokenizer.encode_batch(["a"]))).shape[1])

    def encode(self, texts: Sequence[str | tuple[str, str]]) -> Vectors:
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        encodings = self._tokenizer.encode_batch(list(texts))
        for indices, arrays in networks.iterate_batches(encodings, self._network.batch):
            vectors[indices] = self._run(*arrays)
        return vectors

    def _run(self, ids: networks.Ids, mask: networks.Ids, types: networks.Ids) -> Vectors:
        """Return text vectors `(n, d)`, reduced from the token vectors `(n, tokens, d)` of the network."""
        hidden = self._network.run(ids, mask, types)
        if self._recipe.pooling == "cls":
            vectors = hidden[:, 0]
        elif self._recipe.pooling == "last":
            vectors = hidden[np.arange(len(hidden)), np.maximum(mask.sum(axis=1) - 1, 0)]
        else:
            weights = mask[:, :, np.newaxis].astype(np.float32)
            vectors = (hidden * weights).sum(axis=1) / np.maximum(weights.sum(axis=1), 1)
        if self._recipe.normalise:
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return np.ascontiguousarray(vectors, dtype=np.float32)


def _load_tokenizer(files: ModelFiles, window: int | None, recipe: EncoderRecipe) -> Tokenizer:
    return networks.load_tokenizer(
        files.files["tokenizer.json"], window, lowercase=recipe.lowercase, end_token=recipe.end_token
    )


def _count_room(tokenizer: Tokenizer, window: int, prefix: str, *, pair: bool) -> int:
    """Return how many content tokens fit, after special tokens and prefix."""
    specials: int = tokenizer.num_special_tokens_to_add(is_pair=pair)
    return window - specials - len(tokenizer.encode(prefix, add_special_tokens=False).ids)


@dataclass(frozen=True, slots=True)
class PrecomputedEncoder:
    """Allows NCBI's MedCPT vectors to be added without an installed MedCPT, which any other text needs."""

    fingerprint: str
    name: str
    dimensions: int
    max_tokens: int = 509
    """The window of an article with its title: 512 tokens minus three special tokens."""
    max_query_tokens: int = 62

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        self._raise_missing()

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        self._raise_missing()

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        if texts:
            self._raise_missing()
        return np.empty((0, self.dimensions), dtype=np.float32)

    def _raise_missing(self) -> NoReturn:
        command = f"epicrisis models pull {quote_for_shell(self.name)}"
        raise ModelMissing(
            f"a text has no precomputed vector, and {self.name} is not installed: run `{command}`, or pass its folder "
            "with --encoder; the documents added so far are kept"
        )


def load_token_encoder(name: str, home: Path, threads: int | None = None) -> TokenEncoder:
    """Load the model of a catalogue name, or in a folder, for one vector per token (BERTScore).

    An encoder gives the vectors of its last layer; of two networks, the one for passages is used. A folder's
    `model.json` says `{"settings": {"layer": 9, "max_tokens": 512}}`, or its own files state the window.
    """
    catalogue = load_catalogue()
    is_encoder = name in catalogue and catalogue[name].kind == "encoder"
    files = find_model(name, "encoder" if is_encoder else "token-encoder", home)
    return TokenVectorEncoder(files, TokenVectorsRecipe.read(files), threads)


class TokenVectorEncoder:
    """The token vectors of one layer of a network."""

    def __init__(self, files: ModelFiles, recipe: TokenVectorsRecipe, threads: int | None = None) -> None:
        self.name = files.name if recipe.layer is None else f"{files.name}_L{recipe.layer}"
        self._window = recipe.max_tokens
        part = files.part("article/")
        if "vocab.txt" in part.files:
            self._tokenizer = networks.load_wordpiece_tokenizer(part.files["vocab.txt"], lowercase=recipe.lowercase)
        else:
            self._tokenizer = networks.load_tokenizer(part.files["tokenizer.json"], lowercase=recipe.lowercase)
        self._network = networks.load_network(part, threads, layers=recipe.layer)

    def encode_tokens(self, texts: Sequence[str]) -> tuple[TokenVectors, ...]:
        encodings = networks.encode_untruncated(
            self._tokenizer,
            texts,
            self._window,
            reader="the encoder",
            remedy="compare shorter texts, or sentence by sentence",
        )
        vectors: dict[int, TokenVectors] = {}
        for indices, arrays in networks.iterate_batches(encodings, self._network.batch):
            hidden = self._network.run(*arrays)
            for row, index in enumerate(indices):
                special = np.array(encodings[index].special_tokens_mask, dtype=bool)
                vectors[index] = TokenVectors(hidden[row, : len(special)], ~special)
        return tuple(vectors[item] for item in range(len(texts)))


BATCH = networks.BatchSize(texts=2, tokens=2 * 512)
"""Each token gives a number for every vocabulary word: 60 MB for a text of 512 tokens."""
CACHE_PASSAGES = 4096
"""Passages whose weights stay in memory, about 20 KB each: a dozen records of 128,000 tokens in chunks of 512."""


def load_sparse(name: str, home: Path, threads: int | None = None) -> SparseEncoder:
    """Load the model of a catalogue name, or in a folder. Its own files state its window."""
    files = find_model(name, "sparse", home)
    return CachedSparseEncoder(SpladeEncoder(files, SparseRecipe.read(files), threads))


class CachedSparseEncoder:
    """A sparse encoder that remembers the last passages, since questions about one record share its passages."""

    def __init__(self, encoder: SparseEncoder, size: int = CACHE_PASSAGES) -> None:
        self.name = encoder.name
        self._encoder = encoder
        self._passages = _EncodingMemory[str, Mapping[int, float]](encoder.encode_passages, size)

    def encode_queries(self, texts: Sequence[str]) -> Sequence[Mapping[int, float]]:
        return self._encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return tuple(self._passages.encode(texts))


class SpladeEncoder:
    """SPLADE: weighs each vocabulary word by its largest value over all tokens: log(1 + max(0, logit)).

    Special tokens count, as in the authors' code (Formal et al. 2021, equation 1, max pooling).
    """

    def __init__(self, files: ModelFiles, recipe: SparseRecipe, threads: int | None = None) -> None:
        self.name, self._window = files.name, recipe.max_tokens
        self._tokenizer = networks.load_tokenizer(files.files["tokenizer.json"])
        self._network = networks.load_network(files, threads, "words")

    def encode_queries(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        return self.encode_passages(texts)

    def encode_passages(self, texts: Sequence[str]) -> tuple[Mapping[int, float], ...]:
        remedy = "cut the library into shorter chunks"
        encodings = networks.encode_untruncated(self._tokenizer, texts, self._window, reader=self.name, remedy=remedy)
        results: dict[int, Mapping[int, float]] = {}
        for indices, (ids, mask, types) in networks.iterate_batches(encodings, BATCH):
            logits = np.where(mask[:, :, None] == 1, self._network.run(ids, mask, types), 0.0)
            weights = np.log1p(np.maximum(logits.max(axis=1), 0.0))
            for row, index in enumerate(indices):
                (words,) = np.nonzero(weights[row])
                results[index] = dict(zip(words.tolist(), weights[row, words].tolist(), strict=True))
        return tuple(results[item] for item in range(len(texts)))
