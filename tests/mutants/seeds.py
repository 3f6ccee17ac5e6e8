"""Random worlds until a promise is broken: `python -m tests.mutants.seeds ledger|log COUNT`.

Writes every seed that it begins; ends with 1 and the broken promise at the first that fails. It runs inside the copy
that holds a mutant, in a process of its own, since a mutant may also hang.
"""

from __future__ import annotations

import sys
import traceback

from tests.rules.test_any_order import LogStorm, Storm

WORLDS = {"ledger": Storm, "log": LogStorm}


def main(world: str, count: int) -> int:
    for seed in range(count):
        print(seed, flush=True)
        try:
            WORLDS[world](seed).run()
        except Exception as broken:  # noqa: BLE001 - Whatever a mutant breaks, it is found.
            print("".join(traceback.format_exception_only(broken)).splitlines()[0], file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
