"""A process that uses the log of the histories and writes down what it is told, until its input ends or it is killed.

    python -m tests.histories.worker URL ROLE NAME INCARNATION SEED DIRECTORY

Its choices are drawn from the seed, its name and its incarnation.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.histories.process import Process
from tests.histories.reading import consume, cut, read, recover
from tests.histories.writing import write

ROLES = {"write": write, "read": read, "consume": consume, "cut": cut, "recover": recover}


def main(arguments: list[str]) -> None:
    url, role, name, incarnation, seed, directory = arguments
    process = Process(url, name, int(incarnation), int(seed), Path(directory))
    with process.client:
        ROLES[role](process)


if __name__ == "__main__":
    main(sys.argv[1:])
