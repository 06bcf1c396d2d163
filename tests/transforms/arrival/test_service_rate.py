"""How many rows a join serves per second, given or measured."""

import pytest

from slackwater.plugins.shedding.queue_options import Queue
from slackwater.transforms.arrival.service_rate import ServiceRate

MILLIS = 10**6
"""A tick of a millisecond, in nanoseconds."""


def test_a_rate_that_is_given_is_kept_exactly_whatever_is_measured():
    service = ServiceRate(Queue(rows=9, service_rate=2.5), MILLIS)
    for _ in range(3):
        service.serve(1000)
        service.measure(1.0)
    assert service.rate == 2.5
    done, needed = service.parts()
    assert needed / done == 400, "ticks for a row"


def test_nobody_knows_a_rate_before_it_was_measured_and_the_first_time_does_not_count():
    service = ServiceRate(Queue(rows=9), MILLIS)
    assert service.rate is None
    service.serve(10)
    service.measure(5.0)
    assert service.rate is None
    service.serve(1000)
    service.measure(2.0)
    assert service.rate == pytest.approx(0.8 * 500)


def test_what_was_measured_long_ago_counts_less_and_goes_through_a_snapshot():
    service = ServiceRate(Queue(rows=9), MILLIS)
    service.measure(1.0)
    service.serve(1000)
    service.measure(5.0)
    service.serve(2000)
    service.measure(5.0)
    assert service.rate == pytest.approx(0.8 * (500 + 2000) / (2.5 + 5))
    assert ServiceRate(Queue(rows=9), MILLIS, service.snapshot()).rate == service.rate


def test_nothing_is_learnt_where_nothing_was_served():
    service = ServiceRate(Queue(rows=9), MILLIS)
    service.measure(1.0)
    service.measure(1.0)
    assert service.rate is None
