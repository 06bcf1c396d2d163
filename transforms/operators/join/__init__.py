"""The join of a shard: ``operator`` shows the path of its rows, ``stage`` joins them within their memory."""

from slackwater.transforms.arrival.intake import Chunk
from slackwater.transforms.operators.join.operator import Operator
from slackwater.transforms.output.outputs import Outputs

__all__ = ["Chunk", "Operator", "Outputs"]
