"""What operators do with a running cluster, over the Kafka protocol: the command line and the page do the same things.

``cluster`` asks it; ``topics``, ``reading``, ``groups``, ``queues``, ``dead_letters`` and ``queries`` are what there
is to look at and to change; ``positions`` are places in a log as people write them.
"""

from __future__ import annotations
