"""Workers of Spark do not go through all that they have loaded after every task."""

import subprocess
import sys

SCRIPT = """
import gc
from slackwater.transforms.spark.workers import LEAST, spare_loaded

kept = [[] for _ in range(2 * LEAST)]
spare_loaded()
first = gc.get_freeze_count()
assert first > 2 * LEAST and len(gc.get_objects()) < LEAST
more = [[] for _ in range(LEAST // 2)]
spare_loaded()
assert gc.get_freeze_count() == first, "a few more are left to the collector"
class Node: pass
node = Node()
node.itself = node
del node
assert gc.collect() > 0
"""


def test_what_a_worker_has_loaded_is_set_aside_and_new_garbage_is_still_found() -> None:
    # A process of its own: what is set aside stays so.
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)
