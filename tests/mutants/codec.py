"""What becomes of bytes on their way to values: the packer, answers as they are counted in C."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_COUNTED = "tests/codec/test_answers.py::test_"

MUTANTS = (
    Mutant(
        "sent-bytes-are-not-held",
        "P3.1 P3.7",
        "a frame that was released is written over while a socket still sends it",
        (
            (
                "native/packer.c",
                "    ebk_block_ref(note->block);\n    return note->block;",
                "    return note->block;",
            ),
            ("native/packer.c", "    ebk_block_unref(held);", "    (void)held;"),
        ),
        ("tests/transports/test_zmq_send.py::test_a_frame_on_its_way_stays_as_it_is",),
    ),
    Mutant(
        "answers-count-for-any-seating",
        "P3.8 P4.4",
        "an answer to a request of a seat that was replaced is counted for the one that holds it now",
        (("native/answers.c", " && asked->seating == said->seating &&", " &&"),),
        (_COUNTED + "any_other_answer_is_passed",),
    ),
)
