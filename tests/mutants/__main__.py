"""`./run mutants`: every mutant, or some, and who found each."""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import Outcome, try_mutant, untouched

AT_ONCE = 2


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="./run mutants", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="this mutant; may be given again")
    parser.add_argument("--json", action="store_true", help="JSON on stdout instead of a table")
    parser.add_argument("--list", action="store_true", help="name them and end")
    parser.add_argument("--no-seeds", action="store_true", help="directed tests only")
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="hunt all of them with up to N seeds, also the deep ones"
    )
    options = parser.parse_args(words)
    known = {mutant.name: mutant for mutant in MUTANTS}
    if unknown := [name for name in options.only or () if name not in known]:
        parser.error(f"no such mutant: {', '.join(unknown)}; --list names them")
    chosen = tuple(known[name] for name in options.only or known)
    if options.list:
        print(*(f"{mutant.name:<42} {mutant.rules:<12} {mutant.what}" for mutant in chosen), sep="\n")
        return 0
    if (failed := untouched(chosen)) is not None:
        print(f"the tests fail without any mutant:\n{failed}", file=sys.stderr)
        return 1
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        tried = pool.map(
            lambda mutant: try_mutant(mutant, with_seeds=not options.no_seeds, seeds_max=options.seeds),
            chosen,
        )
        for outcome in tried:
            outcomes.append(outcome)
            print(f"{len(outcomes)}/{len(chosen)} {outcome.name}: {outcome.status}", file=sys.stderr)
    killed = sum(outcome.is_killed for outcome in outcomes)
    if options.json:
        told = {"mutants": len(outcomes), "killed": killed, "outcomes": [one.as_json() for one in outcomes]}
        print(json.dumps(told))
    else:
        print_table(outcomes)
        print(f"{killed} of {len(outcomes)} mutants killed")
    return 0 if killed == len(outcomes) else 1


def print_table(outcomes: list[Outcome]) -> None:
    print(f"{'mutant':<42} {'rules':<12} {'status':<10} {'seeds':>6} {'within':>6}  found by")
    for one in outcomes:
        seeds = "-" if one.seeds is None else str(one.seeds)
        within = "deep" if one.seeds_max is None else str(one.seeds_max)
        by = Path(one.killed_by[0]).name if one.killed_by else one.detail
        more = f" (+{len(one.killed_by) - 1})" if len(one.killed_by) > 1 else ""
        print(f"{one.name:<42} {one.rules:<12} {one.status:<10} {seeds:>6} {within:>6}  {by}{more}")


if __name__ == "__main__":
    sys.exit(main())
