"""What strangers send and put: decoders, collectors and limbo before what they cannot read, sockets."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_UNPACKING = "tests/codec/test_unpacking.py::test_"
_VALUES = "tests/sim/test_strange_values.py::test_"
_LOCAL_SOCKETS = "tests/transports/test_local_sockets.py::test_"
_SOCKETS = "tests/transports/test_zmq_before_hello.py::test_"

MUTANTS = (
    Mutant(
        "text-that-is-none-leaves-a-decoder",
        "T10",
        "a decoder lets out what the library under it raises beside its own errors",
        (
            (
                "embedbk/codec/unpacking.py",
                "    except Exception as broken:\n",
                "    except msgspec.MsgspecError as broken:\n",
            ),
        ),
        (_UNPACKING + "text_that_is_none_and_nesting_without_end_are_refused",),
    ),
    Mutant(
        "any-key-is-a-ledgers",
        "P2.5 P7.7",
        "a collector takes every key beside those of ledgers for a ledger's",
        (
            (
                "embedbk/codec/ledger_metadata.py",
                "    if not key.startswith(prefix) or len(digits) != 16 or digits.strip(_HEX_DIGITS):\n",
                "    if not key.startswith(prefix):\n",
            ),
        ),
        (_VALUES + "a_key_that_is_no_ledgers_ends_no_bookie",),
    ),
    Mutant(
        "what-cannot-be-read-is-dropped",
        "P2.5 P7.7 I35",
        "a collector takes metadata that it cannot read for that of a ledger which is closed elsewhere",
        (
            (
                "embedbk/core/collector.py",
                "            effects.append(NameUnread(ledger_key_path(ledger_id), str(unread)))\n            return False\n",
                "            effects.append(NameUnread(ledger_key_path(ledger_id), str(unread)))\n            return True\n",
            ),
        ),
        (
            "tests/rules/test_p7_dropping.py::test_only_what_metadata_does_not_know_or_seats_elsewhere_is_dropped",
        ),
    ),
    Mutant(
        "what-cannot-be-read-is-in-no-limbo",
        "P2.5 P7.4",
        "a bookie that may have lost entries answers for a ledger whose metadata it cannot read as if nothing were lost",
        (
            (
                "embedbk/host/limbo.py",
                "            found.not_closed[ledger_id] = None\n            return\n",
                "            return\n",
            ),
        ),
        (_VALUES + "a_bookie_that_may_have_lost_entries_serves_beside_what_it_cannot_read",),
    ),
    Mutant(
        "a-ledger-stands-under-anothers-key",
        "P2.5",
        "metadata of one ledger is believed of another under whose key somebody put it",
        (
            (
                "embedbk/codec/ledger_metadata.py",
                '    if ledger_id not in (None, metadata.ledger_id):\n        return f"its metadata stands in the place of that of ledger {ledger_id}"\n',
                "",
            ),
        ),
        (_UNPACKING + "metadata_that_no_ledger_can_have_is_refused[changes1]",),
    ),
    Mutant(
        "a-ledger-goes-back",
        "P2.3 P2.5",
        "a handle goes on with metadata in which its ledger went back from recovery to open",
        (
            (
                "embedbk/codec/ledger_metadata.py",
                "    if metadata.state < known.state or (known.is_closed and end_before != end):\n",
                "    if known.is_closed and metadata.is_closed and end_before != end:\n",
            ),
        ),
        (_UNPACKING + "what_never_changes_is_checked_against_what_was_known[changes4]",),
    ),
    Mutant(
        "an-unread-ledger-ends-its-writers-host",
        "P2.5 P4.3",
        "a writer that cannot read what stands there lets the error out of its core",
        (
            (
                "embedbk/core/publishing.py",
                "        except StorageError as unread:\n",
                "        except KeyError as unread:\n",
            ),
        ),
        (_VALUES + "a_writer_that_has_to_change_what_it_cannot_read_fails_alone",),
    ),
    Mutant(
        "an-unread-ledger-ends-the-host-of-a-writer-that-is-short",
        "P2.5 P3.6",
        "a writer short of bookies that cannot read what stands there lets the error out of its core",
        (
            (
                "embedbk/core/writer.py",
                "        except StorageError as unread:\n            return self._give_up(unread)\n",
                "        except KeyError as unread:\n            return self._give_up(unread)\n",
            ),
        ),
        (_VALUES + "a_writer_short_of_bookies_fails_alone_by_what_it_cannot_read",),
    ),
    Mutant(
        "old-framings-raise",
        "T10",
        "a part that has no descriptor ends the host that asks for it",
        (("transports/zmq_descriptors.py", "    except zmq.ZMQError:\n", "    except KeyError:\n"),),
        (_SOCKETS + "no_part_of_any_framing_raises",),
    ),
    Mutant(
        "who-names-its-route-is-linked",
        "T4",
        "a peer may name the route of its link, also one that the ROUTER will give to another",
        (
            (
                "transports/zmq_before_hello.py",
                "        elif not _is_given(port, route):\n",
                "        elif not route:\n",
            ),
        ),
        (_SOCKETS + "who_names_a_number_of_ours_gets_no_link",),
    ),
    Mutant(
        "routes-begin-everywhere-alike",
        "T4",
        "every process gives its first peer the same route, so that anybody knows which one it gives next",
        (
            (
                "transports/zmq_accepted.py",
                "        lib.ebk_rand_begin(secrets.randbits(32))\n",
                "        lib.ebk_rand_begin(1)\n",
            ),
        ),
        (_SOCKETS + "where_routes_begin_is_chance",),
    ),
    Mutant(
        "a-link-may-swallow-without-end",
        "T10",
        "a peer with a link sends parts of one message until its receiver has no memory left",
        (
            (
                "transports/zmq_ends.py",
                "        return swallowed - link.swallowed_bytes > UNFINISHED_BYTES_MAX\n",
                "        return False\n",
            ),
        ),
        (_SOCKETS + "a_linked_peer_cannot_send_a_body_without_end",),
    ),
    Mutant(
        "a-stranger-may-send-without-end",
        "T10",
        "a connection without a link sends parts of one message for five seconds",
        (
            (
                "transports/zmq_before_hello.py",
                " and (is_late or swallowed_bytes(descriptor) > each.bytes_max):\n",
                " and is_late:\n",
            ),
        ),
        (_SOCKETS + "a_multipart_without_end_is_ended_by_its_bytes",),
    ),
    Mutant(
        "a-local-socket-is-everybodys",
        "T10",
        "every user may send parts without end over a local socket, of which the system says no bytes",
        (
            (
                "transports/zmq_sockets.py",
                '        if self.is_listening and endpoint.startswith("ipc://"):\n',
                '        if self.is_listening and endpoint.startswith("icp://"):\n',
            ),
        ),
        (_LOCAL_SOCKETS + "another_user_is_not_even_greeted",),
    ),
    Mutant(
        "a-local-listener-is-anybodys",
        "T10",
        "a link is dialled to a local socket that another user made",
        (("transports/zmq_before_hello.py", "user not in ipc_users():\n", "user < 0:\n"),),
        (_LOCAL_SOCKETS + "a_listener_of_another_user_gets_no_link",),
    ),
    Mutant(
        "a-hello-says-who-is-served",
        "P7.2",
        "a bookie serves nobody on an accepted link whose Hello does not call itself a client",
        (
            (
                "embedbk/host/bookie_node.py",
                "        elif self.registering.is_foreign:\n            self.transport.drop",
                '        elif self.registering.is_foreign or event.peer.role == "bookie":\n            self.transport.drop',
            ),
        ),
        ("tests/host/test_what_a_hello_says.py::test_a_bookie_answers_everybody_alike",),
    ),
    Mutant(
        "a-wrong-token-is-answered-with-the-right-one",
        "P7.2",
        "whoever guesses a cluster's token is told it",
        (
            (
                "transports/envelope.py",
                ', and {ours.node_id} to another one"\n',
                ', and {ours.node_id} to {ours.cluster_token.hex()}"\n',
            ),
        ),
        ("tests/transports/test_envelope.py::test_a_wrong_token_is_not_answered_with_the_right_one",),
    ),
)
