"""The words of texts, found by several threads at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import get_ident

from epicrisis.library.engines import word_index


def test_each_thread_has_analyzer_of_its_own() -> None:
    """The analyzer refuses a call while it serves another one."""

    def find(_: int) -> tuple[int, int]:
        assert word_index.analyze_words("Aspirin lowered the risks") == ["aspirin", "lower", "risk"]
        return get_ident(), id(word_index._load_analyzers().analyzer)

    with ThreadPoolExecutor(4) as pool:
        pairs = set(pool.map(find, range(400)))
    threads = {thread for thread, _ in pairs}
    assert len(pairs) == len(threads)
    assert len({analyzer for _, analyzer in pairs}) == len(threads)
