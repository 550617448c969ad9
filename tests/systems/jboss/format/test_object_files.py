"""Names of the files of Narayana's stores."""

from __future__ import annotations

import pytest

from tallystick.systems.jboss.format.object_files import ObjectFile, ends_recovery, object_file

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
        (f"/srv/Recovery/store/{TYPE}/{FILE}", "/srv/Recovery/store", f"/{TYPE}"),
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


@pytest.mark.parametrize("name", ["0_1_2_3", "0_1_2_3_4_5", "0_1_2_3_x", "", "a.log"])
def test_other_names_are_no_objects(name: str) -> None:
    assert object_file(f"/store/{TYPE}/{name}") is None


@pytest.mark.parametrize(
    "path",
    [
        f"{TYPE}/{FILE} (1)",
        f"{TYPE}/Copy of {FILE}",
        f"{TYPE}/{FILE} - Copy",
        f"{TYPE}/{FILE}_copy",
        f"{TYPE}/{FILE}.bak",
        f"{TYPE}/{FILE}~",
        f"{TYPE}/{FILE.upper()}",
        f"{TYPE.upper()}/{FILE}",
        f"{TYPE.lower()}/#7#/{FILE}",
    ],
)
def test_a_name_that_narayana_does_not_write_is_one_that_recovery_does_not_ask_for(
    path: str,
) -> None:
    found = object_file(f"/store/{path}")
    assert found == ObjectFile("/store", f"/{TYPE}", UID, False, False, False, misnamed=True)
    assert not found.in_use


@pytest.mark.parametrize("name", [".DS_Store", f"{FILE}.bak", f"{FILE}!", f"{FILE[:-1]}x"])
def test_recovery_of_a_store_by_hash_ends_at_a_name_that_is_no_uid(name: str) -> None:
    found = [f"/store/{TYPE}/#7#/{FILE}", f"/store/{TYPE}/#7#/{name}"]
    known = [one for one in found if object_file(one)]
    assert ends_recovery(known) == [found[1]]
    assert ends_recovery([f"/store/{TYPE}/{one.rpartition('/')[2]}" for one in known]) == []
    assert ends_recovery([f"/store/{TYPE}/#7#/Expired/{name}"]) == []


@pytest.mark.parametrize("names", [[FILE], [FILE.upper()], [f"{FILE}#"], [f"{FILE}!"]])
def test_it_goes_on_at_states_hidden_ones_and_shadows(names: list[str]) -> None:
    assert ends_recovery(f"/store/{TYPE}/#7#/{one}" for one in names) == []
