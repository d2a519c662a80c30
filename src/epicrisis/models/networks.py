"""Texts to token ids with a tokenizer.json, and networks over them: an ONNX file on onnxruntime, or a folder on torch.

A network returns its first output: token vectors `(n, tokens, d)`, or for a classifier one row of numbers per text.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from epicrisis.core.errors import ContextOverflow, ModelFileInvalid, ModelMissing
from epicrisis.core.protocols import Vectors
from epicrisis.models.model_files import ONNX, ModelFiles
from epicrisis.system.local_only import TELEMETRY_OFF

if TYPE_CHECKING:
    from pathlib import Path

    from tokenizers import Encoding, Tokenizer

Ids: TypeAlias = npt.NDArray[np.int64]
"""`(n, tokens)`."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The most that a network reads in one run."""

    texts: int
    tokens: int
    """Of all texts together, padding included."""


def load_tokenizer(
    path: Path, max_tokens: int | None = None, *, lowercase: bool = False, end_token: str | None = None
) -> Tokenizer:
    """Load a tokenizer that truncates at `max_tokens`, or never: of a pair the longer text. Raise ModelFileInvalid.

    `end_token` closes every text, even if the file itself does not ask for it.
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
    """Load BERT's tokenizer with a bare `vocab.txt`, without truncation. `lowercase` also strips accents."""
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


def split_batches(encodings: Sequence[Encoding], size: BatchSize) -> Iterator[list[int]]:
    """Yield the indices of the encodings in batches, by length. A text beyond the tokens of a batch is one alone."""
    by_length = sorted(range(len(encodings)), key=lambda index: len(encodings[index].ids))
    batch: list[int] = []
    for index in by_length:
        if batch and (len(batch) == size.texts or (len(batch) + 1) * len(encodings[index].ids) > size.tokens):
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def iterate_batches(encodings: Sequence[Encoding], size: BatchSize) -> Iterator[tuple[list[int], tuple[Ids, Ids, Ids]]]:
    """Yield each batch of `split_batches` with its padded arrays."""
    for batch in split_batches(encodings, size):
        yield batch, pad_batch([encodings[index] for index in batch])


def join_title(title: str, text: str, separator: str) -> str:
    """Join title and text. A separator's leading full stop is dropped after a title that ends a sentence."""
    if title.endswith((".", "?", "!")):
        separator = separator.removeprefix(".")
    return f"{title}{separator}{text}" if title else text


_LOAD_ERRORS = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NetworkOutput: TypeAlias = Literal["tokens", "scores", "words"]
"""Token vectors; scores of each text; or for each token a weight of every vocabulary word, `(n, tokens, words)`."""
_MODEL_CLASSES: Mapping[NetworkOutput, str] = {
    "tokens": "AutoModel",
    "scores": "AutoModelForSequenceClassification",
    "words": "AutoModelForMaskedLM",
}
ONNX_BATCH = BatchSize(texts=8, tokens=512)
"""Larger batches are slower on a CPU, since their activations exceed its caches: of 4,096 tokens by a fifth."""
TORCH_CPU_BATCH = BatchSize(texts=8, tokens=8 * 512)
GPU_BATCH = BatchSize(texts=64, tokens=64 * 512)


class Network(Protocol):
    """Computes the first output from token ids, attention mask and token types, each `(n, tokens)`."""

    @property
    def batch(self) -> BatchSize:
        """The batches that take the least time per text."""

    def run(self, ids: Ids, mask: Ids, types: Ids) -> Vectors: ...


def load_network(
    files: ModelFiles, threads: int | None = None, output: NetworkOutput = "tokens", layers: int | None = None
) -> Network:
    """Load the ONNX file if there is one, else the weights with torch. `layers` keeps only the lowest layers."""
    if ONNX not in files.files:
        return TorchNetwork(files, threads, output, layers)
    if layers is not None:
        raise ModelFileInvalid(
            f"{files.folder}: an ONNX file gives its last layer only: remove the layer from its model.json, or pass"
            " its model.safetensors"
        )
    return OnnxNetwork(files.files[ONNX], threads)


