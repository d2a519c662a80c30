"""Collect lines of text below the headings of their sections."""

from __future__ import annotations


class SectionedText:
    """Lines of text, with a heading at each change of the path of titles.

    `default` is the heading of text without a path. An empty one is not written, and such text is in no section.
    """

    def __init__(self, default: str = "") -> None:
        self.lines: list[str] = []
        self.sections: list[list[int | str]] = []
        """[start, end, title path] in order, as offsets in characters of the joined lines."""
        self._default = default
        self._length = 0
        self._path: tuple[str, ...] | None = None

    def add_text(self, path: tuple[str, ...], text: str) -> None:
        """Add a line to the section with this path of titles, unless it is empty."""
        if text:
            self.begin_section(path)
            self.add_line(text)

    def begin_section(self, path: tuple[str, ...]) -> None:
        """Add the heading of a section, unless it is the current one."""
        if not path and self._default:
            path = (self._default,)
        if path == self._path:
            return
        self._path = path
        if path:
            title = " / ".join(path)
            self.sections.append([self._length, self._length, title])
            self.add_line(title)

    def add_line(self, text: str) -> None:
        """Add a line to the current section."""
        self.lines.append(text)
        self._length += len(text) + 1
        if self._path:
            self.sections[-1][1] = self._length - 1
