"""Tell the encoding of text that is not UTF-8. No byte ever becomes a replacement character."""

from __future__ import annotations

import codecs
import contextlib
import functools
import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, cast

from epicrisis.corpus.base.reader_base import READ_ERRORS, FileRemark, file_version, open_packed, read_head

SAMPLE_BYTES = 200_000
"""Bytes of lines with letters beyond ASCII that decide."""
_PIECE_BYTES = 1 << 20
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CANDIDATE_NAMES = """
utf-8 utf-16 utf-16-le utf-16-be utf-32 cp1250 cp1251 cp1252 cp1253 cp1254 iso8859-1 iso8859-2 koi8-r cp866 mac-roman
cp932 euc-jp iso-2022-jp gbk gb18030 big5 big5hkscs cp949 euc-kr
"""
_CANDIDATES = frozenset(_CANDIDATE_NAMES.split())
"""Encodings of people's files. All others that chardet knows make short texts ambiguous."""
_MANY_BYTES = frozenset({"cp932", "euc_jp", "iso2022_jp", "gbk", "gb18030", "big5", "big5hkscs", "cp949", "euc_kr"})
_OTHER_LETTERS = _MANY_BYTES | {"cp1251", "cp1253", "koi8-r", "cp866"}
_LATIN = frozenset({"cp1250", "cp1252", "cp1254", "iso8859-1", "iso8859-2", "mac-roman"})
_NO_MATCH = "utf-8"
_SIGNS = re.compile(
    rb"(?<![\x80-\xff])([\x80\x82\x84-\x87\x91-\x97\x99\xa0\xa7\xa9\xab\xae\xb0\xb1\xb5\xb7\xbb])\1*(?![\x80-\xff])"
)
"""Quotation marks, dashes, ±, °, µ and other signs of Windows-1252 by themselves. Elsewhere they are letters."""
_SIGN_IN_WORD = re.compile(r"[¢£¤¥¦§¨ª¬¯²³¸¹º¼½¾†‡ˆ‰‹›˜™][a-zß-ÿ]")
"""What Windows-1252 makes of letters of other encodings: `głowy` of Windows-1250 becomes `g³owy`."""
_COMMONEST_SHARE = 0.66
"""Windows-1252 is read if its likelihood is at least this share of that of any other encoding of Latin letters. In 45
short texts of 8 languages in other encodings, it was 0.61 at most."""
_UTF8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_ASCII = bytes(range(128))
_ALONE = re.compile(r"(?<![^\x00-\x7f])[^\x00-\x7f](?![^\x00-\x7f])")
_RUN = re.compile(r"[^\x00-\x7f]+")
_RUN_IN_WORD = re.compile(
    r"(?<=[A-Za-z])[^\x00-\x7f]{1,2}(?![^\x00-\x7f])|(?<![^\x00-\x7f])[^\x00-\x7f]{1,2}(?=[A-Za-z])"
)
_TWICE = re.compile(
    "Ã[\u0192\u0178\u00a0-\u00ba\u00bc-\u00bf]|Â[\u00a0-\u00ba\u00bc-\u00bf]|â[€\u0080]|[ÎÏ][\u00a1-\u00ba\u00bc-\u00bf]"
)
"""What no text has but UTF-8 that was read as Windows-1252 and encoded again (`Ã¼`, `Â±`, `â€™`, `Î±`)."""
ENCODED_TWICE = "utf-8 encoded twice"
_UNKNOWN = "not UTF-8, and its encoding cannot be told; save it as UTF-8"


