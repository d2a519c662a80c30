"""Read images of pages with the program tesseract. Images and texts go through pipes, never to the disk."""

from __future__ import annotations

import functools
import io
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

DOTS_PER_INCH = 300
PAGE_SECONDS = 60
"""Seconds for one page."""
MAX_LANGUAGES = 4
"""Installed languages that are tried together. If there are more, English alone is read."""
INSTALL = "install tesseract (Debian: apt install tesseract-ocr) and add the file again to read them by OCR"
_NO_LANGUAGES = frozenset({"osd", "equ"})


@functools.cache
def list_languages() -> tuple[str, ...]:
    """Return the languages that tesseract reads here, such as `eng`; none if it is not installed."""
    program = shutil.which("tesseract")
    if program is None:
        return ()
    try:
        result = subprocess.run([program, "--list-langs"], capture_output=True, timeout=PAGE_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return ()
    names = result.stdout.decode("utf-8", "replace").splitlines()[1:]
    languages = tuple(name.strip() for name in names if name.strip() and name.strip() not in _NO_LANGUAGES)
    if len(languages) > MAX_LANGUAGES and "eng" in languages:
        return ("eng",)
    return languages[:MAX_LANGUAGES]


def read_image(image: Image) -> str:
    """Return the text of an image. Raises ValueError if tesseract fails, or takes longer than `PAGE_SECONDS`."""
    program = shutil.which("tesseract")
    if program is None:
        raise ValueError("tesseract is not installed")
    file = io.BytesIO()
    image.convert("L").save(file, "PNG", dpi=(DOTS_PER_INCH, DOTS_PER_INCH))
    command = [program, "stdin", "stdout", "-l", "+".join(list_languages())]
    # Several threads make tesseract slower.
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    try:
        result = subprocess.run(
            command, input=file.getvalue(), capture_output=True, timeout=PAGE_SECONDS, check=True, env=environment
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ValueError(f"tesseract failed ({type(error).__name__})") from error
    return result.stdout.decode("utf-8", "replace").replace("\f", "").strip()
