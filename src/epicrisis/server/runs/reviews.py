"""Blind reviews: two runs, for blind comparison of their answers by reviewers.

    reviews = ReviewStore(folder)
    reviews.add(review)
    reviews.save(review.plan.id, verdict)

Each review is a folder whose name cannot be guessed:

    items.json        the questions with both answers, as they were when the review began
    review.json       the plan, written last: a folder without it is no review
    verdicts.jsonl    one line for each click of a reviewer; the last line on a pair is valid
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import TypeAdapter

from epicrisis.core.errors import InputError, StorageError
from epicrisis.core.serialization import to_json
from epicrisis.evaluation.grading.blind_pairs import BlindingKey, BlindPair, BlindPairs
from epicrisis.evaluation.grading.human_verdicts import (
    HumanVerdict,
    PreferredAnswer,
    PresentationOrder,
    swap_places,
)
from epicrisis.server.base.http_errors import NotFound
from epicrisis.server.base.item_folder import ItemFolder
from epicrisis.server.state.state import REVIEW_PLAN as PLAN

if TYPE_CHECKING:
    from epicrisis.server.state.shared_state.items import ItemTable

ITEMS, VERDICTS = "items.json", "verdicts.jsonl"
MAX_IN_MEMORY = 16
"""Reviews kept in memory; others are read again."""
_ID = re.compile(r"[A-Za-z0-9_-]{32}")
_ID_BYTES = 24
_CLOSED = "closed"

VerdictState: TypeAlias = Literal["judged", "skipped", "draft"]
"""`draft`: criteria or a remark without a verdict on the whole answer."""


@dataclass(frozen=True, slots=True)
class ShownClaim:
    """A claim with the numbers of its sources."""

    text: str
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ShownSource:
    """A source of an answer: the cited sentence, and its article or note."""

    number: int
    quotation: str
    reference: str
    design: str
    marks: str
    """What became of the article, in capitals."""
    is_verified: bool


@dataclass(frozen=True, slots=True)
class ShownAnswer:
    """An answer as reviewers see it, without anything that tells how it was made."""

    choice: str
    """The chosen option. Empty for an open question."""
    claims: tuple[ShownClaim, ...]
    sources: tuple[ShownSource, ...]

    @property
    def words(self) -> str:
        """The answer without its sources, one claim a line."""
        lines = [self.choice, *(claim.text for claim in self.claims)]
        return "\n".join(filter(None, lines))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewItem:
    """A question with two answers. Which is first is drawn, and says nothing about a reviewer's page."""

    pair: str
    question: str
    options: tuple[str, ...]
    first: ShownAnswer
    second: ShownAnswer
    patient: str | None = None
    documents: tuple[str, ...] = ()
    """Ids of the cited documents, for the access log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewPlan:
    """What was decided when a review began."""

    id: str
    at: float
    """Seconds since the epoch."""
    creator: str
    runs: tuple[str, str]
    """The run whose answers may be better or worse, and the run it is compared with."""
    criteria: tuple[str, ...]
    reviewers: Mapping[str, str]
    """Users who may judge, as owner id and name (`Caller.owner`). Empty: all who may read the runs."""
    sample: int | None
    seed: int
    key: BlindingKey
    secret: str
    """Decides what each reviewer sees first. It is random, so that who knows the seed of the sample knows nothing."""

    @property
    def title(self) -> str:
        """The review by the time of its beginning."""
        day = datetime.fromtimestamp(self.at, UTC)
        return f"Review of {day.day} {day:%B %Y, %H:%M} UTC"

    @property
    def holds_patients(self) -> bool:
        """Whether a question is about a patient's record."""
        return self.key.patients


