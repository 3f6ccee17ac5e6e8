"""Keys in order, of which one comes or goes in a time that does not grow with their number.

A list of a million keys moves megabytes for each that is put in its midst; here it is cut into short lists.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

__all__ = ["SortedKeys"]

CHUNK_KEYS = 512  # A list is cut in two at twice this.


class SortedKeys:
    """A set of texts in order. Not to be changed while one of its iterators is used."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        ordered = sorted(keys)
        self._chunks = [ordered[at : at + CHUNK_KEYS] for at in range(0, len(ordered), CHUNK_KEYS)]
        self._lasts = [chunk[-1] for chunk in self._chunks]

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def add(self, key: str) -> None:
        """Add a key that is not there."""
        if not self._chunks:
            self._chunks, self._lasts = [[key]], [key]
            return
        at = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._chunks[at]
        chunk.insert(bisect_left(chunk, key), key)
        if len(chunk) >= 2 * CHUNK_KEYS:
            self._chunks[at : at + 1] = [chunk[:CHUNK_KEYS], chunk[CHUNK_KEYS:]]
            self._lasts[at : at + 1] = [chunk[CHUNK_KEYS - 1], chunk[-1]]
        else:
            self._lasts[at] = chunk[-1]

    def remove(self, key: str) -> None:
        """Remove a key that is there."""
        at = bisect_left(self._lasts, key)
        chunk = self._chunks[at]
        del chunk[bisect_left(chunk, key)]
        if chunk:
            self._lasts[at] = chunk[-1]
        else:
            del self._chunks[at], self._lasts[at]

    def begin(self, first: str, after: str = "") -> Iterator[str]:
        """The keys from `first` on that are greater than `after`, in order."""
        low = max(first, after)
        at = bisect_left(self._lasts, low)
        if at == len(self._chunks):
            return
        chunk = self._chunks[at]
        yield from chunk[bisect_right(chunk, low) if low == after else bisect_left(chunk, low) :]
        for chunk in self._chunks[at + 1 :]:
            yield from chunk