def decode_text(data: bytes) -> tuple[str, str]:
    """Return the text, and the name of its encoding unless it is UTF-8. UTF-8 that was encoded twice is mended.

    Raises ValueError with the reason if the encoding cannot be told, or two encodings are mixed.
    """
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                if encoding == "utf-8":
                    return _mend_lines(data.decode("utf-8-sig"))
                return data.decode(encoding), encoding
            except UnicodeDecodeError as error:
                raise ValueError(f"not {encoding} at byte {error.start + 1}; save it as UTF-8") from error
    try:
        return _mend_lines(data.decode())
    except UnicodeDecodeError:
        encoding = guess_encoding(data if b"\0" in data else b"".join(_select_lines(data.splitlines(keepends=True))))
    try:
        return data.decode(encoding), encoding
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8, and not {encoding} at byte {error.start + 1}; save it as UTF-8") from error


def _mend_lines(text: str) -> tuple[str, str]:
    """Return a text without double encoding, and that it had it. A line that has other letters too stays as it is."""
    if not _TWICE.search(text):
        return text, ""
    lines = [_mend(line) if _TWICE.search(line) else line for line in re.split(r"(?<=[\r\n])", text)]
    mended = "".join(lines)
    return mended, ENCODED_TWICE if mended != text else ""


def _mend(line: str) -> str:
    for encoding in ("cp1252", "iso8859-1"):
        with contextlib.suppress(UnicodeError):
            return line.encode(encoding).decode().replace("\ufeff", "")
    return line


def guess_encoding(sample: bytes) -> str:
    """Return Python's name of the encoding of a text that is not UTF-8. Raises ValueError if it cannot be told."""
    encoding = _detect(sample, _CANDIDATES)
    if encoding in _OTHER_LETTERS and _is_western(sample, encoding):
        encoding = _detect(sample, _LATIN | {_NO_MATCH})
    if encoding in _LATIN and _is_windows_1252(sample, encoding):
        encoding = "cp1252"
    nulls = sample.count(0)
    # In UTF-16 every other byte of Latin text is NUL; other text has none.
    is_wide = encoding.startswith("utf-")
    if encoding == _NO_MATCH or (nulls and not is_wide) or (is_wide and 4 * nulls < len(sample)):
        raise ValueError(_UNKNOWN)
    if encoding in _MANY_BYTES:
        # Characters of these encodings look like UTF-8 by chance, but never nearly all of them.
        high = len(sample.translate(None, _ASCII))
        is_mixed = 4 * sum(map(len, _UTF8_SEQUENCE.findall(sample))) > 3 * high
    else:
        is_mixed = not is_wide and any(map(_is_utf8, _select_lines(sample.splitlines())))
    if is_mixed:
        raise ValueError("two encodings are mixed, one of them UTF-8; save all of it as UTF-8")
    return encoding


def _detect(sample: bytes, candidates: frozenset[str]) -> str:
    import chardet

    name = chardet.detect(sample, include_encodings=candidates, no_match_encoding=_NO_MATCH)["encoding"]
    try:
        return codecs.lookup(name or _NO_MATCH).name
    except LookupError as error:
        raise ValueError(_UNKNOWN) from error


def _is_windows_1252(sample: bytes, rival: str) -> bool:
    """Return whether a text in Latin letters is read as Windows-1252, the commonest encoding, and not as its rival.

    ISO 8859-1 is read so too, as browsers do: the difference is in characters that no text has.
    """
    import chardet

    try:
        text = sample.decode("cp1252")
    except UnicodeDecodeError:
        return False
    if text == sample.decode(rival, "replace") or not _SIGNS.sub(b"", sample).translate(None, _ASCII):
        return True
    if _SIGN_IN_WORD.search(text):
        return False
    results = chardet.detect_all(sample, ignore_threshold=True, include_encodings=_LATIN, no_match_encoding="cp1252")
    likelihood: dict[str, float] = {}
    for result in results:
        likelihood[codecs.lookup(result["encoding"] or _NO_MATCH).name] = result["confidence"]
    western = max(likelihood.get("cp1252", 0), likelihood.get("iso8859-1", 0))
    return western >= _COMMONEST_SHARE * max(likelihood.values())


