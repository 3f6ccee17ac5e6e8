"""A log of many ledgers and its writer, as people import them; what they do is in client/log.py."""

from __future__ import annotations

from embedbk.client.bulk import LogReader
from embedbk.client.log import Log, LogWriter

__all__ = ["Log", "LogReader", "LogWriter"]
