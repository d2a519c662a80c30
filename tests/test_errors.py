"""The tree of errors is as its docstring draws it."""

from __future__ import annotations

import re

import pytest

from epicrisis.core import errors
from epicrisis.core.answers import Failure, Usage
from epicrisis.core.errors import EpicrisisError

RETRYABLE = {"EndpointUnreachable", "EndpointTimeout", "EndpointBusy", "ReplyEmpty", "ReplyInvalid"}


def drawn() -> dict[str, tuple[str | None, str]]:
    """Class -> (parent, remark) as the docstring draws them, by the column where each name begins."""
    tree: dict[str, tuple[str | None, str]] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^(?P<rails>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:\s{2,}(?P<remark>\S.*))?$", line)
        if found is None:
            continue
        column = len(found["rails"])
        while above and above[-1][0] >= column:
            above.pop()
        tree[found["name"]] = (above[-1][1] if above else None, found["remark"] or "")
        above.append((column, found["name"]))
    return tree


def real() -> dict[str, type[EpicrisisError]]:
    """Every class of the tree that the module defines."""
    found = {}
    waiting: list[type[EpicrisisError]] = [EpicrisisError]
    while waiting:
        kind = waiting.pop()
        if kind.__module__ == errors.__name__:
            found[kind.__name__] = kind
            waiting += kind.__subclasses__()
    return found


def test_error_tree_in_docstring_matches_classes() -> None:
    parents = {name: None if kind is EpicrisisError else kind.__bases__[0].__name__ for name, kind in real().items()}
    assert {name: parent for name, (parent, _) in drawn().items()} == parents
    assert len(parents) > 15


def test_all_error_classes_are_in_tree() -> None:
    defined = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert defined == set(real())


def test_retryable_errors_are_marked() -> None:
    assert {name for name, kind in real().items() if kind.retryable} == RETRYABLE
    assert {name for name, (_, remark) in drawn().items() if remark.endswith("(retryable)")} == RETRYABLE


def test_exit_codes_match_tree() -> None:
    tree = drawn()

    def code(name: str) -> int:
        parent, remark = tree[name]
        said = re.match(r"exit code (\d+)", remark)
        if said:
            return int(said[1])
        return code(parent) if parent else 1

    assert {name: kind.exit_code for name, kind in real().items()} == {name: code(name) for name in tree}


@pytest.mark.parametrize("kind", real().values(), ids=lambda kind: kind.__name__)
def test_error_has_message_and_usage(kind: type[EpicrisisError]) -> None:
    error = kind("do this", usage=Usage(calls=2))
    assert (error.message, str(error)) == ("do this", "do this")
    assert error.usage == Usage(calls=2)
    assert error.as_failure() == Failure(kind.__name__, "do this")
    assert kind("x").usage == Usage()
    assert kind.__doc__
