"""embedbk: durable, replicated, fenced logs as a Python library."""
