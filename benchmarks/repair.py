"""How fast are lost copies made anew, what do writers notice of it, and how soon is a missing entry known?

A bookie is killed, or drained, while repair is switched off; the ledgers that name it are marked by the benchmark, as
the auditor would in its own time; then repair is switched on. So a row says what copying takes, and not how often an
auditor looks. The clock runs from the moment in which the first mark is taken until none is left.

`repair/copy`: ledgers of 16 MiB, four bookie processes of which one was killed, as fast as it goes; MB/s of payload
that is copied. The ceiling is `device/both` in the same run: there each byte is written six times, here twice.

`repair/small_ledgers`: ledgers of one entry of 100 B; everything is in this process, the one metadata member too, and
one of four bookies is drained. Ledgers a second that get a seat elsewhere.

`repair/foreground_p99`: ten thousand appends of 1 KiB a second on a schedule (`latency`) while a lost bookie's ledgers
are copied. The bookies share this machine, so all of them together copy at the usual rate of one
(`Settings.repair_bytes_per_s`). The ceiling is the same schedule while repair is switched off, in turns with it; a
smaller value is better, and twice as much is the aim.

`health/deleted_entry`: how long after an entry went out of one bookie's index, among 100,000 ledgers, `health` has
answered, and named ledger and bookie. The bookies are in this process; so they are for the next two.

`audit/100k`: a full audit of the same ledgers that an operator asks for, until the auditor has noted its end; every
bookie is asked about each. `audit/100k/idle`: what the auditor costs in a cluster in which nothing changes, in percent
of one core: its looks between two rounds, over which this process is compared with one that repairs nothing, and the
processor time of the round above once in `Settings.audit_s`.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import embedbk
from benchmarks import Row, is_wanted, workplace
from benchmarks._load import Load
from benchmarks._repairs import MIB, Marked, entry_lost, fill_with, made, wait_until
from benchmarks.append import Measured, Place, median_row, p99_us
from benchmarks.device import both_row
from benchmarks.latency import PAYLOAD_BYTES, on_schedule
from embedbk.client.waiting import run_blocking
from embedbk.cluster import Cluster
from embedbk.codec.repair_state import AUDIT_KEY, AuditNote, decode_audit_note

COPY, SMALL, FOREGROUND = "repair/copy", "repair/small_ledgers", "repair/foreground_p99"
HEALTH, AUDIT, IDLE = "health/deleted_entry", "audit/100k", "audit/100k/idle"
WORKS = (COPY, SMALL, FOREGROUND, HEALTH, AUDIT, IDLE)
BOOKIES, LOST = 4, "b4"
COPY_LEDGERS = 48  # Three of four name the bookie that is lost.
COPY_BYTES = 16 * MIB  # Each.
COPY_RUNS = 3
SMALL_LEDGERS = 10_000
SMALL_BYTES = 100
FOREGROUND_LEDGERS = 512
FOREGROUND_BYTES = 2 * MIB
FOREGROUND_RUN_S = 3.0
FOREGROUND_PAIRS = 3
MANY = 100_000
IDLE_S = 20.0
PATIENT_S = 300.0  # For each question: a machine may be slow.
AUDITED_S = 3_600.0  # Within which the audit must end.
MADE_AT_A_TIME = 200


def measure() -> Iterator[Row]:
    for work, row in ((COPY, copy_row), (SMALL, small_row), (FOREGROUND, foreground_row)):
        if is_wanted(work):
            with workplace("repair") as directory:
                yield row(directory)
    if is_wanted(HEALTH, AUDIT, IDLE):
        with workplace("repair") as directory:
            yield from many_rows(directory)


def settings(bytes_per_s: int = 0, *, repairs: bool = True) -> embedbk.Settings:
    return embedbk.Settings(
        open_timeout_s=PATIENT_S,
        operation_timeout_s=PATIENT_S,
        repair_bytes_per_s=bytes_per_s,
        repairs=repairs,
    )


def lost(cluster: Cluster, bk: embedbk.Client) -> Marked:
    """A bookie is killed, everybody knows, and the ledgers that name it are marked."""
    cluster.kill(LOST)
    wait_until(lambda: {each.bookie_id: each.state for each in bk.bookies()}[LOST] == "away")
    return Marked(bk, LOST)


def place_of(directory: Path, cluster: Cluster) -> Place:
    return Place(directory, [peer.pid for peer in cluster.processes.values() if peer.is_running])


# --- Copies ----------------------------------------------------------------------------------------------


def copy_row(directory: Path) -> Row:
    ceiling = both_row(directory / "device").value
    runs = [copied(directory / f"{number}") for number in range(COPY_RUNS)]
    print(f"{COPY}: {' '.join(f'{run.value:.0f}' for run in runs)} MB/s", file=sys.stderr)
    return Row(
        COPY,
        round(statistics.median(run.value for run in runs), 1),
        "MB/s",
        ceiling,
        foreign=round(statistics.median(run.foreign for run in runs), 3),
    )


def copied(directory: Path) -> Measured:
    with (
        Cluster(directory, bookies=BOOKIES, settings=settings()) as cluster,
        embedbk.open(cluster.url, settings=settings()) as bk,
    ):
        bk.stop_repair("a benchmark marks first")
        made(bk, COPY_LEDGERS, 8, fill_with(COPY_BYTES))
        marked = lost(cluster, bk)
        load = marked.repaired(place_of(directory, cluster).load())
        return Measured(marked.payload_bytes / 1e6 / load.wall_s, load.cpu_s, load.foreign)


def small_row(directory: Path) -> Row:
    with embedbk.open(directory / "local", bookies=BOOKIES, settings=settings()) as bk:
        bk.stop_repair("a benchmark marks first")
        made(bk, SMALL_LEDGERS, MADE_AT_A_TIME, fill_with(SMALL_BYTES))
        bk.drain_bookie(LOST, "a benchmark")
        marked = Marked(bk, LOST)
        load = marked.repaired(Load(directory))
    load.check_flushes(1)
    return Row(
        SMALL,
        round(marked.count / load.wall_s, 1),
        "ledgers/s",
        None,
        round(load.cpu_s * 1e6 / marked.count, 1),
        foreign=round(load.foreign, 3),
    )


# --- What writers notice ---------------------------------------------------------------------------------


def foreground_row(directory: Path) -> Row:
    usual = embedbk.Settings().repair_bytes_per_s // (BOOKIES - 1)
    with (
        Cluster(directory / "zmq", bookies=BOOKIES, settings=settings(usual)) as cluster,
        embedbk.open(cluster.url, settings=settings(usual)) as bk,
    ):
        bk.stop_repair("a benchmark marks first")
        made(bk, FOREGROUND_LEDGERS, 8, fill_with(FOREGROUND_BYTES))
        marked = lost(cluster, bk)
        place, payload = place_of(directory, cluster), os.urandom(PAYLOAD_BYTES)
        with bk.log("foreground").writer() as writer:

            def alone() -> float:
                return p99_us(on_schedule(writer, payload, FOREGROUND_RUN_S))

            def beside_copies() -> Measured:
                marked.begin()
                with place.load() as load:
                    taken = on_schedule(writer, payload, FOREGROUND_RUN_S)
                is_over = not marked.are_left
                marked.stop()
                load.check_flushes(int(FOREGROUND_RUN_S))
                if is_over:
                    raise RuntimeError(
                        "the copies were done before the appends: FOREGROUND_LEDGERS is too low"
                    )
                return Measured(p99_us(taken), load.cpu_s * 1e6 / len(taken), load.foreign)

            alone()  # Does not count.
            pairs = []
            for number in range(FOREGROUND_PAIRS):
                if number % 2:
                    pairs.append((beside_copies(), alone()))
                else:
                    before = alone()
                    pairs.append((beside_copies(), before))
        return median_row(FOREGROUND, "us", pairs)


# --- Very many ledgers -----------------------------------------------------------------------------------


def many_rows(directory: Path) -> Iterator[Row]:
    with embedbk.open(directory / "local", bookies=BOOKIES - 1, settings=settings()) as bk:
        bk.stop_repair("a benchmark makes ledgers first")
        began = time.monotonic()
        made(bk, MANY, MADE_AT_A_TIME, fill_with(SMALL_BYTES))
        print(f"{MANY} ledgers made in {time.monotonic() - began:.0f} s", file=sys.stderr)
        if is_wanted(HEALTH):
            yield health_row(bk, directory)
        if is_wanted(AUDIT, IDLE):
            audit = audited(bk, directory)
            yield Row(
                AUDIT,
                round(audit.wall_s, 1),
                "s",
                None,
                round(audit.cpu_s * 1e6 / MANY, 1),
                foreign=round(audit.foreign, 3),
            )
        if is_wanted(IDLE):
            with_auditor = idle_share(directory)
    if is_wanted(IDLE):
        with embedbk.open(directory / "local", create=False, settings=settings(repairs=False)):
            without = idle_share(directory)
        yield idle_row(max(0.0, with_auditor - without), audit.cpu_s / embedbk.Settings().audit_s)


def health_row(bk: embedbk.Client, directory: Path) -> Row:
    before = bk.health()
    if not before.is_good:
        raise RuntimeError(f"it is not good from the beginning: {before}")
    with bk.create_ledger() as ledger:
        ledger.add(b"of which one bookie shall lack its copy")
    with Load(directory) as load:
        entry_lost(bk, "b1", ledger.ledger_id)
        health = bk.health()
    found = [(each.ledger_id, each.lacking) for each in health.ledgers]
    if found != [(ledger.ledger_id, (("b1", 1),))]:
        raise RuntimeError(f"b1 lacks an entry of ledger {ledger.ledger_id}, and health says {health}")
    return Row(
        HEALTH,
        round(load.wall_s, 1),
        "s",
        None,
        round(load.cpu_s * 1e6 / MANY, 1),
        foreign=round(load.foreign, 3),
    )


def note_of(bk: embedbk.Client) -> AuditNote:
    value, _ = run_blocking(bk._runtime.get(AUDIT_KEY, "the auditor's note"), "a benchmark")
    return AuditNote() if value is None else decode_audit_note(value)


def audited(bk: embedbk.Client, directory: Path) -> Load:
    """One whole round, which begins because an operator asks for it."""
    before = note_of(bk).rounds
    bk.trigger_audit()
    with Load(directory) as load:
        bk.start_repair()
        wait_until(lambda: note_of(bk).rounds > before, AUDITED_S)
    note = note_of(bk)
    if note.looked_at < MANY:
        raise RuntimeError(f"the auditor looked at {note.looked_at} ledgers of {MANY}")
    print(f"{AUDIT}: {(note.ended_ms - note.began_ms) / 1000:.1f} s by the auditor's note", file=sys.stderr)
    return load


def idle_share(directory: Path) -> float:
    """Processor time of this process for each second in which nothing is asked of it."""
    time.sleep(IDLE_S / 4)  # What follows a start, or a round, is over.
    with Load(directory) as load:
        time.sleep(IDLE_S)
    return load.cpu_s / load.wall_s


def idle_row(looks: float, rounds: float) -> Row:
    """In percent of a core."""
    print(f"{IDLE}: looks {looks:.2%}, rounds {rounds:.2%}", file=sys.stderr)
    return Row(IDLE, round(100 * (looks + rounds), 3), "%")