@dataclass(frozen=True, slots=True)
class ReviewTurn:
    """A question of one reviewer."""

    number: int
    """From 1, in this reviewer's order."""
    item: ReviewItem
    order: PresentationOrder

    @property
    def answers(self) -> tuple[ShownAnswer, ShownAnswer]:
        """The answers in the order of this reviewer's page."""
        first, second = self.item.first, self.item.second
        return (first, second) if self.order == "shown" else (second, first)

    def translate(self, place: PreferredAnswer) -> PreferredAnswer:
        """Return the choice of the pair for a place on the page, or the place for a choice."""
        return place if self.order == "shown" else swap_places(place)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewVerdict:
    """What a reviewer said about a pair. Choices are those of the pair, not the places on the page."""

    reviewer: str
    """The owner id of the user (`Caller.owner`)."""
    pair: str
    state: VerdictState
    order: PresentationOrder
    name: str = ""
    """The name of the user."""
    choice: PreferredAnswer | None = None
    criteria: Mapping[str, PreferredAnswer] = field(default_factory=dict)
    remark: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BlindReview:
    """A review with its questions."""

    plan: ReviewPlan
    items: tuple[ReviewItem, ...]

    @property
    def pairs(self) -> BlindPairs:
        """The pairs in the form that `epicrisis grade` reads."""
        pairs = [BlindPair(item.pair, item.question, item.first.words, item.second.words) for item in self.items]
        return BlindPairs(tuple(pairs), self.plan.key)

    def turns(self, reviewer: str) -> tuple[ReviewTurn, ...]:
        """Return the questions in this reviewer's order. Each run is on the left in half of the pairs.

        The odd pair, and which run begins, are drawn. Other names of the runs give the same order.
        """
        swapped: set[str] = set()
        first = self.plan.key.first
        shuffled = self._shuffle("side", reviewer)
        for place, item in enumerate(shuffled, self._draw("start", reviewer, "")[0]):
            is_left = place % 2 == 0
            if (first[item.pair] == first[shuffled[0].pair]) != is_left:
                swapped.add(item.pair)
        turns: list[ReviewTurn] = []
        for number, item in enumerate(self._shuffle("place", reviewer), 1):
            turns.append(ReviewTurn(number, item, "swapped" if item.pair in swapped else "shown"))
        return tuple(turns)

    def _shuffle(self, purpose: str, reviewer: str) -> list[ReviewItem]:
        return sorted(self.items, key=lambda item: self._draw(purpose, reviewer, item.pair))

    def _draw(self, *parts: str) -> bytes:
        return hashlib.sha256("\0".join((self.plan.secret, *parts)).encode()).digest()


@dataclass(frozen=True, slots=True)
class ReviewState:
    """All verdicts of a review, and whether it takes more."""

    verdicts: Mapping[tuple[str, str], ReviewVerdict] = field(default_factory=dict)
    """By reviewer and pair."""
    is_closed: bool = False

    @property
    def reviewers(self) -> dict[str, str]:
        """The names of those who have begun, by owner id, in the order of their first click.

        Of users who share a name, all but the first have a number behind it.
        """
        names: dict[str, str] = {}
        for verdict in self.verdicts.values():
            if verdict.reviewer not in names:
                name = verdict.name or verdict.reviewer
                others = sum(other == name or other.startswith(f"{name} (") for other in names.values())
                names[verdict.reviewer] = f"{name} ({others + 1})" if others else name
        return names

    def count(self, reviewer: str, state: VerdictState = "judged") -> int:
        """Return how many pairs of a reviewer are in this state."""
        return sum(verdict.state == state for verdict in self.verdicts.values() if verdict.reviewer == reviewer)

    def find(self, reviewer: str, turn: ReviewTurn) -> ReviewVerdict | None:
        """Return what a reviewer said about a pair."""
        return self.verdicts.get((reviewer, turn.item.pair))

    def next_turn(self, reviewer: str, turns: Sequence[ReviewTurn], after: int = 0) -> ReviewTurn | None:
        """Return the next question without a verdict, after this number first. Skipped ones come last."""
        later = [*turns[after:], *turns[:after]]
        skipped: ReviewTurn | None = None
        for turn in later:
            verdict = self.find(reviewer, turn)
            if verdict is None or verdict.state == "draft":
                return turn
            if verdict.state == "skipped" and skipped is None and turn.number != after:
                skipped = turn
        return skipped

    def list_judged(self) -> tuple[HumanVerdict, ...]:
        """Return the verdicts in the form that `epicrisis grade` reads."""
        judged: list[HumanVerdict] = []
        names = self.reviewers
        for verdict in self.verdicts.values():
            if verdict.state == "judged" and verdict.choice is not None:
                name, choice, order = names[verdict.reviewer], verdict.choice, verdict.order
                judged.append(HumanVerdict(verdict.pair, name, choice, verdict.remark, order, verdict.criteria))
        return tuple(judged)


_PLAN = TypeAdapter(ReviewPlan)
_ITEMS = TypeAdapter(tuple[ReviewItem, ...])
_VERDICT = TypeAdapter(ReviewVerdict)


