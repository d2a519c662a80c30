"""Models that score a pair of texts: rerankers, natural language inference, and reward models."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from epicrisis.core.errors import (
    ContextOverflow,
    EndpointBusy,
    EndpointRejected,
    EndpointTimeout,
    EndpointUnreachable,
    EpicrisisError,
    ModelFileInvalid,
    NetworkRefused,
    ReplyInvalid,
)
from epicrisis.core.extensions import make_extension
from epicrisis.core.printable import agree, count_noun
from epicrisis.core.prompts import escape
from epicrisis.core.protocols import NliModel, Reranker, RewardModel, Vectors
from epicrisis.models import networks
from epicrisis.models.catalogue import load_catalogue
from epicrisis.models.chat.endpoints.failures import walk_causes
from epicrisis.models.model_files import ModelFiles, find_model
from epicrisis.models.model_recipes import NliRecipe, RerankerRecipe, RewardRecipe
from epicrisis.system.local_only import is_local, make_tls_context

if TYPE_CHECKING:
    from tokenizers import Encoding


def load_reranker(
    name: str, home: Path, threads: int | None = None, api_key: Callable[[], str | None] | None = None
) -> Reranker:
    """Load the reranker of a catalogue name (`medcpt` means `medcpt-reranker`), in a folder, or at a URL.

    An installed package may offer others by name.

    A folder holds the files of an encoder; its `model.json` says `{"settings": {"scoring": "cross-encoder",
    "max_tokens": 512}}`, or its `config.json` describes a transformers model for sequence classification, or it is a
    checkpoint of ColBERT. A URL is as for `HttpReranker`, with `#model-name` at its end. Nothing is contacted.
    """
    if name.startswith(("http://", "https://")):
        url, _, model = name.partition("#")
        return HttpReranker(url, model or None, api_key)
    full_name = f"{name}-reranker"
    if not {name, full_name} & load_catalogue().keys() and (extension := make_extension("reranker", name)) is not None:
        return extension  # type: ignore[no-any-return]
    files = find_model(full_name if full_name in load_catalogue() else name, "reranker", home)
    recipe = RerankerRecipe.read(files)
    reranker_class = CrossEncoder if recipe.scoring == "cross-encoder" else LateInteraction
    return reranker_class(files, recipe, threads)


class CrossEncoder:
    """Scores are the network's one number per pair, unscaled: MedCPT's are logits, about -20 to 20."""

    def __init__(self, files: ModelFiles, recipe: RerankerRecipe, threads: int | None = None) -> None:
        self._window = recipe.max_tokens
        self._tokenizer = networks.load_tokenizer(files.files["tokenizer.json"], recipe.max_tokens)
        self._network = networks.load_network(files, threads, "scores")
        shape = self._network.run(*networks.pad_batch(self._encode("a", ["a"]))).shape
        if shape != (1, 1):
            raise ModelFileInvalid(
                f"{files.folder} gives {shape[1:]} numbers per pair instead of one: it is no reranker"
            )

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        encodings = self._encode(query, passages)
        scores = np.empty(len(passages), dtype=np.float32)
        for indices, arrays in networks.iterate_batches(encodings, self._network.batch):
            scores[indices] = self._network.run(*arrays)[:, 0]
        return scores

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        truncated = _count_truncated(self._encode(query, passages))
        if not truncated:
            return ()
        subject = f"{truncated} of {count_noun(len(passages), 'passage')} {agree(truncated, 'is', 'are')}"
        return (
            f"{subject}, with the question, longer than the {self._window} tokens that the reranker reads: it did not "
            "see the end of the longer text",
        )

    def _encode(self, query: str, passages: Sequence[str]) -> list[Encoding]:
        encodings: list[Encoding] = self._tokenizer.encode_batch([(query, passage) for passage in passages])
        return encodings


class LateInteraction:
    """Sums, over the question's tokens, the similarity to the nearest token of the passage (ColBERT's MaxSim).

    Khattab and Zaharia, SIGIR 2020, section 3. Without markers and mask tokens it works with any encoder.
    """

    def __init__(self, files: ModelFiles, recipe: RerankerRecipe, threads: int | None = None) -> None:
        path = files.files["tokenizer.json"]
        self._recipe = recipe
        self._query_window = recipe.max_query_tokens or recipe.max_tokens
        # A marker takes one token of the window.
        self._queries = networks.load_tokenizer(path, self._query_window - bool(recipe.query_marker))
        self._passages = networks.load_tokenizer(path, recipe.max_tokens - bool(recipe.passage_marker))
        self._query_marker, self._passage_marker = (
            networks.get_token_id(self._queries, marker, path) if marker else None
            for marker in (recipe.query_marker, recipe.passage_marker)
        )
        self._mask_id = networks.get_token_id(self._queries, "[MASK]", path) if recipe.augment else 0
        punctuation = (
            self._queries.token_to_id(item) for item in (string.punctuation if recipe.skip_punctuation else "")
        )
        self._punctuation = [number for number in punctuation if number is not None]
        self._network = networks.load_network(files, threads)
        self._projection = networks.load_tensor(files, recipe.projection) if recipe.projection else None

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        ids, mask, types = _insert_marker(*networks.pad_batch([self._queries.encode(query)]), self._query_marker)
        if self._recipe.augment:
            padding = ((0, 0), (0, self._query_window - ids.shape[1]))
            ids = np.pad(ids, padding, constant_values=self._mask_id)
            mask, types = np.pad(mask, padding), np.pad(types, padding)
        # A single row has no padding, so only mask tokens are masked out, and they count as words.
        query_vectors: Vectors = self._compute_vectors(ids, mask, types)[0]
        encodings = self._passages.encode_batch(list(passages))
        scores = np.empty(len(passages), dtype=np.float32)
        for indices, arrays in networks.iterate_batches(encodings, self._network.batch):
            ids, mask, types = _insert_marker(*arrays, self._passage_marker)
            vectors = self._compute_vectors(ids, mask, types)
            relevant = (mask == 1) & ~np.isin(ids, self._punctuation)
            for row, index in enumerate(indices):
                scores[index] = max_sim(query_vectors, vectors[row, relevant[row]])
        return scores

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        notes = []
        if self._queries.encode(query).overflowing:
            notes.append(f"the question is longer than the {self._query_window} tokens that the reranker reads of it")
        truncated = _count_truncated(self._passages.encode_batch(list(passages)))
        if truncated:
            notes.append(
                f"{truncated} of {count_noun(len(passages), 'passage')} {agree(truncated, 'is', 'are')} longer than "
                f"the {self._recipe.max_tokens} tokens that the reranker reads: it did not see the rest"
            )
        return tuple(notes)

    def _compute_vectors(self, ids: networks.Ids, mask: networks.Ids, types: networks.Ids) -> Vectors:
        """Return token vectors `(n, tokens, d)` of length 1."""
        hidden = self._network.run(ids, mask, types)
        if self._projection is not None:
            hidden = hidden @ self._projection.T
        lengths = np.linalg.norm(hidden, axis=2, keepdims=True)
        vectors: Vectors = hidden / np.maximum(lengths, 1e-12)
        return vectors


def max_sim(query: Vectors, passage: Vectors) -> float:
    """Return the sum over the query's vectors of the largest inner product with a passage vector; 0 without vectors."""
    return float((query @ passage.T).max(axis=1).sum()) if len(passage) else 0.0


