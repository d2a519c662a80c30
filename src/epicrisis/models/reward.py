"""A reward model of several attributes, such as ArmoRM (Wang et al. 2024).

A head with a row per attribute is multiplied by the last token's vector of a language model. ArmoRM's gate, which
combines the attributes into one preference, is not used: the study shows single attributes to its writer. No code of
the model is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from epicrisis.errors import ContextOverflow, ModelFileInvalid
from epicrisis.models.model_download import find_model
from epicrisis.models.model_files import ModelFiles
from epicrisis.models.model_recipes import RewardRecipe
from epicrisis.models.networks import load_network, load_tensor
from epicrisis.models.tokenization import load_tokenizer
from epicrisis.prompts import escape
from epicrisis.protocols import RewardModel


def load_reward_model(name: str, home: Path, threads: int | None = None) -> RewardModel:
    """Load the reward model of that catalogue name, or in that folder. Needs the extra `torch`; contacts nothing.

    Raise ModelMissing or ModelFileInvalid with a remedy.
    """
    files = find_model(name, "reward", home)
    return MultiAttributeReward(files, RewardRecipe.read(files), threads)


class MultiAttributeReward:
    """Rewards are the head's unscaled numbers: ArmoRM's are between about 0 and 1."""

    def __init__(self, files: ModelFiles, recipe: RewardRecipe, threads: int | None = None) -> None:
        self.attributes = recipe.attributes
        self._recipe = recipe
        self._tokenizer = load_tokenizer(files.files["tokenizer.json"])
        self._network = load_network(files, threads)
        self._head = load_tensor(files, recipe.head)
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
