"""Apache Beam adapters: PTransforms with stateful DoFns and timers.

    import apache_beam as beam
    from slackwater.transforms.beam import SlidingWindowJoin

    with beam.Pipeline() as p:
        orders = p | "Orders" >> beam.Create([beam.Row(id=1, ts=1000)])
        clicks = p | "Clicks" >> beam.Create([beam.Row(order_id=1, ts=1500)])
        joined = {"orders": orders, "clicks": clicks} | SlidingWindowJoin(
            time="ts", window="5s", where="orders.id = clicks.order_id")
        joined.main | "Show" >> beam.Map(print)
        joined.late | "Show late" >> beam.Map(print)

Bounded inputs are replayed in order of arrival. Where an input is unbounded, rows are processed as they arrive,
in the order in which they reach the stateful step; ``idle_timeout`` says when to go on without an input that is
silent. When the watermark reaches the end of a Beam window, everything held in it is released. Rows of every
output have their event time, the column ``ts``, as Beam's timestamp, so that windows and combines behind a
transform go by it; ``docs/beam.md`` says what that means where a watermark has passed it.

In Beam YAML, the file that ``slackwater providers`` names is included under ``providers``, and a transform called
``joined`` is read as ``joined``, ``joined.late`` and so on. ``docs/transforms.md`` describes them all.
"""

from slackwater.transforms.beam.arrow import ArrowBatchCoder
from slackwater.transforms.beam.choose_values import ChooseValues
from slackwater.transforms.beam.group_close import GroupClose
from slackwater.transforms.beam.join import ArrowJoin
from slackwater.transforms.beam.outputs import JoinOutputs
from slackwater.transforms.beam.punctuate import Punctuate
from slackwater.transforms.beam.reorder import Reorder
from slackwater.transforms.beam.shed import Shed
from slackwater.transforms.beam.sliding_window_aggregate import SlidingWindowAggregate
from slackwater.transforms.beam.sliding_window_join import SlidingWindowJoin

__all__ = [
    "ArrowBatchCoder",
    "ArrowJoin",
    "ChooseValues",
    "GroupClose",
    "JoinOutputs",
    "Punctuate",
    "Reorder",
    "Shed",
    "SlidingWindowAggregate",
    "SlidingWindowJoin",
]
