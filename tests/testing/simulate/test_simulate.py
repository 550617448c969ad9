"""The simulator: the same seed gives the same run, and planted bugs are found and made short."""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tallystick.storage import scheduling
from tallystick.storage.files import FileSystem
from tallystick.testing.simulate import (
    DeadlockError,
    EndlessError,
    Simulation,
    SimulationError,
    explore,
    simulate,
)
from tallystick.testing.simulate.simulation import Scenario
from tests.sweeps import Sweep
from tests.testing.simulate.mutants import MUTANTS, Mutant
from tests.testing.simulate.scenario_behind import behind
from tests.testing.simulate.scenario_commit import commits
from tests.testing.simulate.scenario_group import group
from tests.testing.simulate.scenario_shared import shared

HERE = (__name__,)
ROOT = Path(__file__).parents[3]
SEEDS = 20_000
"""Seeds within which every planted bug has to be found."""


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda one: one.body.__name__)
def test_a_planted_bug_is_found_and_its_schedule_fails_again(
    mutant: Mutant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mutant.owner, mutant.name, mutant.body)
    with pytest.raises(SimulationError) as found:
        explore(mutant.scenario, range(SEEDS))
    short = found.value
    assert f"--seed {short.seed} --schedule" in str(short)
    for _ in range(2):
        with pytest.raises(SimulationError) as again:
            simulate(mutant.scenario, short.seed, schedule=short.decisions)
        assert again.value.trace == short.trace
    monkeypatch.undo()
    simulate(mutant.scenario, short.seed, schedule=short.decisions)


def test_the_same_seed_gives_the_same_trace_in_two_processes() -> None:
    code = (
        "from tallystick.testing.simulate import simulate\n"
        "from tests.testing.simulate.scenario_group import group\n"
        "for seed in range(60):\n"
        "    one = simulate(group, seed)\n"
        "    print(one.trace, sorted(one.states), one.decisions)\n"
    )
    printed = []
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        }
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(run.stdout)
    assert printed[0] == printed[1]
    assert len(set(printed[0].splitlines())) > 40


@pytest.mark.long
@pytest.mark.sampled(2)
@pytest.mark.parametrize("scenario", [group, behind, commits, shared])
def test_a_run_is_seen_again_by_its_decisions_alone(scenario: Scenario, sweep: Sweep) -> None:
    """So a failure of it can be made short: participants that end ask a question of their own."""
    for seed in sweep.of(range(21), 4):
        one = simulate(scenario, seed)
        assert simulate(scenario, seed, schedule=one.decisions).trace == one.trace


def two_locks(sim: Simulation) -> None:
    first, second = threading.Lock(), threading.Lock()

    def takes(one: threading.Lock, other: threading.Lock) -> None:
        with one, other:
            pass

    workers = [sim.spawn(takes, first, second), sim.spawn(takes, second, first)]
    for worker in workers:
        worker.join()


@pytest.mark.long
def test_a_deadlock_is_told_with_the_place_of_each_participant() -> None:
    with pytest.raises(SimulationError) as found:
        explore(two_locks, range(200), modules=HERE)
    assert isinstance(found.value.cause, DeadlockError)
    assert str(found.value.cause).count("in takes") == 2
    assert len(found.value.decisions) <= 2


def spins(_: Simulation) -> None:
    stop = threading.Event()
    while not stop.is_set():
        pass


def test_a_run_that_does_not_end_is_told() -> None:
    with pytest.raises(SimulationError) as found:
        simulate(spins, 0, modules=HERE, steps_max=1000)
    assert isinstance(found.value.cause, EndlessError)


counter = 0


def counts_without_a_lock(sim: Simulation) -> None:
    global counter
    counter = 0

    def counts() -> None:
        global counter
        seen = counter
        counter = seen + 1

    workers = [sim.spawn(counts), sim.spawn(counts), sim.spawn(counts)]
    for worker in workers:
        worker.join()
    assert counter >= 1
    if all(worker.is_alive() is False for worker in workers):
        assert counter == 3, counter


@pytest.mark.long
def test_a_race_without_any_lock_is_found_between_two_lines() -> None:
    assert explore(counts_without_a_lock, range(100), modules=HERE).schedules == 100
    with pytest.raises(SimulationError, match=r"AssertionError: [12]\n"):
        explore(counts_without_a_lock, range(100), modules=HERE, fine=True, shrink=False)
    code = counts_without_a_lock.__code__
    assert "__scheduling_point__" not in code.co_names


def sleeps(sim: Simulation) -> None:
    began, wall = time.monotonic(), time.time()
    order: list[str] = []

    def later() -> None:
        time.sleep(3600)
        order.append("an hour")

    async def tasks() -> None:
        async with asyncio.timeout(7200):
            await asyncio.gather(asyncio.sleep(60), asyncio.to_thread(time.sleep, 1800))
        order.append("half an hour")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await asyncio.Event().wait()

    worker = sim.spawn(later)
    asyncio.run(tasks())
    worker.join()
    assert order == ["half an hour", "an hour"]
    assert 3600 <= time.monotonic() - began < 3601
    assert 3600 <= time.time() - wall < 3601


def test_hours_pass_in_milliseconds_and_in_order() -> None:
    used = time.process_time()
    explore(sleeps, range(50), modules=HERE, faults=False)
    assert time.process_time() - used < 20


