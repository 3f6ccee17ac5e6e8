"""A ledger's password as the cluster sees it: a key for the bookies and a digest of it for the metadata (P3.5, CL34).

The password itself is hashed at once and kept nowhere; neither it nor the key is ever printed.
"""

from __future__ import annotations

import hashlib
import hmac

from embedbk.codec.frame import LEDGER_KEY_BYTES
from embedbk.codec.ledger_metadata import LedgerMetadata
from embedbk.errors import UsageError, WrongPassword
from embedbk.repair.orphan_closing import LedgerKey

__all__ = ["NO_PASSWORD", "OPENER", "Password"]

# Personalities, so that the verifier, which anybody can read, is not the key that opens.
_KEY_PERSON = b"embedbk.key.1"
_VERIFIER_PERSON = b"embedbk.verify.1"
_MAC_PERSON = b"embedbk.mac.1"
_VERIFIER_BYTES = 32


class Password:
    """key: what requests carry. verifier: what the metadata keeps. mac_key: makes HMAC tags, and is never sent."""

    __slots__ = ("key", "mac_key", "verifier")
    key: bytes
    mac_key: bytes
    verifier: bytes

    def __new__(cls, password: bytes) -> Password:
        """One object for all handles that have none: there may be very many."""
        is_none = isinstance(password, bytes) and not password
        return _none[0] if is_none and _none else super().__new__(cls)

    def __init__(self, password: bytes) -> None:
        if not isinstance(password, bytes):
            raise UsageError(f"a password is bytes, not {type(password).__name__}")
        if not password and _none:
            return  # It is that one.
        self.key = hashlib.blake2b(password, digest_size=LEDGER_KEY_BYTES, person=_KEY_PERSON).digest()
        self.mac_key = hashlib.blake2b(password, digest_size=_VERIFIER_BYTES, person=_MAC_PERSON).digest()
        self.verifier = hashlib.blake2b(
            self.key, digest_size=_VERIFIER_BYTES, person=_VERIFIER_PERSON
        ).digest()

    def check(self, metadata: LedgerMetadata) -> None:
        """Raises WrongPassword unless this is the ledger's."""
        if not hmac.compare_digest(self.verifier, metadata.password_verifier):
            raise WrongPassword(
                f"ledger {metadata.ledger_id} has another password; nothing was changed",
                hint="give the password that it was created with, b'' when there was none",
            )

    def __repr__(self) -> str:
        return "Password(...)"


_none: list[Password] = []  # The empty password: one object for all the ledgers that have none.
_none.append(Password(b""))
NO_PASSWORD = _none[0].verifier  # What the metadata of a ledger without a password has.
OPENER = LedgerKey(NO_PASSWORD, _none[0].key, _none[0].mac_key)  # Of such ledgers, for those who repair.
