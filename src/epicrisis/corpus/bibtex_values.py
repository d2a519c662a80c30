"""Read the values of BibTeX fields: texts in braces or quotes, numbers and names of strings, joined by `#`.

read_values("author", '{Smith, A} # " and " # jones', {"jones": "Jones, B"})
# {"author": "Smith, A and Jones, B"}
"""

from __future__ import annotations

import re
from collections.abc import Mapping

BROKEN = "its braces, quotes or commas are broken"
"""Why an entry cannot be read."""
_BARE = re.compile(r"[^\s#,{}\"=]{1,500}")
_NEXT_FIELD = re.compile(r",?\s{0,200}([A-Za-z][\w+-]{0,60})\s{0,20}=")


def read_values(name: str, value: str, strings: Mapping[str, str]) -> dict[str, str]:
    """Return the value of a field, and those of the fields after it that lack a comma before them.

    `strings` are the file's `@string` values by name in lower case; another name stays as it is. Raises ValueError
    for a value that is not of the form.
    """
    values: dict[str, str] = {}
    position = 0
    while True:
        values[name], position = _read_value(value, position, strings)
        if match := _NEXT_FIELD.match(value, position):
            name, position = match[1].lower(), match.end()
        elif position == len(value):
            return values
        elif len(values) == 1 and value[:1] == '"' and value[-1:] == '"' and "#" not in value[position:]:
            # Quotes within quotes, which BibTeX forbids.
            return {name: value[1:-1]}
        else:
            raise ValueError(BROKEN)


def _read_value(value: str, position: int, strings: Mapping[str, str]) -> tuple[str, int]:
    """Return the joined text of a value, and the position after it and the white space that follows."""
    pieces = []
    while True:
        position = _skip_space(value, position)
        sign = value[position : position + 1]
        if sign in ("{", '"'):
            end = _find_end(value, position)
            pieces.append(value[position + 1 : end])
            position = end + 1
        elif match := _BARE.match(value, position):
            pieces.append(strings.get(match[0].lower(), match[0]))
            position = match.end()
        elif sign:
            raise ValueError(BROKEN)
        position = _skip_space(value, position)
        if value[position : position + 1] != "#":
            return "".join(pieces), position
        position += 1


def _skip_space(value: str, position: int) -> int:
    while value[position : position + 1].isspace():
        position += 1
    return position


def _find_end(value: str, start: int) -> int:
    """Return the position of the brace or quote that closes the one at `start`. Raises ValueError without it."""
    depth = 0
    for position in range(start, len(value)):
        sign = value[position]
        if sign in "{}" and value[position - 1 : position] != "\\":
            depth += 1 if sign == "{" else -1
        is_quote = sign == '"' and position > start and depth == 0
        if (value[start] == "{" and depth == 0) or (value[start] == '"' and is_quote):
            return position
    raise ValueError(BROKEN)
