"""The circumstances under which a repair was judged impossible. It is judged again when they change, and not before
(P11.1, AR10)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from embedbk.core.client_words import BookieInfo

__all__ = ["circumstances"]

_DIGEST_BYTES = 16


def circumstances(metadata_value: bytes, bookies: Iterable[BookieInfo]) -> bytes:
    """A digest of a ledger's metadata, of the registered bookies and of whether they take copies, and give theirs away.
    Equal circumstances give equal digests, in any process."""
    hasher = hashlib.blake2b(metadata_value, digest_size=_DIGEST_BYTES)
    for info in sorted(bookies):
        state = f"{info.is_writable} leaving" if info.is_leaving else f"{info.is_writable}"
        hasher.update(f"{info.member.bookie_id} {state} ".encode() + info.member.incarnation)
    return hasher.digest()
