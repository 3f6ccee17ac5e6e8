"""Handles of one ledger, as people import them; what they do is in client/ledger.py."""

from __future__ import annotations

from embedbk.client.ledger import LedgerReader, LedgerWriter

__all__ = ["LedgerReader", "LedgerWriter"]
