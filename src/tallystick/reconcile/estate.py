"""All logs of an estate reconciled in one process, as the Spark stages do it over many machines.

In: transactions of single logs, and which logs are not whole. Out: the judgement of every global
transaction. The stages of `tallystick.pipeline.stages` gather the same parts with joins, and call
the same functions for every decision.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Any

from tallystick.reconcile import copies, coverage, nameless, rows
from tallystick.reconcile.ids import BITRONIX, owner_of
from tallystick.records import Severity, State, Transaction, jsonable

Row = dict[str, Any]
_Key = tuple[int, bytes]

WHAT = ("system", "log", "state", "evidence_file", "evidence_offset", "evidence_type")
"""What is kept of an end without a name."""


class Estate:
    """Transactions of many logs, and what is known about the logs.

    Args:
        resources: the log of each resource name, for every coordinator; none given: found from
            what occurs together.
    """

    def __init__(self, resources: Mapping[str, str] | None = None) -> None:
        self.copies: dict[str, tuple[str, str]] = {}
        """By log that is left out as a copy: its system and its original. Known after `judged`."""
        self._given = resources
        self.damaged: set[str] = set()
        """Logs of which not all can be read."""
        self.lasts: dict[str, Sequence[str]] = {}
        """By log of a coordinator its resources whose own commit decides."""
        self.unnamed: list[Row] = []
        """Prepared branches whose names are no Xid, so that no coordinator's log tells of them."""
        self._parts: list[Row] = []
        self._bare: list[Row] = []
        self._places: set[tuple[str, str, str]] = set()
        self._coordinators: dict[bytes, set[str]] = defaultdict(set)
        self._names: dict[str, str] = {}

    def add_finding_rows(self, found: Iterable[Row]) -> None:
        """Note the logs of which not all can be read, by rows of the table ``findings``."""
        self.damaged |= {
            row["log"]
            for row in found
            if coverage.hides_records(row["system"], row["code"], Severity(row["severity"]))
        }

    def add_transaction(self, one: Transaction, log: str, clock: str) -> None:
        """Add what the log of that name says of one transaction."""
        file, offset = one.evidence or (None, None)
        heuristic = one.state is State.HEURISTIC
        row = {
            "system": one.system,
            "log": log,
            "state": one.state.value,
            "format_id": BITRONIX if one.format_id is None else one.format_id,
            "gtrid": one.gtrid,
            "bqual": one.bqual,
            "participants": one.participants,
            "open_participants": one.open_participants,
            "first_time": one.first_time,
            "last_time": one.last_time,
            "records": one.records,
            "clock": clock,
            "evidence_file": file,
            "evidence_offset": offset,
            "evidence_type": one.evidence_type,
            "attributes": json.dumps(jsonable(one.attributes)) if heuristic else None,
        }
        if one.gtrid is None and one.state is State.PREPARED:
            self.unnamed.append({name: row[name] for name in WHAT} | {"name": one.name or one.key})
        self._add(row, one.attributes)

    def add_row(self, row: Row) -> None:
        """Add a row of the table ``transactions``."""
        attributes = json.loads(row["attributes"] or "{}")
        heuristic = row["state"] == State.HEURISTIC.value
        format_id = BITRONIX if row["format_id"] is None else row["format_id"]
        kept = {"format_id": format_id, "attributes": row["attributes"] if heuristic else None}
        self._add(row | kept, attributes)

    def _add(self, row: Row, attributes: Mapping[str, Any]) -> None:
        folder = (row["evidence_file"] or "").rpartition("/")[0]
        self._places.add((row["system"], row["log"], folder))
        if nameless.is_bare_end(row, attributes):
            self._bare.append(row)
        elif row["gtrid"] is not None and not attributes.get("settled"):
            self._parts.append(row)

    def __len__(self) -> int:
        """Return how many transactions and branches are kept."""
        return len(self._parts) + len(self._bare)

    def clear(self) -> None:
        """Forget the transactions and branches."""
        self._parts.clear()
        self._bare.clear()

    def add_coordinator(self, owner: bytes, log: str) -> None:
        """Add a coordinator's log, even if it says nothing of any transaction."""
        self._coordinators[owner].add(log)

    def in_doubt(self) -> set[bytes]:
        """Return the global ids that have a prepared branch."""
        prepared = State.PREPARED.value
        return {part["gtrid"] for part in self._parts if part["state"] == prepared}

    def names_in(self, coordinator: str) -> set[str]:
        """Return the names of resources in the log of a coordinator."""
        parts = (part for part in self._parts if part["log"] == coordinator)
        return {name for part in parts if part["bqual"] is None for name in part["participants"]}

    def open_decisions(self) -> dict[bytes, set[str]]:
        """Return the resources at which a decision to commit is not known to be carried out.

        By global id, and as its coordinator names them.
        """
        found: dict[bytes, set[str]] = {}
        for part in self._parts:
            if part["bqual"] is None and part["state"] == State.COMMITTING.value:
                found.setdefault(part["gtrid"], set()).update(part["open_participants"])
        return found

    def add_closed_decisions(
        self, system: str, log: str, file: str, gtrids: Collection[bytes]
    ) -> None:
        """Add decisions to commit that are closed, where the coordinator's log has forgotten them.

        Args:
            system: that of the coordinator's log.
            log: its name.
            file: where they are noted.
            gtrids: their global ids.
        """
        known = {part["gtrid"] for part in self._parts if part["bqual"] is None}
        forgotten = set(gtrids) - known
        keys = {(one["format_id"], one["gtrid"]) for one in self._parts}
        self._parts += [
            {
                "system": system, "log": log, "state": State.COMMITTED.value,
                "format_id": format_id, "gtrid": gtrid, "bqual": None,
                "participants": (), "open_participants": (), "first_time": None, "last_time": None,
                "records": 0, "clock": None, "attributes": None,
                "evidence_file": file, "evidence_offset": None, "evidence_type": "closed decision",
            }
            for format_id, gtrid in sorted(keys) if gtrid in forgotten
        ]  # fmt: skip

    def add_resource(self, name: str, log: str, held: Iterable[Row]) -> None:
        """Add a resource whose name is known, with parts for its branches."""
        self._names[name] = log
        self._parts += held

    def judged(self) -> Iterator[Row]:
        """Yield the judgement of each global transaction, by format id and gtrid."""
        copied = self._renamed()
        grouped = _grouped(self._parts, copied)
        live = set(self._names.values())
        copied |= {log: one for log, one in _copied(grouped).items() if log not in live}
        self.copies, left_out = copied, set(copied)
        grouped = _grouped(self._parts, left_out)
        journals = self._journals(grouped)
        resources = self._resources(grouped, journals)
        bare = [one for one in self._bare if one["log"] not in left_out]
        ended = _ended(grouped, resources, bare)
        for key, parts in sorted(grouped.items()):
            owner = owner_of(key[1]) or b""
            yield rows.judge_row({
                "format_id": key[0], "gtrid": key[1], "owner": owner, "parts": parts,
                "journals": list(journals.get(owner, {}).values()),
                "resources": resources.get(owner, ()), "undone": ended.get(key, ()),
            })  # fmt: skip

    def _renamed(self) -> dict[str, tuple[str, str]]:
        """Return copies by their names: logs of one file, beside the original."""
        beside: dict[tuple[str, str], list[str]] = defaultdict(list)
        for system, log, folder in self._places:
            if folder and folder != log:
                beside[system, folder].append(log)
        found: dict[str, tuple[str, str]] = {}
        for (system, _), logs in beside.items():
            for log, original in permutations(logs, 2):
                if copies.is_renamed(log, original):
                    found[log] = min(found.get(log, (system, original)), (system, original))
        return found

    def _journals(self, grouped: dict[_Key, list[Row]]) -> dict[bytes, dict[str, Row]]:
        """Return the journals of each owner: the times covered, the logs of their branches."""
        live = set(self._names.values())
        found: dict[bytes, dict[str, Row]] = defaultdict(dict)

        def journal(owner: bytes, log: str) -> Row:
            new = {
                "log": log, "since": None, "until": None, "logs": {*live},
                "damaged": log in self.damaged, "lasts": self.lasts.get(log, ()),
            }  # fmt: skip
            return found[owner].setdefault(log, new)

        for owner, logs in self._coordinators.items():
            for log in logs:
                journal(owner, log)
        for (_, gtrid), parts in grouped.items():
            logs = {part["log"] for part in parts if part["bqual"] is not None}
            for part in parts:
                if part["bqual"] is None:
                    known = journal(owner_of(gtrid) or b"", part["log"])
                    known["logs"] |= logs
                    begins = (known["since"], coverage.whole_since(part))
                    ends = (known["until"], part["last_time"])
                    known["since"] = min((t for t in begins if t is not None), default=None)
                    known["until"] = max((t for t in ends if t is not None), default=None)
        return found

    def _resources(
        self, grouped: dict[_Key, list[Row]], journals: dict[bytes, dict[str, Row]]
    ) -> dict[bytes, list[dict[str, str]]]:
        """Return per owner which log each name means: as given, else from what occurs together."""
        if self._given:
            return {
                owner: [
                    {"journal": journal, "name": name, "log": log}
                    for journal in logs
                    for name, log in self._given.items()
                ]
                for owner, logs in journals.items()
            }
        counts: dict[bytes, Counter[str]] = defaultdict(Counter)
        for (_, gtrid), parts in grouped.items():
            if pattern := rows.pattern_of(parts):
                counts[owner_of(gtrid) or b""][json.dumps(pattern)] += 1
        pairs: dict[bytes, list[dict[str, str]]] = {}
        for owner, logs in journals.items():
            patterns = [json.loads(text) | {"count": n} for text, n in counts[owner].items()]
            found = [one for one in rows.named_logs(patterns) if one["name"] not in self._names]
            given = [
                {"journal": journal, "name": name, "log": log}
                for journal in logs
                for name, log in self._names.items()
            ]
            pairs[owner] = found + given
        return pairs