def _is_western(sample: bytes, encoding: str) -> bool:
    """Return whether half of the characters beyond ASCII, read in an encoding of other letters, are within Latin words.

    They are letters with accents: in GBK, `naïf` of Windows-1252 is `na` and one Chinese character. A letter by itself
    (`à`) counts as one, and so does a text that has signs alone.
    """
    if not _SIGNS.sub(b"", sample).translate(None, _ASCII):
        return True
    text = sample.decode(encoding, "replace")
    accents = sum(map(len, _RUN_IN_WORD.findall(text)))
    if encoding not in _MANY_BYTES:
        accents += len(_ALONE.findall(_RUN_IN_WORD.sub("", text)))
    return 2 * accents >= sum(map(len, _RUN.findall(text)))


def encoding_remark(name: str, encoding: str) -> FileRemark:
    """Return the remark on a file that was read in another encoding than UTF-8."""
    is_certain = encoding.startswith("utf")
    advice = "" if is_certain else "; if letters are wrong, save it as UTF-8 and add it again"
    return FileRemark(name, "file", f"read as {encoding}, not as UTF-8{advice}")


def detect_file_encoding(path: Path) -> str:
    """Return the encoding of all of a file, plain or gzip; empty for UTF-8, and if it cannot be told.

    The file is read once, in pieces; the answer is kept until the file changes. Raises OSError.
    """
    return _detect_file_encoding(path, file_version(path))


@functools.lru_cache(maxsize=64)
def _detect_file_encoding(path: Path, version: tuple[int, ...]) -> str:
    try:
        head = read_head(path).data
        bom = next((name for mark, name in _BOMS if head.startswith(mark)), "")
        if bom:
            return bom.removeprefix("utf-8")
        with open_packed(path) as file:
            if _decodes(file, "utf-8"):
                return ""
        with open_packed(path) as file:
            sample: list[bytes] = []
            length = 0
            for line in _select_lines(iter(lambda: file.readline(_PIECE_BYTES), b"")):
                sample.append(line)
                length += len(line)
                if length > SAMPLE_BYTES:
                    break
        encoding = guess_encoding(b"".join(sample))
        with open_packed(path) as file:
            return encoding if _decodes(file, encoding) else ""
    except (ValueError, *READ_ERRORS):
        return ""


def detect_wide_encoding(path: Path) -> str:
    """Return the encoding of a file of JSON in UTF-16 or UTF-32, plain or gzip, by its first bytes; empty for others.

    Raises one of `READ_ERRORS`.
    """
    head = read_head(path).data[:4]
    for mark, name in _BOMS:
        if head.startswith(mark):
            return name.removeprefix("utf-8")
    # Without a mark, the first character of JSON is ASCII.
    if len(head) == 4 and head[1::2] == b"\0\0":
        return "utf-32-le" if not head[2] else "utf-16-le"
    return "utf-16-be" if len(head) == 4 and head[::2] == b"\0\0" and head[1] else ""


def open_as_utf8(path: Path, encoding: str) -> IO[bytes]:
    """Open a file, plain or gzip, whose bytes are read as UTF-8. Reading raises one of `READ_ERRORS` for damage."""
    file = open_packed(path)
    return cast(IO[bytes], io.BufferedReader(_Recoder(file, encoding))) if encoding else file


class _Recoder(io.RawIOBase):
    """The bytes of a file in another encoding, as UTF-8 without a byte order mark."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        super().__init__()
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            data = self._file.read(_PIECE_BYTES)
            try:
                self._pending = self._decoder.decode(data, final=not data).encode()
            except UnicodeError as error:
                raise OSError("its encoding changes within it") from error
            if not data:
                break
        size = min(len(buffer), len(self._pending))
        buffer[:size], self._pending = self._pending[:size], self._pending[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def _select_lines(lines: Iterable[bytes]) -> Iterable[bytes]:
    return (line for line in lines if not line.isascii())


def _decodes(file: IO[bytes], encoding: str) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        while piece := file.read(_PIECE_BYTES):
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeError:
        return False
    return True


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
