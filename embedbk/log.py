"""A log of many ledgers and its writer, as people import them (`client/log`, `client/log_writer`)."""

from __future__ import annotations

from embedbk.client.bulk import LogReader
from embedbk.client.log import Log
from embedbk.client.log_writer import LogWriter

__all__ = ["Log", "LogReader", "LogWriter"]
