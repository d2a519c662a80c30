"""Encoders that the process of an import finds as those of an installed package, and a package that offers one.

All have the vectors of `patient_records.ENCODER`. `marked` texts make some of them misbehave.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from epicrisis.core.errors import ModelFileInvalid, StorageError
from epicrisis.core.protocols import Vectors
from epicrisis.corpus import sandbox
from epicrisis.testing.hashing_encoder import HashingEncoder

MARK = "kumquat"
"""A word of texts that make an encoder misbehave."""
_SIGN = "IMPORT_TEST_SIGN"


class PlainEncoder(HashingEncoder):
    """The encoder of the libraries of `tests.support.servers`."""

    def __init__(self) -> None:
        super().__init__(32, max_tokens=24)


class SlowEncoder(PlainEncoder):
    """Takes 20 ms for a passage."""

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        time.sleep(0.02 * len(texts))
        return super().encode_passages(texts)


class MarkedEncoder(PlainEncoder):
    """Does something else before it encodes marked passages."""

    def encode_passages(self, texts: Sequence[tuple[str, str]]) -> Vectors:
        if any(MARK in text for _, text in texts):
            self.meet_mark()
        return super().encode_passages(texts)

    def meet_mark(self) -> None:
        raise NotImplementedError


class GreedyEncoder(MarkedEncoder):
    """Takes 8 GB of memory, which cost nothing until they are written."""

    def meet_mark(self) -> None:
        bytearray(8 * 1024**3)


class MisledEncoder(MarkedEncoder):
    """Says that its file is damaged, as native code does to which memory is refused."""

    def meet_mark(self) -> None:
        self.pieces = [bytearray(16 * 1024**2) for _ in range(50)]
        raise ModelFileInvalid("the model is damaged")


class EndlessEncoder(MarkedEncoder):
    """Does not come back, and says nothing meanwhile."""

    def meet_mark(self) -> None:
        while True:
            pass


class CrashingEncoder(MarkedEncoder):
    """Crashes as C code does."""

    def meet_mark(self) -> None:
        os.kill(os.getpid(), signal.SIGSEGV)


class FaultyEncoder(MarkedEncoder):
    """Has a fault whose message holds text of the document."""

    def meet_mark(self) -> None:
        raise ZeroDivisionError(MARK)


class CallingEncoder(MarkedEncoder):
    """Looks up another machine."""

    def meet_mark(self) -> None:
        socket.getaddrinfo("encoder.example", 443)


class FullDiskEncoder(MarkedEncoder):
    """Finds the disk full."""

    def meet_mark(self) -> None:
        raise StorageError("the disk is full: free some space")


class WaitingEncoder(MarkedEncoder):
    """Writes the id of its process into the file of the test, and waits until it is interrupted."""

    def meet_mark(self) -> None:
        give_sign()
        time.sleep(600)


class DeafEncoder(MarkedEncoder):
    """Is like WaitingEncoder, and hears no SIGINT, as C code that does not return."""

    def meet_mark(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        give_sign()
        time.sleep(600)


class PausingEncoder(MarkedEncoder):
    """Writes the id of its process into the file of the test, and goes on when the test has deleted it."""

    def meet_mark(self) -> None:
        give_sign()
        while Path(os.environ[_SIGN]).exists():
            time.sleep(0.02)


class HastyEncoder(PlainEncoder):
    """Gives parsers 1 s of processor time."""

    def __init__(self) -> None:
        super().__init__()
        sandbox.SECONDS = 1


def give_sign() -> None:
    """Write the id of this process into the file of the test."""
    place = Path(os.environ[_SIGN])
    place.with_suffix(".new").write_text(str(os.getpid()), encoding="ascii")
    place.with_suffix(".new").replace(place)


def offer_encoder(folder: Path, monkeypatch: pytest.MonkeyPatch, encoder: type[HashingEncoder]) -> Path:
    """Offer an encoder as `hashing` to processes that this one starts. Return where it writes its process id."""
    place = folder / "hashing-1.0.dist-info"
    place.mkdir(parents=True, exist_ok=True)
    (place / "METADATA").write_text("Metadata-Version: 2.1\nName: hashing\nVersion: 1.0\n", encoding="utf-8")
    entry = f"[epicrisis.encoders]\nhashing = {encoder.__module__}:{encoder.__name__}\n"
    (place / "entry_points.txt").write_text(entry, encoding="utf-8")
    paths = [str(folder), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv(_SIGN, str(folder / "sign"))
    return folder / "sign"
