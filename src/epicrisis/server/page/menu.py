"""The menu of every page: only what has something to show.

Menu(runs, reviews).list_items()   # (("/", "Ask", "ask"), ...)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from epicrisis.server.reviews import ReviewStore
    from epicrisis.server.run_api import RunFolder

ALWAYS = (("/", "Ask", "ask"), ("/libraries", "Libraries", "libraries"), ("/history", "History", "history"))
_KEEP_SECONDS = 5.0


class Menu:
    """The pages that the menu names. Runs and reviews are named once there are any."""

    def __init__(self, runs: RunFolder | None, reviews: ReviewStore | None) -> None:
        self._runs = runs
        self._reviews = reviews
        self._items = ALWAYS
        self._until = 0.0

    def list_items(self) -> tuple[tuple[str, str, str], ...]:
        """Return address, words and name of each page. Folders are looked at again after some seconds."""
        now = time.monotonic()
        if now >= self._until:
            has_runs = self._runs is not None and self._runs.has_runs()
            has_reviews = has_runs or (self._reviews is not None and self._reviews.has_reviews())
            runs = (("/runs", "Runs", "runs"),) if has_runs else ()
            reviews = (("/reviews", "Reviews", "reviews"),) if has_reviews else ()
            self._items, self._until = (*ALWAYS[:2], *runs, *reviews, *ALWAYS[2:]), now + _KEEP_SECONDS
        return self._items
