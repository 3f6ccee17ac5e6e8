"""Bytes to values and back: entries, frames, messages, ledger metadata. Formats: WIRE.md beside this file."""