def _grouped(parts: Iterable[Row], left_out: Container[str]) -> dict[_Key, list[Row]]:
    grouped: dict[_Key, list[Row]] = defaultdict(list)
    for part in parts:
        if part["log"] not in left_out:
            grouped[part["format_id"], part["gtrid"]].append(part)
    return grouped


def _copied(grouped: dict[_Key, list[Row]]) -> dict[str, tuple[str, str]]:
    """Return the copies among logs that hold the same branches or decisions."""
    ahead: Counter[tuple[str, str]] = Counter()
    newest: dict[str, bytes] = {}
    systems: dict[str, str] = {}
    for (_, gtrid), parts in grouped.items():
        for part in parts:
            systems[part["log"]] = part["system"]
            newest[part["log"]] = max(copies.age(gtrid), newest.get(part["log"], b""))
        for pair in copies.pairs_of(parts):
            ahead[pair["log"], pair["other"]] += pair["ahead"]
    found: dict[str, tuple[str, str]] = {}
    for (log, other), count in ahead.items():
        one = copies.copy_of({
            "log": log, "other": other, "ahead": count,
            "newest": newest[log], "newest_other": newest[other],
        })  # fmt: skip
        copied = systems[one["log"]], one["original"]
        found[one["log"]] = min(found.get(one["log"], copied), copied)
    return found


def _ended(
    grouped: dict[_Key, list[Row]], resources: dict[bytes, list[dict[str, str]]], bare: list[Row]
) -> dict[_Key, list[Row]]:
    """Return the ends without a name of each global transaction."""
    logs = {one["log"] for one in bare}
    claims: dict[str, list[Row]] = defaultdict(list)
    for key, parts in grouped.items():
        present = {part["log"] for part in parts if part["bqual"] is not None}
        pairs = resources.get(owner_of(key[1]) or b"", ())
        for note in (part for part in parts if part["bqual"] is None):
            for pair in pairs:
                named = pair["journal"] == note["log"] and pair["name"] in note["participants"]
                if named and pair["log"] in logs - present:
                    claims[pair["log"]].append(note | {"format_id": key[0], "gtrid": key[1]})
    ended: dict[_Key, list[Row]] = defaultdict(list)
    for log, of_log in claims.items():
        mine = [{name: one[name] for name in WHAT} for one in bare if one["log"] == log]
        for claim, end in nameless.matched(of_log, mine):
            ended[claim["format_id"], claim["gtrid"]].append(end)
    return ended
