"""A stranger that dials every node, sends what no node sends, and puts keys where others read (T10, P2.5).

Decides what is sent: messages with changes behind right sums, messages cut, noise; a Hello with another's name. Real
sockets can send more, below the messages; `tests/transports/test_zmq_before_hello.py` has that.
"""

from __future__ import annotations

import random
import struct

from embedbk.codec.add_messages import AddAnswers, CopiesAnswer, CopyTaken, FenceRequest
from embedbk.codec.bookie_fields import Status
from embedbk.codec.entry_log_messages import EntryLogsRequest, LogKeepersRequest
from embedbk.codec.holdings_messages import LedgerBlock, LedgerBlocksRequest
from embedbk.codec.kernels import crc32c
from embedbk.codec.lac_messages import ExplicitLacs, LacRequest
from embedbk.codec.ledger_metadata import LEDGERS_PREFIX
from embedbk.codec.messages import encode_message
from embedbk.codec.metadata_messages import Get, MetadataRequest, OpenSession, Put, Txn, Watch
from embedbk.codec.read_messages import ReadRange, ReadRequest
from embedbk.codec.registration import BOOKIES_PREFIX
from embedbk.codec.tombstone import DELETED_PREFIX
from embedbk.host.client_node import ClientNode
from embedbk.ports.links import Identity, LinkDown, LinkUp
from embedbk.testing.world import World

__all__ = ["LABEL", "STRANGE_KEYS", "call_on", "nearly_a_message"]

LABEL = "x"  # The label of its sessions.
_MS = 1_000_000
_CALLS = 24  # Links one after the other: the first thing that is wrong ends each.

# Keys beside those that nodes read.
STRANGE_KEYS = tuple(
    prefix + name
    for prefix in (LEDGERS_PREFIX, DELETED_PREFIX, BOOKIES_PREFIX)
    for name in ("zz", "", "0x10", "0000000000000000F", "\u20ac")
    if name or prefix != BOOKIES_PREFIX
)
_TAILS = (b"\xa3/\xff\xfe", b"\x91" * 3000 + b"\xc0", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\x81\xa1a\x01")


def call_on(world: World, name: str, chance: random.Random) -> None:
    """Call on every node that runs, from now on and for a while; and put strange keys by some client's session."""
    _put_keys(world, chance)
    asked = [*world.members.names, *world.disks]
    for number in range(_CALLS):
        target = chance.choice(asked)
        seed = chance.getrandbits(31)
        world.after(number * 5 * _MS, lambda n=number, t=target, s=seed: _call(world, f"{name}-{n}", t, s))  # type: ignore[misc]


def _call(world: World, name: str, target: str, seed: int) -> None:
    if world.is_healed or target not in world.nodes:
        return
    chance = random.Random(seed)
    posing = chance.choice(["client", "bookie", "metadata"])
    transport = world.network.transport(Identity(posing, name, chance.randbytes(16), b""))
    link = transport.connect(f"sim://{target}")

    def speak(turns: int) -> None:
        for event in transport.receive(world.network.now_ns):
            if isinstance(event, LinkDown):
                world.sometimes["stranger hung up on"] += 1
                transport.close()
                return
            if isinstance(event, LinkUp):
                transport.send(link, [nearly_a_message(chance, bytes(16))])
        if turns == 0 or world.is_healed:
            transport.close()
            return
        transport.send(link, [nearly_a_message(chance, bytes(16))])
        world.after(20 * _MS, lambda: speak(turns - 1))

    world.after(20 * _MS, lambda: speak(5))


def nearly_a_message(chance: random.Random, incarnation: bytes) -> bytes:
    """A message that is nearly one."""
    control = chance.choice(
        [
            FenceRequest(incarnation, chance.getrandbits(63), bytes(16)),
            ReadRequest(
                incarnation, 1, chance.getrandbits(62), chance.getrandbits(62), chance.getrandbits(40)
            ),
            ReadRequest(incarnation, 1, 0, 9, 99, others=[ReadRange(chance.getrandbits(63), 0, 9)]),
            CopiesAnswer(1, 1, [CopyTaken(Status.OK, chance.getrandbits(63), 0, 0)]),
            LacRequest(incarnation, 1, -1, chance.getrandbits(20), chance.getrandbits(40)),
            AddAnswers(chance.randbytes(64)),
            ExplicitLacs(incarnation, chance.randbytes(80)),
            MetadataRequest(chance.getrandbits(40), 1, 1, Get("/a")),
            MetadataRequest(0, 1, 1, OpenSession(chance.getrandbits(40), LABEL)),
            MetadataRequest(0, 1, 1, Watch(1, "/", chance.getrandbits(60))),
        ]
    )
    request_id = chance.getrandbits(60)
    if request_id % 20 == 0:  # No draw of its own, which would change what all seeds do.
        control = EntryLogsRequest(incarnation, request_id % 1_000 - 1)
    elif request_id % 20 == 1:
        mask = request_id.to_bytes(16, "big")[: request_id % 16 + 1]
        control = LedgerBlocksRequest(incarnation, [LedgerBlock(request_id, mask)])
    elif request_id % 20 == 2:
        control = LogKeepersRequest(incarnation, request_id % 1_000, request_id - 1)
    whole = bytearray(b"".join(encode_message(request_id, control)))
    how = chance.random()
    if how < 0.15:
        return bytes(whole[: chance.randrange(len(whole))])
    if how < 0.25:
        return chance.randbytes(chance.randrange(1, 80))
    if how < 0.4:
        return bytes(whole)
    head, body = whole[:32], bytes(whole[32:])
    at = chance.randrange(len(body) + 1)
    body = body[:at] + chance.choice([*_TAILS, chance.randbytes(3), b""]) + body[at + chance.randrange(3) :]
    if chance.random() < 0.2:
        head[5] = chance.choice([1, 2, 6, 12, 13, 16, 22, 64, 65, 66, 99])
    struct.pack_into("<I", head, 8, len(body))
    struct.pack_into("<I", head, 24, crc32c(body, crc32c(bytes(head[:24]))))
    return bytes(head) + body


def _put_keys(world: World, chance: random.Random) -> None:
    clients = [node for node in world.nodes.values() if isinstance(node, ClientNode)]
    if not clients:
        return
    metadata = chance.choice(clients).metadata
    for key in chance.sample(STRANGE_KEYS, 4):
        put = Put(key, chance.choice([b"", b"x", b"\x91" * 3000, b"\x98\x01\xa3/\xff\xfe"]))
        metadata.request(world.now_ns, Txn([], [put]), lambda now_ns, result: None)
