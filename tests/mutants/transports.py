"""Links, and the waits in C that receive from them."""

# ruff: noqa: E501 - It quotes lines of our own code as they stand.

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_WAIT = "native/road/loop_wait.c"
_SOCKETS = "transports/zmq_sockets.py"

_WAITING = "tests/transports/test_waiting.py::test_"
_NEAR = "tests/host/test_local_adds.py::test_"

MUTANTS = (
    Mutant(
        "wait-tells-before-durable",
        "P3.2 I40",
        "a bookie that waits in C answers what it took, durable or not",
        (
            (
                _WAIT,
                "ebk_add_path_reap(path, durable) > 0",
                "ebk_add_path_reap(path, durable + (ebk_add_path_records(path) > 0)) > 0",
            ),
        ),
        (_WAITING + "an_answer_leaves_when_its_record_is_durable_and_not_before",),
    ),
    Mutant(
        "wait-outlasts-what-the-core-waits-for",
        "P5.2f",
        "a bookie that waits in C keeps from its core that a fence has become durable",
        ((_WAIT, "run->terms->awaits_journal && durable > run->terms->durable", "false"),),
        (_WAITING + "durability_that_others_wait_for_ends_it",),
    ),
    Mutant(
        "wait-outlasts-a-failed-journal",
        "P7.6",
        "a bookie whose journal has failed waits on in C, and nobody hears that its adds are unknown",
        ((_WAIT, "is_awaited || ebk_add_path_has_failed(path) ?", "is_awaited ?"),),
        (_WAITING + "a_failed_journal_ends_it_and_nothing_is_answered",),
    ),
    Mutant(
        "wait-keeps-acknowledgements-back",
        "P3.2 P3.3",
        "what became durable while a loop slept waits for the steps of the nodes that something else concerns",
        (
            (
                _WAIT,
                "    if (reason == EBK_LOOP_READY) take_adds(&run);",
                "    if (reason == EBK_LOOP_READY) (void)0;",
            ),
        ),
        (_NEAR + "a_descriptor_that_ends_the_wait_keeps_no_acknowledgement_back",),
    ),
    Mutant(
        "wait-starves-descriptors-of-others",
        "P4.1",
        "a wait that ends for a message looks at no descriptor, so a busy link hides all other nodes of its loop",
        (
            (
                _WAIT,
                "    const int seen = look(run, waits",
                "    const int seen = reason != 0 ? 0 : look(run, waits",
            ),
        ),
        (
            _WAITING + "a_message_that_ends_it_hides_no_descriptor",
            "tests/transports/test_listening.py::test_news_hide_no_descriptor",
        ),
    ),
    Mutant(
        "a-link-hides-the-others",
        "P4.1",
        "a client hears no other link while bodies come on one without a pause",
        (
            (
                "transports/zmq.py",
                " and self._dialled.listens and not self._is_alone\n",
                " and self._dialled.listens\n",
            ),
        ),
        ("tests/transports/test_listening.py::test_what_ended_it_is_told_alone_every_other_time",),
    ),
    Mutant(
        "wait-offers-behind-an-event",
        "P3.4 P3.7",
        "what came behind a message that ended a wait is taken before the core has seen that message",
        (
            (
                "transports/zmq.py",
                "            if self._ends.events:\n                self._accepted.add_path = None\n",
                "",
            ),
        ),
        (_WAITING + "a_message_that_is_not_taken_is_the_next_event",),
    ),
    Mutant(
        "who-waits-to-be-received-is-silent",
        "P4.1",
        "a peer whose bodies wait behind those of others is taken for dead",
        (("transports/zmq_ends.py", " and not link.port.has_backlog:", ":"),),
        ("tests/transports/test_zmq.py::test_who_waits_to_be_received_has_not_gone_silent",),
    ),
    Mutant(
        "silence-has-no-end",
        "T11",
        "a connection on which no Hello is said is kept for ever",
        (
            (
                "transports/zmq_before_hello.py",
                "            is_late = now_ns - each.since_ns >= HELLO_NS_MAX\n",
                "            is_late = False\n",
            ),
        ),
        ("tests/transports/test_zmq.py::test_a_connection_that_never_says_hello_is_hung_up_on",),
    ),
    Mutant(
        "two-parts-have-no-bound",
        "T10",
        "a body of two parts may be twice as long as one may be",
        (
            (
                "transports/zmq_intake.py",
                "        if len(part.buffer) + len(tail.buffer) > LINK_BYTES_MAX:\n            return HeldPart(part.buffer, True, NO_DESCRIPTOR)  # Never joined.\n",
                "",
            ),
        ),
        ("tests/transports/test_zmq.py::test_two_parts_are_together_no_longer_than_one_may_be",),
    ),
    Mutant(
        "an-address-is-a-disk",
        "P4.6 RP47",
        "a bookie whose address is another's now counts as one that has lost its disk, and is replaced for good",
        (
            (
                "embedbk/ports/links.py",
                'reason.startswith(WRONG_INCARNATION) and f", found {node_id}/" in self.reason\n',
                "reason.startswith(WRONG_INCARNATION)\n",
            ),
        ),
        (
            "tests/transports/test_envelope.py::test_only_the_same_node_with_another_incarnation_has_another_disk",
        ),
    ),
    Mutant(
        "a-part-beyond-the-bound-ends-the-bookie",
        "RP34",
        "a part that goes beyond the bytes of one receive leaves less than nothing for the next",
        (
            (
                "transports/zmq_turns.py",
                "bytes_left = max(0, BYTES_PER_RECEIVE_MAX - size)\n",
                "bytes_left = BYTES_PER_RECEIVE_MAX - size\n",
            ),
        ),
        ("tests/transports/test_waiting.py::test_a_part_beyond_the_bound_of_one_receive_is_its_last",),
    ),
    Mutant(
        "no-descriptor-ends-the-host",
        "P4.1",
        "a process that has no descriptor left for a moment loses its client, or its bookie, for good",
        (
            (
                _SOCKETS,
                "            port = Port(self._context, kind, endpoint)\n        except (OSError, zmq.ZMQError) as error:",
                "            port = Port(self._context, kind, endpoint)\n        except ZeroDivisionError as error:",
            ),
        ),
        (
            "tests/transports/test_zmq.py::test_who_has_no_descriptor_left_is_refused_a_link_and_gets_it_later",
        ),
    ),
    Mutant(
        "no-memory-for-a-turn-ends-the-client",
        "L14",
        "a client whose adds get no memory for one more turn in C ends with its host thread",
        (
            (
                "embedbk/host/courses.py",
                "        except (MemoryError, StorageError):\n            adds = None",
                "        except MemoryError:\n            adds = None",
            ),
        ),
        ("tests/host/test_link_adds.py::test_a_course_without_memory_is_none_and_ends_no_client",),
    ),
    Mutant(
        "first-socket-looks-for-no-descriptors",
        "P4.1",
        "a process that has few descriptors left is ended by libzmq with the first link of a transport",
        ((_SOCKETS, "                _look_for_room()\n", "                pass\n"),),
        ("tests/transports/test_zmq.py::test_who_has_no_descriptor_left_gets_the_first_link_later",),
    ),
    Mutant(
        "transport-that-cannot-be-made-ends-the-host",
        "P4.1",
        "an embedded cluster that dials its first link out of its process without a descriptor left ends",
        (
            (
                "transports/widened.py",
                "            except (OSError, ImportError) as refused:",
                "            except MemoryError as refused:",
            ),
        ),
        ("tests/transports/test_zmq.py::test_who_has_no_descriptor_left_gets_the_first_link_later",),
    ),
)
