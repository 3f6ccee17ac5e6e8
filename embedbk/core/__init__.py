"""The ledger protocol as pure machines: one event in, a list of effects out. Rules: PROTOCOL.md beside this file."""
