"""Repair: what is lost of a ledger's copies is found, copied and published again (P11). Pure machines."""
