"""Remove patients from the state of a server in PostgreSQL: stored answers, jobs, reviews, sign-ins and users.

    removal = clean_server_tables(database, ["10083814"], strings)

The rules are those of a server's folder (`places`, `server_items`). An item is changed in one transaction, so a removal
continues after a kill when it is called again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from epicrisis.core.errors import InputError
from epicrisis.operations.forgetting.patient_strings import PatientStrings
from epicrisis.operations.forgetting.places import PlaceRemoval, is_line_of, remove_items
from epicrisis.operations.forgetting.server_items import is_about, number_questions, prune_review
from epicrisis.server.state.shared_state.shared_database import StateDatabase

_SIGN_INS = ("session", "rights")
_REVIEW, _ITEMS = "review.json", "items.json"
_BATCH = 50
_SELECT_ITEMS = (
    "SELECT kind, id, part, content FROM items WHERE (kind, id, part) > (%s, %s, %s) ORDER BY kind, id, part LIMIT %s"
)
_SELECT_LINES = "SELECT number, content FROM lines WHERE number > %s ORDER BY number LIMIT %s"
_UPDATE = "UPDATE items SET content = %s WHERE kind = %s AND id = %s AND part = %s"


@dataclass(frozen=True, slots=True)
class _Item:
    """A row of the table `items`."""

    kind: str
    id: str
    part: str
    text: str

    def parse(self) -> Any:
        """Return the content as JSON data. Raises InputError."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            raise InputError(
                f"the {self.kind} {self.id} in the database of the server cannot be read: delete its rows in the "
                "tables items and lines, and repeat the command"
            ) from None


def clean_server_tables(database: StateDatabase, patients: Collection[str], strings: PatientStrings) -> PlaceRemoval:
    """Remove items about these patients, and items without a patient that quote them. Return the numbers removed.

    Raises StateUnavailable, and InputError for an item that is damaged.
    """
    changed: list[str] = []
    for item in _read_items(database):
        if item.part == _REVIEW:
            is_changed = _clean_review(database, item, patients, strings)
        elif item.kind in _SIGN_INS:
            is_changed = _clean_sign_in(database, item, patients)
        else:
            is_changed = _clean_item(database, item, patients, strings)
        if is_changed:
            changed.append(f"{item.kind} {item.id}")
    lines = 0
    for number, text in _read_lines(database):
        if is_line_of(text, patients, strings):
            database.rows("DELETE FROM lines WHERE number = %s", number)
            lines += 1
    return PlaceRemoval(lines, tuple(changed))


def _clean_item(database: StateDatabase, item: _Item, patients: Collection[str], strings: PatientStrings) -> bool:
    """Remove the parts of a stored answer or a job that are about the patients. Return whether it changed."""
    if item.part == _ITEMS or not strings.is_in(item.text):
        return False
    value = item.parse()
    if item.kind == "job" and item.part == "job":
        number_questions(value, patients)
    remaining = remove_items(value, patients, strings)
    if remaining == json.loads(item.text):
        return False
    if remaining is None:
        _delete_item(database, item)
    else:
        _update_item(database, item, remaining)
    return True


def _clean_sign_in(database: StateDatabase, item: _Item, patients: Collection[str]) -> bool:
    """End a sign-in to which one of the patients is assigned. Its user signs in again."""
    if not set(item.parse().get("patients") or ()).intersection(patients):
        return False
    _delete_item(database, item)
    return True


def _clean_review(database: StateDatabase, item: _Item, patients: Collection[str], strings: PatientStrings) -> bool:
    """Remove questions with their verdicts from a review, or the review if it has no other questions."""
    rows = database.rows("SELECT content FROM items WHERE kind = 'review' AND id = %s AND part = %s", item.id, _ITEMS)
    questions = _Item(item.kind, item.id, _ITEMS, _decode(rows[0][0]) if rows else "")
    items, plan = questions.parse(), item.parse()
    others, changed = prune_review(plan, items, patients, strings)
    if len(others) == len(items) and changed == plan:
        return False
    if not others:
        _delete_item(database, item)
        return True
    pairs = {question["pair"] for question in others}
    with database.transact():
        verdicts = database.rows("SELECT number, content FROM lines WHERE kind = 'review' AND id = %s", item.id)
        for number, content in verdicts:
            if not is_about(_decode(content), pairs):
                database.rows("DELETE FROM lines WHERE number = %s", number)
        _update_item(database, item, changed)
        _update_item(database, questions, others)
    return True


def _delete_item(database: StateDatabase, item: _Item) -> None:
    """Delete an item with its other parts, its lines and its lease."""
    with database.transact():
        for table in ("leases", "items", "lines"):
            database.rows(f"DELETE FROM {table} WHERE kind = %s AND id = %s", item.kind, item.id)


def _update_item(database: StateDatabase, item: _Item, value: Any) -> None:
    content = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    database.rows(_UPDATE, content, item.kind, item.id, item.part)


def _read_items(database: StateDatabase) -> Iterator[_Item]:
    """Yield the items, without the secrets of the servers."""
    last = ("", "", "")
    while rows := database.rows(_SELECT_ITEMS, *last, _BATCH):
        for kind, id_, part, content in rows:
            if kind != "key":
                yield _Item(kind, id_, part, _decode(content))
        last = rows[-1][:3]


def _read_lines(database: StateDatabase) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of jobs and reviews."""
    last = 0
    while rows := database.rows(_SELECT_LINES, last, _BATCH):
        for number, content in rows:
            yield number, _decode(content)
        last = rows[-1][0]


def _decode(content: bytes) -> str:
    return bytes(content).decode("utf-8", "replace")