def _count_truncated(encodings: Sequence[Encoding]) -> int:
    return sum(bool(encoding.overflowing) for encoding in encodings)


def _insert_marker(
    ids: networks.Ids, mask: networks.Ids, types: networks.Ids, marker: int | None
) -> tuple[networks.Ids, networks.Ids, networks.Ids]:
    """Insert the marker as second token of every row."""
    if marker is None:
        return ids, mask, types
    return np.insert(ids, 1, marker, axis=1), np.insert(mask, 1, 1, axis=1), np.insert(types, 1, 0, axis=1)


LABELS = ("entailment", "neutral", "contradiction")


def load_nli(name: str, home: Path, threads: int | None = None) -> NliModel:
    """Load the model of a catalogue name, or in a folder (ONNX, or transformers with the extra `torch`)."""
    files = find_model(name, "nli", home)
    return NliClassifier(files, NliRecipe.read(files), threads)


class NliClassifier:
    """The three logits of each pair, turned into probabilities."""

    def __init__(self, files: ModelFiles, recipe: NliRecipe, threads: int | None = None) -> None:
        self._window = recipe.max_tokens
        self._columns = [recipe.labels.index(label) for label in LABELS]
        self._tokenizer = networks.load_tokenizer(files.files["tokenizer.json"])
        self._network = networks.load_network(files, threads, "scores")
        shape = self._network.run(*networks.pad_batch([self._tokenizer.encode("a", "a")])).shape
        if shape != (1, len(LABELS)):
            raise ModelFileInvalid(
                f"{files.folder} gives {shape[1:]} numbers per pair instead of 3: it is no NLI model"
            )

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> Vectors:
        remedy = "compare shorter texts, or sentence by sentence"
        encodings = networks.encode_untruncated(self._tokenizer, pairs, self._window, reader="the model", remedy=remedy)
        probabilities = np.empty((len(pairs), len(LABELS)), dtype=np.float32)
        for indices, arrays in networks.iterate_batches(encodings, self._network.batch):
            logits = self._network.run(*arrays)[:, self._columns]
            exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
            probabilities[indices] = exponentials / exponentials.sum(axis=1, keepdims=True)
        return probabilities