def waits_on_everything(_: Simulation) -> None:
    handed: queue.Queue[int] = queue.Queue(maxsize=1)
    condition, ready, slots = threading.Condition(), threading.Event(), threading.Semaphore(2)
    local, again = threading.local(), threading.RLock()
    seen: list[int] = []

    def puts(number: int) -> None:
        local.number = number
        ready.wait()
        with slots, again, again:
            handed.put(local.number)

    def takes() -> None:
        for _ in range(3):
            one = handed.get()
            with condition:
                seen.append(one)
                condition.notify_all()

    workers = [threading.Thread(target=puts, args=(number,)) for number in range(3)]
    workers.append(threading.Thread(target=takes))
    for worker in workers:
        worker.start()
    assert not ready.wait(0.5)
    ready.set()
    with condition:
        assert condition.wait_for(lambda: len(seen) == 3, timeout=10)
        assert not condition.wait(0.01)
    for worker in workers:
        worker.join()
    assert sorted(seen) == [0, 1, 2]
    with pytest.raises(RuntimeError):
        threading.Lock().release()
    with pytest.raises(AttributeError, match="not simulated"):
        threading.Barrier(2)


LATE: list[bool] = []
"""Of each schedule, whether a wait was over before what it waited for."""


def waits_for_one_at_work(_: Simulation) -> None:
    ready, lock = threading.Event(), threading.Lock()

    def works() -> None:
        with lock:
            ready.set()

    worker = threading.Thread(target=works)
    worker.start()
    LATE.append(not ready.wait(10))
    worker.join()


def test_a_wait_may_time_out_though_another_thread_could_go_on() -> None:
    LATE.clear()
    explore(waits_for_one_at_work, range(500), modules=HERE)
    assert 0 < sum(LATE) < len(LATE) / 2
    LATE.clear()
    explore(waits_for_one_at_work, range(500), modules=HERE, faults=False)
    assert not any(LATE)


KILLED: list[int] = []
"""How far processes came that were killed at their work."""
TURNS = 200


def processes_that_write(sim: Simulation) -> None:
    """What a killed process has written stays, and it writes nothing more, whatever it catches."""
    written = [0, 0]

    def life(fs: FileSystem) -> None:
        def works(number: int) -> None:
            file = fs.create(f"/{number}")
            for turn in range(1, TURNS):
                with contextlib.suppress(BaseException):
                    file.pwrite(b"%3d" % turn, 0)
                    written[number] = turn

        def content(number: int) -> int:
            name = f"/{number}"
            return int(fs.open(name).pread(3, 0) or 0) if fs.exists(name) else 0

        processes = [sim.process(works, number) for number in range(len(written))]
        for number, one in enumerate(processes):
            one.join()
            found = content(number)
            assert found in (written[number], written[number] + 1)
            if 0 < found < TURNS - 1:
                KILLED.append(found)
            for other in processes:
                other.join()
            assert content(number) == found

    sim.until_crash(life)


def test_a_killed_process_runs_no_step_more_and_leaves_what_it_has_written() -> None:
    KILLED.clear()
    explore(processes_that_write, range(200), modules=HERE, faults=False)
    assert len(KILLED) > 10


def test_every_primitive_keeps_its_promise_in_every_order() -> None:
    found = explore(waits_on_everything, range(300), modules=HERE, faults=False)
    assert len(found.interleavings) > 200


async def test_the_real_modules_are_back_after_a_run_that_failed() -> None:
    with pytest.raises(SimulationError):
        simulate(spins, 0, modules=HERE, steps_max=100)
    assert threading is scheduling.threading is sys.modules["threading"]
    assert queue is sys.modules["queue"]
    assert type(threading.Lock()).__module__ == "_thread"
    assert await asyncio.sleep(0, "done") == "done"


def unsynced(sim: Simulation) -> None:
    acknowledged = []

    def life(fs: FileSystem) -> None:
        file = fs.create("/data")
        fs.sync_dir("/")
        file.pwrite(b"x" * 600, 0)
        acknowledged.append(600)

    sim.until_crash(life)
    if acknowledged:
        assert sim.disk.contents()["/data"] == b"x" * 600, "lost"


@pytest.mark.long
def test_a_write_that_was_not_synced_is_lost_by_some_power_cut() -> None:
    with pytest.raises(SimulationError, match="lost") as found:
        explore(unsynced, range(300), faults=False)
    assert list(found.value.decisions) == ["life-1.disk"]


def test_the_command_line_runs_seeds_and_replays_one(capsys: pytest.CaptureFixture[str]) -> None:
    from tallystick.testing.simulate.__main__ import main

    name = f"{group.__module__}:group"
    assert main([name, "--schedules", "20"]) == 0
    assert "20 schedules" in capsys.readouterr().out
    assert main([name, "--seed", "7"]) == 0
    assert "seed 7:" in capsys.readouterr().out
    assert main([f"{__name__}:unsynced", "--schedules", "300", "--no-faults"]) == 1
    told = capsys.readouterr().out
    command = told.rpartition("tallystick.testing.simulate ")[2]
    assert "--no-faults" in command
    words = command.replace('"', "").split(" ", 4)
    assert main([*words[:4], words[4].split(" ", 1)[0], words[4].split(" ", 1)[1].strip()]) == 1
