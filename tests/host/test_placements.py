"""A bookie that goes read-only raises its placement in the transaction that lists it so (P10.6)."""

from __future__ import annotations

from dataclasses import replace

from embedbk.codec.metadata_messages import Put
from embedbk.codec.registration import (
    Registration,
    decode_registration,
    encode_registration,
    placement_path,
    registration_path,
)
from embedbk.core.client_words import BookieInfo
from embedbk.host.registering import TELL_NS
from tests.host.place import SECOND, Place
from tests.host.test_starts import change, registered


def placement(place: Place) -> int | None:
    """Its revision; None: the key is absent."""
    place.turns()
    record = place.metadata.core.catalog._records.get(placement_path("b1"))
    return None if record is None else record.revision


def listed(place: Place) -> Registration:
    value = registered(place)
    assert value is not None
    return decode_registration(value, "b1")


def become(place: Place, *, is_writable: bool) -> None:
    place.bookie("b1").core.is_writable = is_writable
    place.until(lambda: listed(place).is_writable == is_writable)


def shown(place: Place) -> BookieInfo:
    """As a client sees it."""
    client = place.nodes.get("c1") or place.start_client()
    place.until(lambda: bool(client.bookies) and client.bookies[0].is_writable == listed(place).is_writable)
    return client.bookies[0]


def test_a_bookie_is_listed_with_its_placement_from_its_first_registration_on(place: Place) -> None:
    """P10.6: who names it compares what the list shows."""
    place.until(lambda: place.bookie("b1").is_registered)
    assert listed(place).placement == placement(place) == shown(place).placement
    assert placement(place) is not None


def test_read_only_raises_it_once_and_writable_shows_the_new_one(place: Place) -> None:
    """Story 20, P10.6: raised in the change that lists it as read-only, not again while it stays so,
    not when it comes back."""
    place.until(lambda: place.bookie("b1").is_registered)
    first = placement(place)
    become(place, is_writable=False)
    raised = placement(place)
    assert raised is not None and first is not None and raised > first
    record = place.metadata.core.catalog._records.get(registration_path("b1"))
    assert record is not None and record.revision == raised
    place.bookie("b1").registering.register(place.now_ns)
    place.run_for(SECOND)
    assert placement(place) == raised
    become(place, is_writable=True)
    assert placement(place) == raised == listed(place).placement == shown(place).placement


def test_one_that_starts_as_read_only_raises_it(place: Place) -> None:
    """P10.6: what was listed before as writable may still be in somebody's hands."""
    place.until(lambda: place.bookie("b1").is_registered)
    first = placement(place)
    survivors = place.crash("b1")
    place.start_bookie("b1", survivors).core.is_writable = False
    place.until(lambda: not listed(place).is_writable)
    assert placement(place) != first


def test_behind_a_registration_of_the_build_before_it_is_raised(place: Place) -> None:
    """P10.6, P10.8: that build listed the bookie as read-only and raised nothing."""
    place.until(lambda: place.bookie("b1").is_registered)
    first = placement(place)
    own = listed(place)
    older = Registration(own.version, "b1", own.incarnation, own.endpoints, False, 0, "", own.start)
    change(place, Put(registration_path("b1"), encode_registration(older)))
    place.bookie("b1").core.is_writable = False
    place.until(lambda: listed(place).placement is not None)
    assert not listed(place).is_writable
    assert placement(place) != first


def test_in_a_full_catalog_a_bookie_without_one_is_listed_without(place: Place) -> None:
    """P10.6, P10.7: bookies register all the same, and one that has its placement raises it there, too. Who has none
    gets it when there is room: it could not be drained until somebody started it again (seed 37101150)."""
    place.until(lambda: place.bookie("b1").is_registered)
    catalog = place.metadata.core.catalog
    room = catalog.limits
    catalog.key_space.limits = replace(room, catalog_bytes_max=1, catalog_reserve_bytes=1 << 20)
    first = placement(place)
    become(place, is_writable=False)
    assert placement(place) != first
    become(place, is_writable=True)
    catalog._records.remove(placement_path("b1"))
    place.bookie("b1").registering.register(place.now_ns)
    place.until(lambda: listed(place).placement is None)
    assert shown(place).is_writable
    place.run_for(2 * TELL_NS, SECOND)  # Until it has nothing else to tell.
    assert listed(place).placement is None
    catalog.key_space.limits = room
    place.run_for(TELL_NS + SECOND, SECOND)
    assert listed(place).placement == placement(place) is not None


def test_free_bytes_that_others_change_are_told_again(place: Place) -> None:
    """P10.6: ensembles are placed by them, and a bookie that takes no add has nothing else to tell."""
    free = [100 << 30]
    place.free_bytes = lambda: free[0]
    place.start_bookie("b1", place.crash("b1"))
    place.until(lambda: place.bookie("b1").is_registered)
    place.run_for(2 * TELL_NS, SECOND)  # Until it has nothing else to tell.
    for now, told in ((96, 100), (90, 90), (94, 90), (200, 200)):
        free[0] = now << 30
        place.run_for(TELL_NS + SECOND, SECOND)
        assert listed(place).free_bytes == told << 30
