"""An encoder without a network, for libraries of precomputed vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from epicrisis.errors import ModelMissing
from epicrisis.printable import quote_for_shell
from epicrisis.protocols import Vectors


@dataclass(frozen=True, slots=True)
class PrecomputedEncoder:
    """Allows NCBI's MedCPT vectors to be added without an installed MedCPT.

    A question, or a text without a vector, needs the network and raises ModelMissing with a remedy.
    """

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
        import numpy as np

        if texts:
            self._raise_missing()
        return np.empty((0, self.dimensions), dtype=np.float32)

    def _raise_missing(self) -> NoReturn:
        command = f"epicrisis models pull {quote_for_shell(self.name)}"
        raise ModelMissing(
            f"a text has no precomputed vector, and {self.name} is not installed: run `{command}`, or pass its folder "
            "with --encoder; the documents added so far are kept"
        )