class OnnxNetwork:
    """A network on the CPU. The constructor loads the weights."""

    batch = ONNX_BATCH

    def __init__(self, path: Path, threads: int | None = None) -> None:
        # Set before the import, since loading the library starts its telemetry.
        os.environ.update(TELEMETRY_OFF)
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as native

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 4
        # Spinning threads wait for the next question: two fifths of the CPU of an answer (benchmarks/server_load.py).
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except tuple(getattr(native, name) for name in _LOAD_ERRORS) as error:
            raise ModelFileInvalid(f"{path} is not a working ONNX model: pull or export it again") from error
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        if unknown := self._inputs - set(_INPUTS):
            raise ModelFileInvalid(f"{path} is not a text encoder: it needs {', '.join(sorted(unknown))}")

    def run(self, ids: Ids, mask: Ids, types: Ids) -> Vectors:
        feeds = dict(zip(_INPUTS, (ids, mask, types), strict=True))
        output = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        return np.asarray(output, dtype=np.float32)


class TorchNetwork:
    """A network on the GPU if torch finds one, else on the CPU. No code of the model is run."""

    def __init__(
        self, files: ModelFiles, threads: int | None = None, output: NetworkOutput = "tokens", layers: int | None = None
    ) -> None:
        folder = files.files["config.json"].parent
        try:
            import torch
            import transformers
        except ImportError as error:
            raise ModelMissing(f'{folder} needs torch to run: pip install "epicrisis[torch]"') from error
        if threads is not None:
            torch.set_num_threads(threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        model_class = getattr(transformers, _MODEL_CLASSES[output])
        with _silence(transformers):
            try:
                model, report = model_class.from_pretrained(
                    folder,
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=any(path.suffix == ".safetensors" for path in files.files.values()),
                    dtype="auto",
                    output_loading_info=True,
                    **({} if layers is None else {"num_hidden_layers": layers}),
                )
            except Exception as error:  # torch, safetensors and transformers each raise their own
                raise ModelFileInvalid(
                    f"transformers cannot load the model in {folder} ({type(error).__name__}): pull it again"
                ) from error
        # No pooler is used here, and many weights lack one.
        if missing := sorted(name for name in report["missing_keys"] if not name.startswith("pooler.")):
            raise ModelFileInvalid(
                f"{folder} lacks {len(missing)} of its weights ({missing[0]}), which would be random: is it a model"
                f" whose output is {output}?"
            )
        self._model = model.eval().to(self._device)
        self._has_types = getattr(model.config, "type_vocab_size", 0) > 1

    @property
    def batch(self) -> BatchSize:
        return GPU_BATCH if self._device == "cuda" else TORCH_CPU_BATCH

    def run(self, ids: Ids, mask: Ids, types: Ids) -> Vectors:
        import torch

        feeds = {"input_ids": ids, "attention_mask": mask}
        if self._has_types:
            feeds["token_type_ids"] = types
        tensors = {name: torch.from_numpy(value).to(self._device) for name, value in feeds.items()}
        with torch.inference_mode():
            output = self._model(**tensors)[0]
        return _to_array(output)


def load_tensor(files: ModelFiles, name: str) -> Vectors:
    """Return one tensor of a torch model's weights as float32. Raise ModelFileInvalid if it is missing."""
    import torch

    for path in files.files.values():
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, framework="pt") as weights:
                if name in weights.keys():  # noqa: SIM118  it is no mapping
                    return _to_array(weights.get_tensor(name))
        elif path.suffix == ".bin":
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if name in state:
                return _to_array(state[name])
    raise ModelFileInvalid(f"{files.folder} has no tensor {name} in its weights: do its settings fit the model?")


def _to_array(tensor: Any) -> Vectors:
    array: Vectors = tensor.float().cpu().numpy()
    return array


@contextmanager
def _silence(transformers: Any) -> Iterator[None]:
    """Suppress progress bars and advice on the screen while a model loads."""
    logging = transformers.utils.logging
    verbosity, has_progress_bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if has_progress_bar:
            logging.enable_progress_bar()
