"""What a service knows of its targets from one opening to the next: the file ``targets``.

In: the names of targets, the numbers of the log, the tokens that openings put into a target. Out:
for each target the greatest number of the log when it last answered, the greatest one that it has
applied, and the tokens that it may hold. By them a target is found that belongs to another state of
this log: one of both was restored, or a copy of the log is applied to it, too. One that was refused
is asked again before a later opening takes commits.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tallystick.errors import CorruptLogError
from tallystick.storage.files import FileSystem, read_file, write_whole
from tallystick.storage.fork import Uncopied
from tallystick.storage.scheduling import threading

NO_TOKEN = 0
"""Stands for no token among those that a target may hold."""


@dataclass(frozen=True, slots=True)
class Contact:
    """What is known of a target.

    Attributes:
        since: The greatest number of the log at the first opening after which the target has not
            answered: it can hold no later number. None: it has answered since it was opened.
        tokens: The tokens of which the target holds one; `NO_TOKEN` says that it may hold none.
            Empty if nothing is known.
        refused: The target was refused, and has not answered as it should since.
        applied: The target has applied this number, and perhaps later ones; 0 if nothing is
            known. Noted once a second at most, and at the end: a backup of the target, taken while
            one opening worked, has the token of that opening.
    """

    since: int | None = None
    tokens: tuple[int, ...] = ()
    refused: bool = False
    applied: int = 0


class Contacts(Uncopied):
    """The contacts of all targets of a service, kept durably at ``path``."""

    def __init__(self, path: str, fs: FileSystem) -> None:
        self.path = path
        self._fs = fs
        self._lock = threading.Lock()
        self._known = _read(path, fs)

    def opened(self, name: str, last_number: int, waits: Callable[[int], bool]) -> KnownTarget:
        """Note that a log with this greatest number is opened with a target of this name.

        ``waits`` says of a number whether the target gets it again: the log lost its mark in a
        crash, and nothing is missing if the target lost it, too.
        """

        def found(contact: Contact) -> Contact:
            since = last_number if contact.since is None else contact.since
            applied = 0 if waits(contact.applied) else contact.applied
            return replace(contact, since=since, applied=applied)

        self.note(name, found)
        return KnownTarget(self, name)

    def refused(self, name: str) -> None:
        """Note that a target and the log do not belong together, durably."""
        self.note(name, lambda contact: replace(contact, refused=True))

    def cleared(self, name: str) -> None:
        """Note that a target which was refused is not any more, durably."""
        self.note(name, lambda contact: replace(contact, refused=False))

    def of(self, name: str) -> Contact:
        """Return what is known of a target."""
        return self._known.get(name, Contact())

    def note(self, name: str, change: Callable[[Contact], Contact]) -> None:
        """Change what is known of a target, durably."""
        with self._lock:
            before = self._known.get(name)
            after = change(before or Contact())
            if after == before:
                return
            known = {**self._known, name: after}
            content = json.dumps({one: asdict(of) for one, of in known.items()})
            write_whole(self._fs, self.path, [content.encode()])
            self._known = known


class KnownTarget:
    """What a service knows of one target, as the target itself uses it."""

    def __init__(self, contacts: Contacts, name: str) -> None:
        self._contacts = contacts
        self._name = name

    @property
    def contact(self) -> Contact:
        """What is known."""
        return self._contacts.of(self._name)

    @property
    def file(self) -> str:
        """The file that says so."""
        return self._contacts.path

    def expect(self, tokens: Sequence[int]) -> None:
        """Note which tokens the target may hold from now on, durably."""
        self._note(lambda contact: replace(contact, tokens=tuple(tokens)))

    def answered(self, token: int) -> None:
        """Note, durably, that the target holds this token, and nothing that the log never had."""
        self._note(lambda contact: Contact(None, (token,), applied=contact.applied))

    def applied(self, number: int) -> None:
        """Note, durably, that the target has applied this number."""
        self._note(lambda contact: replace(contact, applied=max(contact.applied, number)))

    def _note(self, change: Callable[[Contact], Contact]) -> None:
        self._contacts.note(self._name, change)


def _read(path: str, fs: FileSystem) -> Mapping[str, Contact]:
    if not fs.exists(path):
        return {}
    try:
        found = json.loads(read_file(fs, path))
        return {
            str(name): Contact(
                None if one["since"] is None else int(one["since"]),
                tuple(map(int, one["tokens"])),
                bool(one.get("refused")),
                int(one.get("applied", 0)),
            )
            for name, one in found.items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CorruptLogError(
            "what the service knows of its targets is damaged",
            file=path,
            expected="JSON: by target, since and tokens",
            found=repr(error),
            advice="Remove the file if neither the log nor a target was restored, or copied",
        ) from error
