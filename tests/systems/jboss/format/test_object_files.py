"""Names of the files of Narayana's stores."""

from __future__ import annotations

import pytest

from tallystick.systems.jboss.format.object_files import ObjectFile, object_file

TYPE = "StateManager/BasicAction/TwoPhaseCoordinator/AtomicAction"
FILE, UID = "0_ffff7f000001_-a2e3_6b087e24_10", "0:ffff7f000001:-a2e3:6b087e24:10"


@pytest.mark.parametrize(
    ("path", "store", "type_name"),
    [
        (f"/data/defaultStore/{TYPE}/{FILE}", "/data/defaultStore", f"/{TYPE}"),
        (f"/data/defaultStore/{TYPE}/#143#/{FILE}", "/data/defaultStore", f"/{TYPE}"),
        (f"{TYPE}/{FILE}", ".", f"/{TYPE}"),
        (f"/{TYPE}/{FILE}", "/", f"/{TYPE}"),
        (f"/store/Recovery/FactoryContact/{FILE}.gz", "/store", "/Recovery/FactoryContact"),
        (f"s3://bucket/store/{TYPE}/{FILE}", "s3://bucket/store", f"/{TYPE}"),
        (f"/copies/{FILE}", "/copies", ""),
        (FILE, ".", ""),
    ],
)
def test_a_path_names_a_store_a_type_and_an_object(path: str, store: str, type_name: str) -> None:
    assert object_file(path) == ObjectFile(store, type_name, UID, False, False, False)


@pytest.mark.parametrize(
    ("end", "shadow", "hidden"), [("!", True, False), ("#", False, True), ("!#", True, True)]
)
def test_a_shadow_and_a_hidden_state_are_not_in_use(end: str, shadow: bool, hidden: bool) -> None:
    found = object_file(f"/store/{TYPE}/{FILE}{end}")
    assert found == ObjectFile("/store", f"/{TYPE}", UID, shadow, hidden, False)
    assert not found.in_use


def test_what_recovery_has_given_up_is_of_the_type_above() -> None:
    found = object_file(f"/store/{TYPE}/Expired/{FILE}")
    assert found == ObjectFile("/store", f"/{TYPE}", UID, False, False, True)


@pytest.mark.parametrize("name", ["0_1_2_3", "0_1_2_3_4_5", "0_1_2_3_x", "0_1_2_3_4?", "", "a.log"])
def test_other_names_are_no_objects(name: str) -> None:
    assert object_file(f"/store/{TYPE}/{name}") is None
