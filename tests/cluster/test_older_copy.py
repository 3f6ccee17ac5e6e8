"""Metadata that was put back from an older copy, at an address that clients know, and bookies do not yet (P10.5)."""

from __future__ import annotations

import shutil
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

import embedbk
from embedbk.cluster import Cluster
from embedbk.config import Settings
from tests.cluster.test_peers import metadata

pytestmark = pytest.mark.xdist_group("processes")

PATIENT = Settings(open_timeout_s=60.0, operation_timeout_s=60.0)


def test_a_recovery_by_an_older_copy_cuts_nothing_off(tmp_path: Path) -> None:
    """P10.5: entries are acknowledged by bookies that took all seats behind the copy. Those that the copy names have
    none of them, and hear from no metadata; a recovery by the copy asks them, and the ledger stays as it is."""
    with Cluster(tmp_path / "cluster", bookies=6, settings=PATIENT) as cluster, ExitStack() as stack:
        with embedbk.open(cluster.url, settings=PATIENT) as client:
            writer = client.create_ledger(ensemble_size=3, write_quorum=3, ack_quorum=2)
            writer.add(b"zero")
            first = {each.bookie_id for each in seats_of(writer)}
            shutil.copytree(tmp_path / "cluster" / "metadata", tmp_path / "copy")
            for name in first:
                cluster.processes[name].send_signal(signal.SIGSTOP)
            while first & {each.bookie_id for each in seats_of(writer)}:
                writer.add(b"more")
            assert writer.add(b"last") > 0
            writer.release()
        cluster.kill("m1")
        for name in first:
            cluster.processes[name].send_signal(signal.SIGCONT)
        (endpoint,) = metadata(stack, tmp_path / "copy").report()["endpoints"]  # type: ignore[misc]
        url = f"embedbk://{endpoint.removeprefix('tcp://')}"
        with (
            embedbk.open(url, settings=PATIENT) as client,
            pytest.raises(embedbk.RecoveryInconclusive, match="no metadata answers that bookie"),
        ):
            client.open_ledger(writer.ledger_id, recover=True)


def seats_of(writer: embedbk.LedgerWriter) -> tuple[embedbk.ids.Member, ...]:
    return writer._appending.writing.metadata.fragments[-1].members