def load_reward_model(name: str, home: Path, threads: int | None = None) -> RewardModel:
    """Load the reward model of a catalogue name, or in a folder. Needs the extra `torch`; contacts nothing."""
    files = find_model(name, "reward", home)
    return MultiAttributeReward(files, RewardRecipe.read(files), threads)


class MultiAttributeReward:
    """The unscaled product of the last token's vector and a head with a row per attribute (Wang et al. 2024).

    ArmoRM's gate, which combines the attributes into one preference, is not used: the study shows single attributes.
    """

    def __init__(self, files: ModelFiles, recipe: RewardRecipe, threads: int | None = None) -> None:
        self.attributes = recipe.attributes
        self._recipe = recipe
        self._tokenizer = networks.load_tokenizer(files.files["tokenizer.json"])
        self._network = networks.load_network(files, threads)
        self._head = networks.load_tensor(files, recipe.head)
        if len(self._head) != len(recipe.rows):
            raise ModelFileInvalid(
                f"{files.folder}: its head has {len(self._head)} rows, but its settings list {len(recipe.rows)}: "
                "correct rows in its model.json"
            )
        for name in self.attributes:
            if name not in recipe.rows:
                raise ModelFileInvalid(f"{files.folder} has no attribute {name}: correct attributes in its model.json")

    def score(self, question: str, answer: str) -> Mapping[str, float]:
        # Escaped, since the template's own tokens in a text would end its turn.
        turns = self._recipe.turns.replace("{answer}", escape(answer), 1).replace("{question}", escape(question), 1)
        ids = self._tokenizer.encode(turns, add_special_tokens=False).ids
        if len(ids) > self._recipe.max_tokens:
            raise ContextOverflow(
                f"question and answer have {len(ids)} tokens, and the reward model reads {self._recipe.max_tokens}: "
                "score shorter answers"
            )
        row = np.array([ids], dtype=np.int64)
        last = self._network.run(row, np.ones_like(row), np.zeros_like(row))[0, -1]
        rewards = dict(zip(self._recipe.rows, (self._head @ last).tolist(), strict=True))
        return {name: rewards[name] for name in self.attributes}


CONNECT_SECONDS = 10.0


