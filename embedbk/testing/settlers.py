"""Clients that change the settings of the log that owners write, beside them (P8.7), retention and bounds among them.

Decides what is asked for. Owners follow it by their own loop; `invariants_logs` and `invariants_cursors` judge by the
metadata what retention and bounds may truncate (I96, I101, I107), `invariants_bounds` what is appended (I106).
"""

from __future__ import annotations

import random
from typing import Any

from embedbk.client.log_reading import LogReading
from embedbk.client.log_settings import change, create_log, settings
from embedbk.client.runtime import Runtime
from embedbk.config import Quorum, Roll
from embedbk.errors import EmbedbkError, LogExists, MetadataConflict, NoSuchLedger
from embedbk.testing.actors import Sleep, Steps
from embedbk.testing.plan import MS
from embedbk.testing.sim_runtime import awaited
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["changes_settings"]


def changes_settings(
    world: World, client: str, runtime: Runtime, reading: LogReading, chance: random.Random, quorum: Quorum
) -> Steps:
    for number in range(chance.randint(1, 3)):
        # A generator of its own, so that nothing else depends on it.
        wanted = _drawn(chance, quorum) | _bound(random.Random(f"bound {number} of {client} {world.seed}"))
        if "compressed" in world.features:
            squeezes = random.Random(f"compression {number} of {client} {world.seed}")
            wanted["compression"] = squeezes.choice([None, "zstd", "zstd"])
        try:
            try:
                before = yield from awaited(runtime, settings(reading))
                revision = chance.choice([None, before.revision])
                told = yield from awaited(runtime, change(reading, revision, wanted))
                if told.revision <= before.revision:
                    raise Violation("P8.7", f"{client} changed settings of {before.revision} to {told}")
                world.sometimes["settings of a log changed"] += 1
            except NoSuchLedger:
                yield from awaited(runtime, create_log(reading, wanted))
                world.sometimes["log made empty"] += 1
        except (LogExists, MetadataConflict) as other:
            world.note(f"{client}: {other}")
        except EmbedbkError as error:
            world.note(f"{client}: settings: {type(error).__name__}: {error}")
        yield Sleep(chance.randint(0, 500) * MS)


def _drawn(chance: random.Random, quorum: Quorum) -> dict[str, Any]:
    sizes = (quorum.ensemble_size, quorum.write_quorum, quorum.ack_quorum)
    wanted: dict[str, Any] = dict(zip(("ensemble_size", "write_quorum", "ack_quorum"), sizes, strict=True))
    if chance.random() < 0.5:
        wanted["roll"] = chance.choice([Roll(None, 3), Roll(200), Roll(None, None, 0.2)])
    if chance.random() < 0.7:
        wanted["retention_s"] = chance.choice([None, 0.1, 0.5])
        wanted["retention_bytes"] = chance.choice([None, 0, 100])
    if chance.random() < 0.8:  # The sizes stay: what a world may lose follows them.
        wanted["digest"] = chance.choice([None, "crc32c", "xxh3", "xxh3"])
    if chance.random() < 0.3:
        wanted["properties"] = {"team": b"x" * chance.randint(0, 9)}
    return wanted


def _bound(chance: random.Random) -> dict[str, Any]:
    """How many bytes the log may have; such a log is as small as what is appended in a world."""
    if chance.random() < 0.4:
        return {}
    bytes_max = chance.choice([None, 100, 200, 600, 2_000])
    return {
        "bytes_max": bytes_max,
        "at_bytes_max": None if bytes_max is None else chance.choice(["refuse", "let_go", "let_go"]),
    }
