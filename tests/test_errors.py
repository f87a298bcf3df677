"""Errors: each exit status is the one the README promises, and codes are told apart."""

from __future__ import annotations

import pytest

import agent_solo
from agent_solo import CODES, RETRY, StopRun, TellModel

STATUSES = {
    "Usage": 2,
    "MissingPart": 3,
    "ModelUnusable": 4,
    "PersonNeeded": 5,
    "Interrupted": 130,
    "GaveUp": 1,
    "Stuck": 1,
    "LimitReached": 1,
    "Invalid": 1,
}


@pytest.mark.parametrize(("name", "status"), STATUSES.items())
def test_exit_statuses_are_stable(name: str, status: int) -> None:
    assert getattr(agent_solo, name).status == status


def test_every_reason_to_stop_has_a_status_in_this_table() -> None:
    assert {kind.__name__ for kind in StopRun.__subclasses__()} == set(STATUSES)


def test_what_the_model_is_told_was_not_delivered_unless_it_says_so() -> None:
    told = TellModel("STALE_REF", "it is gone", "Look again.", candidates=2)
    assert (told.code in CODES, told.delivery in RETRY, told.details) == (True, True, {"candidates": 2})
    assert told.delivery == "not_delivered"
