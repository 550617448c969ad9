"""What a copy of a database has so that it stands alone, where its log lies on another device.

In: the folder of a database. Out: the files of its log, and its files of properties without the
line that names the device: booted with that line, a copy would write to the log of the original.
"""

from __future__ import annotations

from tallystick.storage.source import PACKINGS, logical_name, open_source, same_place
from tallystick.systems.derby.format.layout import SEGMENT
from tallystick.systems.derby.read.detect import log_files_in
from tallystick.systems.derby.read.files import (
    LOG_DEVICE,
    LOG_FOLDER,
    PROPERTIES,
    SERVICE,
    log_on_device,
    properties_in,
)
from tallystick.systems.derby.read.surroundings import OLD_PROPERTIES, taken_properties
from tallystick.systems.java_properties import without_property
from tallystick.systems.protocol import OwnLog
from tallystick.systems.surroundings import names_beside


def own_log(folder: str) -> OwnLog | None:
    """Return what a copy of the database in a folder has; None where its log is in the folder.

    Raises:
        LogUnreadableError: the folder that it names, or a file of properties, cannot be read.
    """
    names = names_beside(folder)
    settings = dict[str, bytes]()
    devices = dict[str, str]()
    for name in sorted(names):
        # A packed one beside another is of no use to a boot.
        if logical_name(name) not in (PROPERTIES, OLD_PROPERTIES) or (
            name.endswith(PACKINGS) and logical_name(name) in names
        ):
            continue
        with open_source(f"{folder}/{name}") as source:
            data = bytes(source.data)
        found = properties_in(data)
        if LOG_DEVICE in found and (SERVICE in found or SEGMENT in names):
            settings[name] = without_property(data, LOG_DEVICE)
            devices[logical_name(name)] = log_on_device(found)
    if not settings:
        return None
    named = " and ".join(sorted(map(logical_name, settings)))
    verb = "name" if len(settings) > 1 else "names"
    own = f"{folder}/{LOG_FOLDER}"
    place = devices.get(taken_properties(folder), "")
    if not place:  # the file that names another one is not what a boot takes
        text = f"{named} no longer {verb} {next(iter(devices.values()))}"
        return OwnLog(own, log_files_in(own), LOG_FOLDER, settings, text)
    files = log_files_in(place)
    text = f"its log is copied from {place} into its own folder {LOG_FOLDER}, and {named} no "
    text += f"longer {verb} that place"
    if not files:
        text = f"{named} no longer {verb} {place}: no log is there, and so the copy has none"
    if LOG_FOLDER in names and not same_place(own, place):
        text += f"; what lies in its own folder {LOG_FOLDER} was in no use and is not copied"
    return OwnLog(place, files, LOG_FOLDER, settings, text)