class ReviewStore:
    """Keeps reviews on disk, readable for their owner alone, or in a database. Several processes may write to it."""

    def __init__(self, items: ItemFolder | ItemTable) -> None:
        self._items = items
        self._reviews: OrderedDict[str, BlindReview] = OrderedDict()
        self._lock = Lock()

    def add(self, review: BlindReview) -> None:
        """Keep a new review. It is complete or absent, also after a kill. Raises StorageError."""
        items, plan = _ITEMS.dump_json(review.items), _PLAN.dump_json(review.plan)
        try:
            self._items.add(review.plan.id, {ITEMS: items, PLAN: plan})
        except OSError as error:
            raise StorageError(f"the review cannot be stored: {error.strerror}") from None

    def has_reviews(self) -> bool:
        """Return whether there is a review, whoever may judge it."""
        return bool(self._items.ids(PLAN))

    def list(self) -> list[BlindReview]:
        """Return all reviews, the newest first."""
        reviews: list[BlindReview] = []
        for id_ in self._items.ids(PLAN):
            with suppress(NotFound):
                reviews.append(self.find(id_))
        return sorted(reviews, key=lambda review: -review.plan.at)

    def find(self, id_: str) -> BlindReview:
        """Return the review with this id. Raises NotFound without one, and for one of another version."""
        if not _ID.fullmatch(id_):
            raise NotFound("the server has no such review")
        with self._lock:
            review = self._reviews.get(id_)
            # It may have been deleted, by another process too.
            if review is None or not self._items.has(id_, PLAN):
                try:
                    plan = _PLAN.validate_json(self._items.read(id_, PLAN) or b"")
                    items = _ITEMS.validate_json(self._items.read(id_, ITEMS) or b"")
                except ValueError:
                    self._reviews.pop(id_, None)
                    raise NotFound("the server has no such review") from None
                review = self._reviews[id_] = BlindReview(plan, items)
                while len(self._reviews) > MAX_IN_MEMORY:
                    self._reviews.popitem(last=False)
        return review

    def read_state(self, id_: str) -> ReviewState:
        """Return the verdicts of a review. Raises InputError for a damaged file."""
        verdicts: dict[tuple[str, str], ReviewVerdict] = {}
        for line in self._items.lines(id_, VERDICTS):
            if line.get("state") == _CLOSED:
                return ReviewState(verdicts, is_closed=True)
            verdict = _read_verdict(line)
            verdicts[verdict.reviewer, verdict.pair] = verdict
        return ReviewState(verdicts)

    def save(self, id_: str, verdict: ReviewVerdict) -> None:
        """Keep a verdict. It is on the disk when this returns. A draft keeps the verdict before it.

        Raises InputError if the review is closed, NotFound if it was deleted, and StorageError.
        """
        with self._locked(id_):
            state = self.read_state(id_)
            if state.is_closed:
                raise InputError("the review is closed and takes no more verdicts: ask the administrator for a new one")
            earlier = state.verdicts.get((verdict.reviewer, verdict.pair))
            line = to_json(verdict) | {"at": time.time()}
            if verdict.state == "draft" and earlier is not None:
                line |= {"state": earlier.state, "choice": earlier.choice}
            self._items.append(id_, VERDICTS, line)

    def close(self, id_: str, by: str) -> None:
        """End a review, so that its results can be read. Ending it twice is harmless."""
        with self._locked(id_):
            if not self.read_state(id_).is_closed:
                self._items.append(id_, VERDICTS, {"state": _CLOSED, "by": by, "at": time.time()})

    def remove(self, id_: str) -> None:
        """Delete a review with its verdicts. Raises NotFound and StorageError."""
        with self._locked(id_):
            try:
                self._items.remove(id_, PLAN)
            except OSError as error:
                raise StorageError(f"the review cannot be deleted: {error.strerror}") from None
        with self._lock:
            self._reviews.pop(id_, None)

    @contextmanager
    def _locked(self, id_: str) -> Iterator[None]:
        """Lock a review that exists against other writers."""
        self.find(id_)
        with self._items.locked(id_):
            self.find(id_)
            yield


def new_review_id() -> str:
    """Return an id that cannot be guessed."""
    return secrets.token_urlsafe(_ID_BYTES)


def _read_verdict(value: Mapping[str, Any]) -> ReviewVerdict:
    try:
        return _VERDICT.validate_python(value)
    except ValueError:
        raise InputError(f"{VERDICTS} of the review is damaged: repair the line, or delete the review") from None
