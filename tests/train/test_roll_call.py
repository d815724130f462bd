"""Which of several processes is missing, and which of them tells the user."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from torch.distributed import HashStore

from train import roll_call
from train.roll_call import RollCall


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(roll_call, "PATIENCE", 0.3)


@pytest.fixture
def calls():
    store = HashStore()
    return [RollCall(store, rank, 3) for rank in range(3)]


def end(rank: int, calls: list[RollCall]) -> None:
    """Let a rank be a process that is gone."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    host = calls[0].store.get(f"process/{rank}").decode().split()[0]
    calls[0].store.set(f"process/{rank}", f"{host} {process.pid}")


def test_a_process_that_ended_is_named(calls):
    end(1, calls)
    calls[2].store.set("noticed/2", "")
    assert calls[0].missing() == "rank 1 of 3 was lost"


def test_several_are_named_without_waiting_for_them(calls):
    end(1, calls)
    end(2, calls)
    assert calls[0].missing() == "ranks 1, 2 of 3 were lost"


def test_one_on_another_machine_is_missed_when_it_says_nothing(calls):
    calls[0].store.set("process/2", f"elsewhere {os.getpid()}")
    calls[0].store.set("noticed/1", "")
    assert calls[0].missing() == "rank 2 of 3 was lost"


def test_nobody_is_accused_while_all_run(calls):
    assert calls[0].missing() == "a message to the other 2 of 3 processes failed"


def test_the_lowest_rank_tells_and_the_others_keep_still(calls):
    assert calls[0].tells("ConfigError")
    assert not calls[1].tells("ConfigError")
    assert not calls[2].tells("ConfigError")


def test_another_mistake_is_told_too(calls):
    assert calls[0].tells("RankLostError")
    assert calls[1].tells("ConfigError")


def test_without_the_lowest_the_next_tells(calls):
    end(0, calls)
    assert calls[1].tells("RankLostError")
    assert not calls[2].tells("RankLostError")
