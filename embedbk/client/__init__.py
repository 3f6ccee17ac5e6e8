"""The inside of the faces: what `embedbk.open` gives, and the handles of ledgers and logs behind it.

What people import stands above: `embedbk`, `embedbk.aio`, `embedbk.ledger`, `embedbk.log`. Names are loaded when they
are first used, as there: a tool that needs one file of this room does not load all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["Client", "open_client"]

if TYPE_CHECKING:
    from embedbk.client.client import Client
    from embedbk.client.opening import open_client
else:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'embedbk.client' has no attribute {name!r}")
        from embedbk.client import opening

        return getattr(opening, name)
