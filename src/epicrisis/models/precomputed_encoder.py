"""The stand-in for an encoder whose vectors come ready-made. Knows only what they are; turns nothing into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from epicrisis.errors import ModelMissing
from epicrisis.printable import quote_for_shell
from epicrisis.protocols import Vectors


class PrecomputedEncoder:
    """For adding NCBI's MedCPT vectors where MedCPT itself is not installed.

    Whatever would need the network raises ModelMissing with the cure: a question, or a text that came without its
    vector.
    """

    def __init__(self, fingerprint: str, name: str, dimensions: int) -> None:
        self._fingerprint = fingerprint
        self._name = name
        self._dimensions = dimensions

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dimensions(self) -> int:
        return self._dimensions

    @property
    def max_tokens(self) -> int:
        """Of one article with its title: 512 less three special tokens."""
        return 509

    @property
    def max_query_tokens(self) -> int:
        return 62

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        self._missing()

    def encode_queries(self, texts: Sequence[str]) -> Vectors:
        self._missing()

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        import numpy as np

        if texts:
            self._missing()
        return np.empty((0, self._dimensions), dtype=np.float32)

    def _missing(self) -> NoReturn:
        pull = f"epicrisis models pull {quote_for_shell(self._name)}"
        raise ModelMissing(
            f"a text came without its vector, and {self._name} is not installed: `{pull}`, "
            "or name its folder with --encoder; what was added is kept"
        )
