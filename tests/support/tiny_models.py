"""Tiny models with random weights, of the architectures of the published ones. Needs torch and transformers."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
WORDS = (
    "a acid after and aspirin atrial children chronic daily diabetes disease does dose fibrillation for heart in "  # noqa: SIM905
    "increases insulin is kidney lowers mellitus mortality of or oral patients pressure prevent reduces risk stroke "
    "the therapy to treatment trial type warfarin with ##s ##ed ##ing ##i ##c ##a ##t ##n . , ? ! ( ) - 1 2 5".split()
)
INPUTS = ["input_ids", "attention_mask", "token_type_ids"]


def make_tokenizer(folder: Path, words: Sequence[str] = WORDS) -> Any:
    """Save BERT's tokenizer with a small vocabulary: `vocab.txt`, `tokenizer.json` and other files."""
    from transformers import BertTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join([*SPECIALS, *words]), encoding="utf-8")
    tokenizer = BertTokenizerFast.from_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def bert_config(words: Sequence[str] = WORDS, **changes: Any) -> Any:
    """Return a configuration of two layers of 32 dimensions."""
    from transformers import BertConfig

    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    return BertConfig(vocab_size=len(SPECIALS) + len(words), **shape, **changes)


def make_bert(folder: Path, seed: int, words: Sequence[str] = WORDS) -> Any:
    """Save an encoder as transformers does."""
    import torch
    from transformers import BertModel

    make_tokenizer(folder, words)
    torch.manual_seed(seed)
    model = BertModel(bert_config(words)).eval()
    _spread(model)
    model.save_pretrained(folder)
    return model


def make_cross_encoder(folder: Path, seed: int, labels: int = 1) -> Any:
    """Save a BertForSequenceClassification, the class of MedCPT's cross-encoder."""
    import torch
    from transformers import BertForSequenceClassification

    make_tokenizer(folder)
    torch.manual_seed(seed)
    model = BertForSequenceClassification(bert_config(num_labels=labels)).eval()
    _spread(model)
    model.save_pretrained(folder)
    return model


def make_colbert(folder: Path, seed: int, **metadata: Any) -> tuple[Any, Any]:
    """Save a ColBERT checkpoint: BERT under `bert.`, `linear.weight`, and `artifact.metadata`."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertModel

    make_tokenizer(folder)
    torch.manual_seed(seed)
    bert, linear = BertModel(bert_config()).eval(), torch.nn.Linear(32, 8, bias=False)
    _spread(bert)
    weights = {f"bert.{name}": tensor.contiguous() for name, tensor in bert.state_dict().items()}
    save_file(weights | {"linear.weight": linear.weight.detach()}, folder / "model.safetensors", {"format": "pt"})
    config = bert.config.to_dict() | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    defaults = {"doc_maxlen": 24, "query_maxlen": 12, "mask_punctuation": True, "attend_to_mask_tokens": False}
    (folder / "artifact.metadata").write_text(json.dumps(defaults | metadata), encoding="utf-8")
    return bert, linear.weight.detach()


def make_decoder(folder: Path, seed: int) -> tuple[Any, Any]:
    """Save a Mistral model. Only its tokenizer_config.json, not its tokenizer.json, asks for a closing token."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import MistralConfig, MistralModel, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: number for number, word in enumerate(["<unk>", "</s>", "<pad>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="</s>", pad_token="<pad>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = MistralModel(MistralConfig(vocab_size=len(vocabulary), intermediate_size=64, **shape)).eval()
    _spread(model)
    model.save_pretrained(folder)
    return model, tokenizer


def make_reward_model(folder: Path, seed: int, rows: int = 19) -> tuple[Any, Any, Any]:
    """Save a checkpoint like ArmoRM's: Llama under `model.`, its head, and the unused gate."""
    import torch
    from safetensors.torch import save_file
    from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaModel, PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    marks = ["begin_of_text", "start_header_id", "end_header_id", "eot_id"]
    special_words = [f"<|{mark}|>" for mark in marks]
    vocabulary = {word: index for index, word in enumerate(["<unk>", *special_words, "user", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.add_special_tokens([AddedToken(word, special=True) for word in special_words])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = LlamaModel(LlamaConfig(vocab_size=len(vocabulary), intermediate_size=64, **shape)).eval()
    _spread(model)
    head = torch.randn(rows, 32)
    weights = {f"model.{name}": tensor.contiguous() for name, tensor in model.state_dict().items()}
    gate = {"gating.layers.0.weight": torch.randn(8, 32), "reward_transform_matrix": torch.eye(rows)}
    save_file(weights | gate | {"regression_layer.weight": head}, folder / "model.safetensors", {"format": "pt"})
    config = model.config.to_dict() | {"architectures": ["LlamaForRewardModelWithGating"], "num_objectives": rows}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return model, head, tokenizer


def to_onnx(model: Any, folder: Path) -> None:
    """Save the model as `model.onnx` and delete its safetensors."""
    import torch

    class First(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.model(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]

    ids, mask = torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long)
    mask[0, 4:] = 0
    axes = {name: {0: "n", 1: "tokens"} for name in INPUTS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # In torch 2.13 the newer exporter (dynamo) changes BERT's numbers.
        torch.onnx.export(
            First().eval(),
            (ids, mask, ids * 0),
            str(folder / "model.onnx"),
            input_names=INPUTS,
            output_names=["first"],
            dynamic_axes=axes | {"first": {0: "n"}},
            opset_version=17,
            dynamo=False,
        )
    (folder / "model.safetensors").unlink(missing_ok=True)


def _spread(model: Any) -> None:
    """Enlarge the initial weights. They are so small that all texts look alike and mistakes stay hidden."""
    import torch

    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
