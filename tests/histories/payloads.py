"""What the entries of the histories' log hold: a text that names the entry, and what follows from that.

NAME.INCARNATION.NUMBER          the text alone
NAME.INCARNATION.NUMBER+BYTES    with so many bytes behind it
NAME.INCARNATION.NUMBER*PARTS    an atomic batch of so many parts
"""

from __future__ import annotations

import re

__all__ = ["parts_of_text", "text_of_parts"]

_TEXT = re.compile(r"[a-z]+[0-9]*\.[0-9]+\.[0-9]+(?:(?P<kind>[+*])(?P<count>[0-9]+))?")


def parts_of_text(text: str) -> list[bytes]:
    """The parts of the entry of this name; one, where it is no batch."""
    found = _TEXT.fullmatch(text)
    assert found is not None, text
    count = int(found["count"] or 0)
    if found["kind"] == "*":
        return [b"%s|%d" % (text.encode(), number) for number in range(count)]
    return [text.encode() + b"|" + bytes(number % 251 for number in range(count))]


def text_of_parts(parts: list[bytes]) -> str:
    """The text of an entry that was read; one that nobody appended where it is not whole."""
    text = parts[0].partition(b"|")[0].decode("utf-8", "replace")
    if _TEXT.fullmatch(text) and parts_of_text(text) == parts:
        return text
    return f"damaged: {b' '.join(parts).hex()}"
