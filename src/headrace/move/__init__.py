"""Moving the topics of one log to another (the embedded log to Apache Kafka) so that every record keeps its offset.

Kafka gives out offsets itself, so what lies between records is made there too: where the source has a gap (markers,
aborted transactions, what compaction took), the target gets an aborted transaction of exactly that length. Then every
position that anybody holds, in a group, a checkpoint, a mark or a browser, means on the target what it meant before.
"""

from headrace.move.moving import Move, Told

__all__ = ["Move", "Told"]
