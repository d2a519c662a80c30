"""Networks over token ids: an ONNX file on onnxruntime, or a folder of transformers on torch.

Knows nothing of texts. What a network gives is its first output: token vectors `(n, tokens, d)`, or one row of
numbers a text where it was made to judge.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import numpy as np

from epicrisis.errors import ModelFileInvalid, ModelMissing
from epicrisis.models.model_files import ONNX, ModelFiles
from epicrisis.privacy import TELEMETRY_OFF
from epicrisis.protocols import Vectors

if TYPE_CHECKING:
    from pathlib import Path

    from epicrisis.models.tokenization import Ids

_NOT_A_MODEL = ("Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NotImplemented", "RuntimeException")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")

NetworkOutput: TypeAlias = Literal["tokens", "scores", "words"]
"""Token vectors; numbers a text; a number a word of the vocabulary for each token, `(n, tokens, words)`."""

_KINDS: Mapping[NetworkOutput, str] = {
    "tokens": "AutoModel",
    "scores": "AutoModelForSequenceClassification",
    "words": "AutoModelForMaskedLM",
}

CPU_BATCH = 8
"""Texts a run. Larger ones are slower on a CPU: their activations no longer fit its caches."""

GPU_BATCH = 64


class Network(Protocol):
    """`run` takes token ids, attention mask and token types, each `(n, tokens)`, and gives the first output."""

    @property
    def batch(self) -> int:
        """Texts of usual length a run should have."""

    def run(self, ids: Ids, mask: Ids, types: Ids) -> Vectors: ...


def load_network(
    files: ModelFiles,
    threads: int | None = None,
    gives: NetworkOutput = "tokens",
    layers: int | None = None,
) -> Network:
    """ONNX where there is an ONNX file, torch else; of the network's `layers` lowest layers, default all, which an ONNX
    file always has. Raises ModelFileInvalid, or ModelMissing where torch is."""
    if ONNX not in files.files:
        return TorchNetwork(files, threads, gives, layers)
    if layers is not None:
        raise ModelFileInvalid(
            f"{files.folder}: an ONNX file gives its last layer alone: take the layer out of its model.json, or name"
            " its model.safetensors"
        )
    return OnnxNetwork(files.files[ONNX], threads)


class OnnxNetwork:
    """On the CPU. The weights are in memory from the constructor on."""

    batch = CPU_BATCH

    def __init__(self, path: Path, threads: int | None = None) -> None:
        # Before it is loaded: what it reports to its maker is started by that.
        os.environ.update(TELEMETRY_OFF)
        import onnxruntime
        from onnxruntime.capi import onnxruntime_pybind11_state as native

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except tuple(getattr(native, name) for name in _NOT_A_MODEL) as error:
            raise ModelFileInvalid(f"{path} is not an ONNX model that can be run: pull or export it again") from error
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        if unknown := self._inputs - set(_INPUTS):
            raise ModelFileInvalid(f"{path} is not a text encoder: it asks for {', '.join(sorted(unknown))}")

    def run(self, ids: Ids, mask: Ids, types: Ids) -> Vectors:
        feeds = dict(zip(_INPUTS, (ids, mask, types), strict=True))
        first = self._session.run(None, {name: feeds[name] for name in self._inputs})[0]
        return np.asarray(first, dtype=np.float32)


class TorchNetwork:
    """On the graphics card where torch sees one, else on the CPU, in the number type of the weights.

    Nothing is fetched and no code of the model's own is run. `threads` holds for all of torch in this process.
    """

    def __init__(
        self,
        files: ModelFiles,
        threads: int | None = None,
        gives: NetworkOutput = "tokens",
        layers: int | None = None,
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
        kind = getattr(transformers, _KINDS[gives])
        with _quiet(transformers):
            try:
                model, report = kind.from_pretrained(
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
                    f"{folder} is not a model that transformers can run ({type(error).__name__}): pull it again"
                ) from error
        # A pooler is not used here, and many weights come without one.
        if missing := sorted(name for name in report["missing_keys"] if not name.startswith("pooler.")):
            raise ModelFileInvalid(
                f"{folder} lacks {len(missing)} of its weights ({missing[0]}): they would be random; is it a model that"
                f" gives {gives}?"
            )
        self._model = model.eval().to(self._device)
        self._takes_types = getattr(model.config, "type_vocab_size", 0) > 1

    @property
    def batch(self) -> int:
        return GPU_BATCH if self._device == "cuda" else CPU_BATCH

    def run(self, ids: Ids, mask: Ids, types: Ids) -> Vectors:
        import torch

        feeds = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if self._takes_types else {})
        with torch.inference_mode():
            first = self._model(**{name: torch.from_numpy(value).to(self._device) for name, value in feeds.items()})[0]
        found: Vectors = first.float().cpu().numpy()
        return found


def load_tensor(files: ModelFiles, name: str) -> Vectors:
    """One tensor among a torch model's weights, as float32. Raises ModelFileInvalid where it is not there."""
    import torch

    for path in files.files.values():
        if path.suffix == ".safetensors":
            from safetensors import safe_open

            with safe_open(path, framework="pt") as weights:
                if name in weights.keys():  # noqa: SIM118  it is no mapping
                    return _as_array(weights.get_tensor(name))
        elif path.suffix == ".bin":
            loaded: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if name in loaded:
                return _as_array(loaded[name])
    raise ModelFileInvalid(f"{files.folder} has no tensor {name} among its weights: is it the model its settings say?")


def _as_array(tensor: Any) -> Vectors:
    array: Vectors = tensor.float().numpy()
    return array


class _quiet:
    """No progress bars and no advice on the screen while a model loads."""

    def __init__(self, transformers: Any) -> None:
        self._logging = transformers.utils.logging

    def __enter__(self) -> None:
        self._before = self._logging.get_verbosity(), self._logging.is_progress_bar_enabled()
        self._logging.set_verbosity_error()
        self._logging.disable_progress_bar()

    def __exit__(self, *_: object) -> None:
        self._logging.set_verbosity(self._before[0])
        if self._before[1]:
            self._logging.enable_progress_bar()
