"""Nouns: the envelope every act answers in, and what adds up."""

from __future__ import annotations

import pytest

from agent_solo import RETRY, Box, Receipt, ScreenPoint, Spent


def test_a_box_holds_its_left_edge_and_not_its_right() -> None:
    box = Box(x=-10, y=0, width=10, height=5)
    inside = [box.contains(ScreenPoint(x=x, y=y)) for x, y in ((-10, 0), (-1, 4), (0, 0), (-1, 5), (-11, 0))]
    assert inside == [True, True, False, False, False]
    assert box.centre == ScreenPoint(x=-5, y=2)


@pytest.mark.parametrize(("delivery", "retry"), RETRY.items())
def test_whether_to_retry_follows_from_the_delivery_alone(delivery: str, retry: str) -> None:
    good = Receipt(command="click", ok=True, delivery=delivery, mechanism="physical").envelope()
    bad = Receipt(command="click", ok=False, delivery=delivery, code="TIMEOUT", message="late").envelope()
    assert (
        good["data"]["disposition"] == bad["error"]["disposition"] == {"delivery": delivery, "retry": retry}
    )


def test_only_what_certainly_never_happened_is_safe_to_retry() -> None:
    assert [delivery for delivery, retry in RETRY.items() if retry == "safe"] == ["not_delivered"]


def test_an_error_carries_no_data_and_a_success_no_error() -> None:
    good = Receipt(command="click", ok=True, delivery="delivered_unverified", data={"x": 1}).envelope()
    bad = Receipt(
        command="click", ok=False, delivery="not_delivered", code="TIMEOUT", hint="Wait.", data={"n": 2}
    )
    assert (set(good), good["data"]["x"]) == ({"version", "ok", "command", "data"}, 1)
    assert set(bad.envelope()) == {"version", "ok", "command", "error"}
    assert bad.envelope()["error"]["suggestion"] == "Wait."
    assert bad.envelope()["error"]["details"] == {"n": 2}


def test_spending_adds_up() -> None:
    total = Spent(tokens_in=1, tokens_out=2, cost=0.5, seconds=1, calls=1) + Spent(tokens_in=10, calls=1)
    assert total == Spent(tokens_in=11, tokens_out=2, cost=0.5, seconds=1, calls=2)
