"""Branches in doubt, settled by hand.

In: a coordinator's directory, its resources by name, a global id, and what an operator wants. Out:
branches that have ended, and records of it in the coordinator's log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tallystick.errors import TallystickError, TransactionUsageError
from tallystick.records import Xid
from tallystick.roles import DecisionOutcome
from tallystick.roles.coordinator_files import last_resources
from tallystick.services.journal import Journal
from tallystick.services.page_store import PageStore
from tallystick.services.transactions import TransactionManager
from tallystick.services.transactions.coordinator_dir import check_coordinator_dir
from tallystick.services.transactions.deadlines import TimedResources
from tallystick.services.transactions.resource import (
    BranchHeuristic,
    BranchRolledBack,
    BranchUnknown,
    LastResource,
    Resource,
    identity_of,
    is_last_resource,
)
from tallystick.services.transactions.xids import node_of
from tallystick.storage.files import FileSystem
from tallystick.storage.local import LOCAL


def settle(
    coordinator: str,
    resources: Mapping[str, Any],
    gtrid: bytes,
    *,
    commit: bool | None,
    force: bool = False,
    fs: FileSystem = LOCAL,
) -> list[str]:
    """Settle one global transaction by hand; return what was done, one sentence per resource.

    ``commit``: True commits its branches, False rolls them back, None only records that its
    heuristic outcome was dealt with. ``fs`` is the file system of the coordinator's directory.

    Raises `TransactionUsageError` for another node's transaction, for a resource whose database is
    not the one noted under its name, or where it would go against the decision (in the log, closed
    before, or as the outcome row of a last resource, which has to be given) or would commit what
    has a heuristic outcome and no decision, unless ``force`` is given; for a
    directory that is no coordinator's in any case; and `LogLockedError` while the coordinator runs.
    What goes against a decision is recorded as heuristic.
    """
    check_coordinator_dir(coordinator, fs)
    with TransactionManager(coordinator, resources, recovery_interval=None, fs=fs) as tm:
        if commit is None:
            if gtrid not in tm.decisions.heuristics():
                raise TransactionUsageError(f"no heuristic outcome of {gtrid.hex()} is open")
            tm.decisions.settle(gtrid).wait()
            return ["recorded that the heuristic outcome is settled"]
        decided = _is_decided(tm, gtrid)
        if not force:
            heuristic = gtrid in tm.decisions.heuristics()
            lacking = lacking_last_resources(tm.directory.resources.read(), tm.resources)
            refuse(
                gtrid, tm.node, commit=commit, decided=decided, heuristic=heuristic,
                lacking=lacking,
            )  # fmt: skip
            _refuse_other_databases(tm)
        return _settle(tm, gtrid, commit=commit, decided=decided, force=force)


def open_store(name: str, address: str) -> PageStore | Journal | None:
    """Open the embedded store of ``page-store:PATH`` or ``journal:PATH``; None for other addresses.

    Raises:
        TransactionUsageError: there is none in that folder.
    """
    scheme, _, path = address.partition(":")
    stores: dict[str, type[PageStore | Journal]] = {"page-store": PageStore, "journal": Journal}
    if scheme not in stores:
        return None
    if not Path(path).is_dir() or not any(Path(path).iterdir()):
        raise TransactionUsageError(
            f"there is no {scheme} of the resource {name!r}",
            file=path,
            advice="Opening would make a new one: look for the path that the application uses",
        )
    return stores[scheme](path)


def _refuse_other_databases(tm: TransactionManager) -> None:
    """Raise `TransactionUsageError` for a database that is not the one noted under its name."""
    for name, resource in TimedResources(tm.resources, tm.call_timeout).now().items():
        noted, found = tm.directory.identities.get(name), identity_of(resource)
        if None not in (noted, found) and noted != found:
            raise TransactionUsageError(
                f"the database of {name!r} is another one",
                expected=noted,
                found=found,
                advice="Give its right address; repeat with force if the database was moved there",
            )


def lacking_last_resources(known: Mapping[str, str], given: Mapping[str, Resource]) -> list[str]:
    """Return the resources whose own commit decides, of those a coordinator had, not given.

    A resource of another kind under the name of one is not that one.
    """
    lasts = [name for name, one in given.items() if is_last_resource(one)]
    return sorted(last_resources(known).difference(lasts))


def refuse(
    gtrid: bytes,
    node: str,
    *,
    commit: bool,
    decided: bool,
    heuristic: bool,
    lacking: Sequence[str],
) -> None:
    """Raise `TransactionUsageError` for what only ``force`` may do.

    Args:
        gtrid: the global transaction.
        node: the coordinator whose directory it is.
        commit: what an operator wants, commit or rollback.
        decided: its decision to commit is known.
        heuristic: a branch of it has a heuristic outcome that is not dealt with.
        lacking: `lacking_last_resources`.
    """
    owner = node_of(gtrid)
    if owner is None:
        raise TransactionUsageError(f"{gtrid.hex()} is no id that a coordinator of ours makes")
    if owner != node:
        raise TransactionUsageError(
            f"{gtrid.hex()} is of node {owner!r}, and this is the directory of {node!r}",
            advice="Its own coordinator's log tells what was decided: use that directory",
        )
    if decided and not commit:
        raise TransactionUsageError(
            f"{gtrid.hex()} was decided: commit",
            advice="Rolling back breaks the transaction; repeat with force if you must",
        )
    if not (commit or decided) and lacking:
        raise TransactionUsageError(
            f"{gtrid.hex()} may be committed: an outcome row of {', '.join(lacking)} would tell",
            expected="every resource of the coordinator that cannot prepare",
            advice=f"Give it, too: --resource {lacking[0]}=sqlite:///PATH; repeat with force if it "
            "is gone for ever and the data agree",
        )
    if commit and not decided and heuristic:
        raise TransactionUsageError(
            f"{gtrid.hex()} was rolled back: a branch of it has a heuristic outcome, and nothing "
            "tells of a decision to commit",
            advice="Roll it back; repeat with force if you know that it has to be committed",
        )


def _is_decided(tm: TransactionManager, gtrid: bytes) -> bool:
    """Return True if the log, or a last resource that was given, tells that it is committed."""
    if gtrid in tm.decisions.open_decisions() or tm.directory.closed.among([gtrid]):
        return True
    given = TimedResources(tm.resources, tm.call_timeout).now().values()
    lasts = [cast(LastResource, one) for one in given if is_last_resource(one)]
    return any(one.has_outcome(gtrid) for one in lasts)


def _settle(
    tm: TransactionManager, gtrid: bytes, *, commit: bool, decided: bool, force: bool
) -> list[str]:
    found = [
        (resource, xid)
        for resource in TimedResources(tm.resources, tm.call_timeout).now().values()
        for xid in resource.in_doubt()
        if xid.gtrid == gtrid
    ]
    if not found and commit:
        return _close(tm, gtrid, force=force)
    if not found:
        raise TransactionUsageError(f"no resource has a branch of {gtrid.hex()} in doubt")
    if commit and not decided:
        tm.decisions.decide(gtrid, [resource.name for resource, _ in found]).wait()
    done = []
    ended: set[Xid] = set()
    for resource, xid in found:
        try:
            # Each database of a MariaDB server lists the branches of all: then it is over already.
            if xid not in ended or xid in resource.in_doubt():
                (resource.commit if commit else resource.rollback)(xid)
        except BranchUnknown as answer:
            done.append(f"{resource.name}: failed: listed, but held by another session: {answer}")
            continue
        except (BranchHeuristic, BranchRolledBack) as answer:
            if commit or isinstance(answer, BranchHeuristic):
                _record_heuristic(tm, gtrid, resource.name, decided=commit or decided)
                done.append(f"{resource.name}: failed: its outcome is heuristic: {answer}")
                continue
        except TallystickError as error:
            done.append(f"{resource.name}: failed: {error}")
            continue
        ended.add(xid)
        if commit or decided:
            outcome = DecisionOutcome.COMMITTED if commit else DecisionOutcome.HEURISTIC
            tm.directory.finish(gtrid, [resource.name], outcome)
        done.append(f"{resource.name}: {'committed' if commit else 'rolled back'}")
    return done


def _record_heuristic(tm: TransactionManager, gtrid: bytes, name: str, *, decided: bool) -> None:
    finish = tm.directory.finish if decided else tm.decisions.finish
    finish(gtrid, [name], DecisionOutcome.HEURISTIC)


def _close(tm: TransactionManager, gtrid: bytes, *, force: bool) -> list[str]:
    """Close a decision whose branches are not listed any more: the operator knows their end.

    With ``force`` for resources that were not given, too: those that are gone for ever.
    """
    decision = tm.decisions.open_decisions().get(gtrid)
    waiting = sorted(decision.resources) if decision is not None else []
    names = [name for name in waiting if force or name in tm.resources]
    if not names and waiting:
        raise TransactionUsageError(
            f"the decision waits for {', '.join(waiting)}, and none of them was given",
            advice="Give them with --resource; repeat with force if they are gone for ever and the "
            "data agree",
        )
    if not names:
        raise TransactionUsageError(f"no resource has a branch of {gtrid.hex()} in doubt")
    tm.directory.finish(gtrid, names, DecisionOutcome.COMMITTED)
    return [f"{name}: recorded as committed, on the operator's word" for name in names]
