"""Where the keys of a log are (P8.12): under the name of one that was carried over from below the level."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from embedbk.client.client import Client
from embedbk.client.waiting import run_blocking
from embedbk.codec.log_identity import (
    IDENTITIES_PREFIX,
    LogIdentity,
    LogIdentityState,
    LogPointer,
    decode_log_identity,
    decode_log_pointer,
    encode_log_identity,
    encode_log_pointer,
    log_identity_path,
    log_name_path,
)
from embedbk.codec.metadata_messages import ABSENT, Compare, Put
from embedbk.errors import NoSuchLedger
from embedbk.testing import Cluster

__all__ = ["carry_over", "end_log", "id_of", "keys_left"]


def carry_over(client: Client, name: str) -> None:
    """As a log stands that was made below the level and met it: what a test puts under its name is the log's."""
    pointer = encode_log_pointer(LogPointer(1, name))
    identity = encode_log_identity(LogIdentity(1, name, LogIdentityState.NAMED))
    then = [Put(log_name_path(name), pointer), Put(log_identity_path(name), identity)]
    steps = client._runtime.transact([Compare(then[0].key, ABSENT)], then, "carrying a log over")
    assert run_blocking(steps, "")


def end_log(client: Client, name: str) -> None:
    """Delete a log whose grace is none, and forget it (P8.13); goes on where it was cut short."""
    client._runtime.settings = replace(client._runtime.settings, delete_grace_s=0.0)
    with contextlib.suppress(NoSuchLedger):
        client.delete_log(name)
    client.forget_deleted()


def keys_left(cluster: Cluster) -> set[str]:
    """Of all logs, but that an id which is a name was used."""
    keys = cluster.world.committed("/log")
    identities = {
        key: decode_log_identity(keys[key], key) for key in keys if key.startswith(IDENTITIES_PREFIX)
    }
    gone = {key for key, each in identities.items() if each.state == LogIdentityState.GONE}
    return {*keys} - gone


def id_of(cluster: Cluster, name: str) -> str:
    return decode_log_pointer(cluster.world.committed("/log-names/")[log_name_path(name)], name).log_id
