"""Two sound copies that differ, in whole clusters: named by the auditor and by health, and left as they are (P11.4)."""

from __future__ import annotations

from embedbk.codec.entry import encode_entry
from embedbk.codec.repair_state import AUDIT_KEY, decode_audit_note
from embedbk.repair.copy_comparison import Conflict
from tests.repair.healed import Healed, healed
from tests.repair.test_repaired import closed


def plant(story: Healed, name: str, ledger_id: int, entry_id: int) -> bytes:
    """The bookie holds another whole entry under this id, as no protocol allows; returns what it held."""
    store = story.world.nodes[name].storage.store
    held: bytes = store.entries[ledger_id][entry_id]
    payload = bytes(each ^ 0x20 for each in held[48:-4])
    length = int.from_bytes(held[24:32], "little")
    store.entries[ledger_id][entry_id] = encode_entry(ledger_id, entry_id, length, payload)
    return held


def test_the_auditor_and_health_name_a_conflict_and_nobody_overwrites_it() -> None:
    """P11.4: "a conflict is named, and nothing is ever copied over it: nothing is deleted by an inference"."""
    with healed(bookies=3) as story:
        bk = story.cluster.client()
        ledger_id = closed(story, 12)
        service = story.repairer()
        held = plant(story, "b2", ledger_id, 7)
        other = story.world.nodes["b2"].storage.store.entries[ledger_id][7]
        assert story.cluster.run_until(lambda: ledger_id in service.auditor.look.conflicts)
        (conflict,) = service.auditor.look.conflicts[ledger_id]
        assert isinstance(conflict, Conflict)
        copies = dict(conflict.copies)
        assert conflict.entry_id == 7
        assert copies["b1"] == copies["b3"] != copies["b2"]
        health = bk.health()
        assert (health.is_seated, health.is_good, health.conflicts, health.entries) == (True, False, 1, 0)
        (found,) = health.ledgers
        assert (found.ledger_id, found.doing, [entry_id for entry_id, _ in found.conflicts]) == (
            ledger_id,
            "conflict",
            [7],
        )
        assert f"copies of 1 entries differ, each whole by itself, in ledgers {ledger_id}" in str(health)
        story.cluster.run_for(65)
        assert not story.marks()
        assert service.copies == 0
        assert story.world.nodes["b2"].storage.store.entries[ledger_id][7] == other
        assert decode_audit_note(story.world.committed("/repair/")[AUDIT_KEY]).conflicts == 1
        story.world.nodes["b2"].storage.store.entries[ledger_id][7] = held
        bk.trigger_audit()
        assert story.cluster.run_until(lambda: not service.auditor.look.conflicts)
        assert bk.health().is_good


def test_a_copy_that_cannot_be_read_is_replaced_where_digests_show_it() -> None:
    """P11.4, I55: its index tells another digest, its bytes fail their check: it lacks, and gets a good copy."""
    with healed(bookies=3) as story:
        ledger_id = closed(story, 12)
        plant(story, "b2", ledger_id, 7)
        story.cluster.damage("b2", ledger_id, 7)
        service = story.repairer()
        assert story.cluster.run_until(lambda: service.outcomes["repaired"] == 1)
        stored = [story.world.nodes[name].storage.store.entries[ledger_id][7] for name in ("b1", "b2", "b3")]
        assert stored[0] == stored[1] == stored[2]
        assert not service.auditor.look.conflicts
        assert story.cluster.client().health().is_good
