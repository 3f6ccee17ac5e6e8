"""Applications that use the users' interface, the coroutines under `embedbk.Client`: ledgers with every term, logs,
deletion.

Which terms they use is the plan's (`features`): swarm testing for what is asked for, as for what fails. What they are
told goes to the observers; what only they can judge, they judge.

    user     makes ledgers of its own and appends to them (users.py)
    owner    takes a log over, and repeats what it does not know the fate of (owners.py)
    visitor  opens, recovers, reads, tails (visitors.py)
    remover  deletes, brings back, forgets (removers.py)
    mender   repairs as if bookies were lost that live (menders.py)
"""

from __future__ import annotations

from embedbk.testing.menders import mender
from embedbk.testing.owners import owner
from embedbk.testing.removers import remover
from embedbk.testing.users import user
from embedbk.testing.visitors import visitor

__all__ = ["APPLICATIONS"]

APPLICATIONS = {"user": user, "owner": owner, "visitor": visitor, "remover": remover, "mender": mender}
