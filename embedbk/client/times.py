"""Times of entries (P8.11) as applications and people write them: ms since 1970, a datetime with a zone, ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from embedbk.errors import UsageError

__all__ = ["ms_of", "parse_time"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def ms_of(time: object) -> int:
    """Milliseconds since 1970. Raises UsageError for what is no time, or one without a zone."""
    if isinstance(time, int) and not isinstance(time, bool) and 0 <= time < 1 << 63:
        return time
    if isinstance(time, datetime) and time.tzinfo is not None and time >= _EPOCH:
        return -((_EPOCH - time) // timedelta(milliseconds=1))  # Not before it.
    raise UsageError(f"{time!r} is no time: ms since 1970, or a datetime with a time zone, is allowed")


def parse_time(text: str) -> datetime | None:
    """A time as ISO 8601 has it, with its zone; None: it is none.

    Raises UsageError: it has no zone, or is before 1970.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    if time.tzinfo is None:
        raise UsageError(
            f"{text!r} says no time zone",
            hint="2026-11-26T08:30:00Z, or with an offset: 2026-11-26T09:30:00+01:00",
        )
    ms_of(time)
    return time