class _Result(BaseModel):
    index: int
    relevance_score: float


class _Reply(BaseModel):
    results: list[_Result]


class HttpReranker:
    """A Reranker over HTTP: the `/v1/rerank` of Jina, Cohere, vLLM, llama.cpp and others. Does not retry.

    `url` ends in `/rerank`, or in `/v1`, or has no path and gets `/v1/rerank`. The server's message is never quoted,
    since it may repeat the texts.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        api_key: Callable[[], str | None] | None = None,
        timeout_seconds: float = 120.0,
    ) -> None:
        parts = urlsplit(url)
        path = parts.path.rstrip("/") or "/v1"
        self._url = parts._replace(path=path if path.endswith("/rerank") else f"{path}/rerank").geturl()
        self._host = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        self._local = is_local(parts.hostname)
        self._model = model
        self._api_key = api_key or (lambda: None)
        self._timeout = timeout_seconds

    def score(self, query: str, passages: Sequence[str]) -> npt.NDArray[np.float32]:
        import httpx2

        if not passages:
            return np.zeros(0, dtype=np.float32)
        body: dict[str, object] = {"query": query, "documents": list(passages), "top_n": len(passages)}
        if self._model:
            body["model"] = self._model
        key = self._api_key()
        timeout = httpx2.Timeout(self._timeout, connect=min(self._timeout, CONNECT_SECONDS))
        try:
            # A proxy for the outside world must not see calls to this machine.
            tls = make_tls_context(secure=self._url.startswith("https:") or not self._local)
            with httpx2.Client(timeout=timeout, trust_env=not self._local, verify=tls) as client:
                reply = client.post(self._url, json=body, headers={"Authorization": f"Bearer {key}"} if key else {})
        except (httpx2.HTTPError, httpx2.InvalidURL, NetworkRefused) as error:
            raise self._map_error(error) from None
        self._check_status(reply.status_code)
        try:
            results = _Reply.model_validate_json(reply.content).results
        except ValidationError:
            raise ReplyInvalid(
                f"{self._host} did not send a ranking: is its URL right (does it end in /rerank)?"
            ) from None
        scores = {result.index: result.relevance_score for result in results}
        if len(results) != len(passages) or scores.keys() != set(range(len(passages))):
            raise ReplyInvalid(f"{self._host} does not score each of {len(passages)} passages once: try again")
        if not all(map(math.isfinite, scores.values())):
            raise ReplyInvalid(f"{self._host} returns a score that is no number: try again, or use another model")
        return np.array([scores[index] for index in range(len(passages))], dtype=np.float32)

    def notes(self, query: str, passages: Sequence[str]) -> tuple[str, ...]:
        """Return no notes: an endpoint does not report its window."""
        return ()

    def _map_error(self, error: Exception) -> EpicrisisError:
        import httpx2

        for cause in walk_causes(error):
            if isinstance(cause, NetworkRefused):
                return cause
        if isinstance(error, httpx2.TimeoutException) and not isinstance(error, httpx2.ConnectTimeout):
            return EndpointTimeout(f"no answer from {self._host} in {self._timeout:g} s: is it overloaded?")
        if isinstance(error, httpx2.TransportError):
            return EndpointUnreachable(f"nothing answers at {self._host}: is the server running, is the URL right?")
        return ReplyInvalid(f"the reply of {self._host} cannot be read: is its URL right?")

    def _check_status(self, status: int) -> None:
        if status == 429 or status >= 500:
            raise EndpointBusy(f"{self._host} failed ({status}): wait and try again, or see its log")
        if status in (401, 403):
            raise EndpointRejected(f"{self._host} rejects the key ({status}): check the variable that holds it")
        if status == 404:
            raise EndpointRejected(f"{self._host} has no such path or model (404): check the URL and #model-name")
        if status != 200:
            raise EndpointRejected(
                f"{self._host} rejects the request ({status}): check #model-name, or rerank fewer passages"
            )
