"""Processes that repair, as production has them: workers and candidates for auditor, under all faults (P11).

Each is a client node with the services of `host/repairing.py`. They are killed and begun again while faults act. When
faults have stopped, everything that can be repaired has all of its copies again within a while (L9), and no mark and no
hold is left.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator

from embedbk.client.password import NO_PASSWORD, OPENER
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX, LedgerMetadata, decode_ledger_metadata
from embedbk.codec.lost_entries import is_lost
from embedbk.codec.metadata_messages import Put, Txn
from embedbk.codec.registration import BOOKIES_PREFIX, Registration, decode_registration
from embedbk.codec.repair_mark import REPAIR_PREFIX
from embedbk.codec.repair_state import (
    CONTROL_KEY,
    UNREPAIRABLE_PREFIX,
    RepairControl,
    decode_repair_control,
    decode_unrepairable,
    encode_repair_control,
    unrepairable_path,
)
from embedbk.config import FRAME_BYTES_MAX
from embedbk.errors import StorageError
from embedbk.host.bookie_node import BookieNode
from embedbk.host.repairing import RepairOptions, RepairService
from embedbk.ids import NO_ENTRY, Member
from embedbk.metadata.claims import REPAIRING_PREFIX
from embedbk.metadata.levels import LEVEL_OF_HOLDINGS, LEVEL_OF_KEEPERS
from embedbk.ports.durable_bookie import DurableBookie
from embedbk.repair.auditor import AuditorOptions
from embedbk.repair.balancing import BalancerOptions
from embedbk.repair.fragment_copy import CopyOptions
from embedbk.repair.log_keeping import LogKeeperOptions
from embedbk.repair.unchanged_blocks import BlockOptions
from embedbk.repair.worker import WorkerOptions
from embedbk.testing.clocks import MS, SECOND
from embedbk.testing.differing_copies import (
    closed_ledgers,
    copies_owed,
    differing_copy_is_found,
    whole_copies,
)
from embedbk.testing.violation import Violation
from embedbk.testing.world import World

__all__ = ["Healers", "has_copy"]

AT_ONCE = 2  # Processes.
# Grace, a round, and a mark that may be postponed for five minutes, again behind a leader.
HEALED_NS = 1_500 * SECOND
SETTLED_NS = 3 * SECOND  # Time for a client to learn the cluster's level.
SCRUBBED_NS = 60 * SECOND
LOOK_NS = SECOND // 5  # Every copy is read at each look.
STOPPED = 0.3  # In this part of worlds an operator stops repair for a time.
STOPS_MS = (200, 2_000, 20_000)
LATE_ROT = 0.5  # In this part of worlds a copy rots late.
GRACES_NS = (300 * MS, 2 * SECOND, 8 * SECOND)

_MET = {
    "repaired": "ledger repaired",
    "nothing missing": "repair found nothing missing",
    "deferred": "repair left to a writer",
    "postponed": "repair postponed",
    "unrepairable": "repair impossible",
    "lost": "repair lost its hold",
}  # By how a repair ended.


def _balancer(world: World) -> BalancerOptions:
    """Every difference of room counts: worlds hold little."""
    chance = random.Random(f"balancer {world.seed}")
    return BalancerOptions(
        bytes_per_s=chance.choice([1_000, 1 << 20]),
        look_ns=chance.choice([100, 500]) * MS,
        round_ns=chance.choice([500 * MS, 5 * SECOND]),
        page_ledgers=chance.choice([1, 100]),
        bytes_min=0,
        marks_max=chance.choice([1, 64]),
    )


class Healers:
    """The healers of one world."""

    def __init__(self, world: World, for_ns: int) -> None:
        self._world = world
        self._chance = random.Random(f"healers {world.seed}")
        self._begun = 0
        self.services: dict[str, RepairService] = {}
        self._walls: dict[str, Callable[[], int]] = {}
        grace_ns = self._chance.choice(GRACES_NS)
        # Most ledgers of a world are small; in some worlds each is repaired by itself all the same.
        side_by_side = random.Random(f"small ledgers {world.seed}")
        small_at_once, small_bytes = side_by_side.choice([0, 1, 8]), side_by_side.choice([1_000, 1 << 20])
        together, together_bytes = side_by_side.choice([2, 64]), side_by_side.choice([700, FRAME_BYTES_MAX])
        # Few ledgers are many blocks here. Where hardly a round is full, nothing but numbers leads to what changed.
        blocks = random.Random(f"blocks {world.seed}")
        self._full_rounds = blocks.choice([1, 3, 3, 1_000, 1_000])
        self._options = RepairOptions(
            AuditorOptions(
                grace_ns=grace_ns,
                round_ns=blocks.choice([3, 3, 30]) * SECOND,
                look_ns=max(grace_ns // 3, 300 * MS),
                page_ledgers=self._chance.choice([1, 2, 100]),
                retry_ns=SECOND,
                pages_noted=2,
                settle_ns=self._chance.choice([100 * MS, 10 * SECOND]),
                blocks=BlockOptions(blocks.choice([1, 2, 8, 1_024]), 1, self._full_rounds),
            ),
            WorkerOptions(
                at_once=self._chance.choice([1, 2, 8]),
                small_at_once=small_at_once,
                look_ns=self._chance.choice([200, 1_000]) * MS,
                retry_ns=SECOND,
            ),
            # Small frames, so that a ledger of a short run takes several.
            CopyOptions(
                read_timeout_ns=SECOND,
                write_timeout_ns=SECOND,
                frame_bytes=300,
                window_bytes=1_000,
                small_bytes=small_bytes,
                together=together,
                together_bytes=together_bytes,
            ),
            bytes_per_s=self._chance.choice([0, 0, 160_000]),
            logs=LogKeeperOptions(
                NO_PASSWORD,
                round_ns=self._chance.choice([200 * MS, 2 * SECOND]),
                look_ns=100 * MS,
                page_logs=self._chance.choice([1, 100]),
                logs_per_s=1_000,
                rounds_max=2,
                log_ns=self._chance.choice(
                    [50 * MS, 5 * SECOND]
                ),  # Some are given up while answers are on their way.
                grace_ms=1_000,
            ),
            opener=OPENER,
            balancer=_balancer(world),
        )
        for _ in range(AT_ONCE):
            self.begin()
        for _ in range(self._chance.choice([0, 1, 3])):
            world.after(self._chance.randint(0, for_ns), self._replace_one)
        stops = random.Random(f"repair stopped {world.seed}")
        if stops.random() < STOPPED:
            stopped_ms = stops.choice(STOPS_MS)
            world.after(stops.randint(0, for_ns), lambda: self._stop_for(stopped_ms))

    def begin(self) -> None:
        """One more process."""
        world = self._world
        self._begun += 1
        name = f"healer-{self._begun}"
        node = world.start_client(name)
        chance = random.Random(self._chance.getrandbits(63))
        # Nobody sets it while the process lives: it would end pins whose holders judge by other clocks (I96).
        began_ms, began_ns = world.wall_ms, world.now_of(name)

        def wall_ms() -> int:
            return began_ms + (world.now_of(name) - began_ns) // MS

        self._walls[name] = wall_ms
        self.services[name] = RepairService(
            node, name, self._options, chance, lambda: world.now_of(name), wall_ms
        )
        world.wake(name)

    def _replace_one(self) -> None:
        """Its process is killed, whatever it was doing, and another begins."""
        living = [name for name in self.services if name in self._world.nodes]
        if living and not self._world.is_healed:
            self._world.crash(self._chance.choice(living))
            self._world.sometimes["healer killed"] += 1
            self.begin()

    def _stop_for(self, stopped_ms: int) -> None:
        """An operator stops repair for a time, behind which the auditor of that time switches it on again."""
        world = self._world
        for name, wall_ms in self._walls.items():
            node = world.nodes.get(name)
            # A wall clock that has jumped may be set back for the next process, and then the stop has no end.
            if node is None or node.metadata.client.cluster_level < LEVEL_OF_KEEPERS or world.wall_ms:
                continue
            until_ms = wall_ms() + stopped_ms
            put = Put(CONTROL_KEY, encode_repair_control(RepairControl(is_stopped=True, until_ms=until_ms)))
            node.metadata.request(world.now_of(name), Txn([], [put]), lambda now_ns, result: None)
            world.wake(name)
            return

    # Once faults have stopped.

    def check(self) -> None:
        """L9: what can be repaired is, nothing stays marked or locked, and every bookie that is there holds all that it
        owes of CLOSED ledgers (P11.4). I36 was asked after each step."""
        world = self._world
        if not any(name in world.nodes for name in self.services):
            self.begin()
        nodes = [world.nodes[name] for name in self.services if name in world.nodes]
        world.run_for(SETTLED_NS)
        if max(node.metadata.client.cluster_level for node in nodes) < LEVEL_OF_HOLDINGS:
            return  # A build from before is among the nodes.
        left = self.heal()
        for service in self.services.values():
            for kind, what in _MET.items():
                world.sometimes[what] += service.outcomes[kind]
            world.sometimes["bookie found to lack entries"] += service.auditor.look.lacking
            world.sometimes["bookie got what it lacked"] += service.filled > 0
            world.sometimes["small ledgers repaired side by side"] += service.beside > 1
            world.sometimes["ledger was not small"] += service.alone > 0
            world.sometimes["small ledgers asked for in halves"] += service.refused > 0
            world.sometimes["retention kept by an elected host"] += service.retained > 0
            world.sometimes["copies moved to a better place"] += service.moved > 0
        control = world.committed(CONTROL_KEY).get(CONTROL_KEY)
        if control is not None:
            with contextlib.suppress(StorageError):
                world.sometimes["repair switched on again"] += not decode_repair_control(control).is_stopped
        if left:
            raise Violation("L9", f"behind all faults {'; '.join(left[:3])}")
        self._rot_is_repaired()
        # A full round that comes soon finds it, though nothing led to it.
        is_start = self._full_rounds > 3
        differing_copy_is_found(world, self.services, self._chance, is_start=is_start)

    def _rot_is_repaired(self) -> None:
        """L9, P11.4: a copy that rots where rounds have found nothing for long, so that they ask about no single ledger
        there any more, is made again once its bookie's scrubber has found it."""
        world, chance = self._world, random.Random(f"late rot {self._world.seed}")
        if chance.random() >= LATE_ROT:
            return
        world.run_for(chance.choice([2, 40]) * SECOND)  # Rounds come by.
        places = sorted(whole_copies(world))
        if not places:
            return
        ledger_id, entry_id, name = chance.choice(places)
        world.nodes[name].storage.make_unreadable(ledger_id, entry_id)
        world.tell("on_damaged", name, ledger_id, entry_id)
        give_up_ns = world.now_ns + SCRUBBED_NS
        while self.is_rotten_unseen():
            if world.now_ns >= give_up_ns:
                return  # It is in no entry log yet.
            world.run_for(LOOK_NS)
        left = self.heal()
        if left:
            raise Violation("L9", f"behind late rot on {name} {'; '.join(left[:3])}")
        world.sometimes["late rot repaired"] += 1

    def note_rounds(self) -> None:
        """What rounds did until the end, also those behind `check`."""
        for service in self.services.values():
            self._world.sometimes["audit passed over a block"] += service.auditor.look.passed_blocks > 0

    def heal(self) -> list[str]:
        """Runs until everything is as it should be; else what is not, in words."""
        world = self._world
        give_up_ns = world.now_ns + HEALED_NS
        left = self._left() or self._lacking()
        while left and world.now_ns < give_up_ns:
            world.run_for(SECOND)
            left = self._left() or self._lacking()
        return left

    def _left(self) -> list[str]:
        """Everything that is not as it should be, in words."""
        world = self._world
        registered: dict[str, Registration] = {}
        for key, value in world.committed(BOOKIES_PREFIX).items():
            name = key.removeprefix(BOOKIES_PREFIX)
            with contextlib.suppress(StorageError):  # A stranger's.
                registered[name] = decode_registration(value, name)
        there = {Member(name, found.incarnation) for name, found in registered.items()}
        writable = sum(found.is_writable for found in registered.values())
        left = [f"{key} is there" for key in world.committed(REPAIR_PREFIX)]
        left += [f"{key} is held" for key in world.committed(REPAIRING_PREFIX)]
        given_up = world.committed(UNREPAIRABLE_PREFIX)
        for value in world.committed(LEDGERS_PREFIX).values():
            try:
                metadata = decode_ledger_metadata(value)
            except StorageError:
                continue  # A stranger's.
            found = given_up.get(unrepairable_path(metadata.ledger_id))
            if found is None:
                left += _short(metadata, there)
                continue
            why = decode_unrepairable(found)
            # Fewer copies than an acknowledged entry has are destroyed (testing/plan.py), so each has a good one left.
            if why.entry_id != NO_ENTRY or writable >= metadata.quorum.ensemble_size:
                left.append(f"ledger {metadata.ledger_id} was given up: {why.why}")
        return left

    def _lacking(self) -> list[str]:
        """Entries of CLOSED ledgers that a bookie of their write set, which is there and writable, does not hold:
        read from its storage, one by one. A rotten entry counts as missing once its scrubber has found it."""
        world = self._world
        lacking: list[str] = []
        for metadata in closed_ledgers(world):
            lacking += self._lacking_of(metadata, has_copy)
        return lacking

    def is_rotten_unseen(self) -> bool:
        """Whether a copy that is owed cannot be read and no scrubber has found it yet: with one bookie more that is
        lost, more is lost than a world allows."""
        return any(
            True for metadata in closed_ledgers(self._world) for _ in self._lacking_of(metadata, _is_readable)
        )

    def _lacking_of(
        self, metadata: LedgerMetadata, has: Callable[[DurableBookie, int, int], bool]
    ) -> Iterator[str]:
        nodes = {
            Member(name, node.storage.incarnation): node.storage
            for name, node in self._world.nodes.items()
            if isinstance(node, BookieNode) and node.core.is_writable
        }
        for entry_id, members in copies_owed(metadata):
            if is_lost(metadata.lost, entry_id):
                continue
            for member in members:
                storage = nodes.get(member)
                if storage is not None and not has(storage, metadata.ledger_id, entry_id):
                    yield f"{member} lacks entry {entry_id} of ledger {metadata.ledger_id}"


def _is_readable(storage: DurableBookie, ledger_id: int, entry_id: int) -> bool:
    return storage.read(ledger_id, entry_id, entry_id, 1).frame is not None


def has_copy(storage: DurableBookie, ledger_id: int, entry_id: int) -> bool:
    """Whether it holds the entry, by its index: one that its scrubber has found bad is none."""
    found = storage.read(ledger_id, entry_id, entry_id, 1)
    if found.frame is not None or found.absent:
        return found.frame is not None
    return not any(
        damage.ledger_id == ledger_id and damage.first_entry <= entry_id <= damage.last_entry
        for damage in storage.scrub_damages()
        if damage.first_entry is not None and damage.last_entry is not None
    )


def _short(metadata: LedgerMetadata, there: set[Member]) -> list[str]:
    """Fragments that no writer writes to with a seat of a bookie that is not there."""
    immutable = len(metadata.fragments) if metadata.is_closed else len(metadata.fragments) - 1
    return [
        f"ledger {metadata.ledger_id} names {member} from entry {fragment.first_entry} on"
        for fragment in metadata.fragments[:immutable]
        for member in fragment.members
        if member not in there
    ]
