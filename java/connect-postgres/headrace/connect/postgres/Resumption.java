package headrace.connect.postgres;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Where a task that was ended goes on: at the start of the transaction that its stored position is in, of which it
 * leaves out what is written.
 *
 * <p>Debezium looks for the stored position among the changes that the database sends again, and counts those with the
 * same place in the log (rows that were copied or inserted in one go). Where such rows are the first of their
 * transaction, it counts the messages that begin the transaction and describe the table as rows, and one or two rows
 * come twice. So it is not told that position, but where the last transaction ended, from where the database sends
 * whole transactions; then it looks for nothing. Within a transaction, place and count only grow: what is not behind
 * the stored ones is written already.
 *
 * <p>Heartbeats that come before that are written with the stored position, for theirs is an earlier one: that it goes
 * on through a large transaction is seen by them alone.
 */
final class Resumption {
    private static final String PLACE = "lsn", PROCESSED = "lsn_proc", COMMITTED = "lsn_commit";
    private static final String COUNT = "lsn_events_processed", TRANSACTION = "txId", KIND = "messageType";

    private static final String COMMIT = "COMMIT";

    private final Map<String, Object> stored;
    private boolean isBehind;

    /** For what Connect has stored. */
    Resumption(Map<String, Object> stored) {
        this.stored = stored;
        isBehind = !isInTheLog() || COMMIT.equals(stored.get(KIND));
    }

    /** Whether it is a place in the log, and not in or right after a snapshot. */
    private boolean isInTheLog() {
        return stored != null && !stored.containsKey("snapshot") && stored.containsKey(KIND)
                && (stored.containsKey(COMMITTED) || stored.containsKey(PROCESSED));
    }

    /** The position that Debezium is to be told. */
    Map<String, Object> position() {
        if (!isInTheLog()) {
            return stored;
        }
        Map<String, Object> told = new HashMap<>(stored);
        Object end = stored.getOrDefault(COMMITTED, stored.get(PROCESSED));
        told.put(PLACE, end);
        told.put(COMMITTED, end);
        told.put(KIND, COMMIT);
        told.keySet().removeAll(List.of(PROCESSED, COUNT, TRANSACTION));
        return told;
    }

    /** What is stored. */
    Map<String, Object> stored() {
        return stored;
    }

    /** Those of the records that are to be written, in their order; heartbeats are those of this topic. */
    List<SourceRecord> unwritten(List<SourceRecord> records, String heartbeats) {
        if (isBehind) {
            return records;
        }
        List<SourceRecord> found = new ArrayList<>();
        for (SourceRecord record : records) {
            if (!isWritten(record.sourceOffset())) {
                found.add(record);
            } else if (record.topic().equals(heartbeats)) {
                found.add(new SourceRecord(
                        record.sourcePartition(), stored, record.topic(), record.kafkaPartition(),
                        record.keySchema(), record.key(), record.valueSchema(), record.value()));
            }
        }
        return found;
    }

    /** Whether a record with this position is written already. Records are asked after in their order. */
    boolean isWritten(Map<String, ?> position) {
        if (!isBehind) {
            isBehind = position == null || isBehind(position);
        }
        return !isBehind;
    }

    private boolean isBehind(Map<String, ?> position) {
        Object transaction = position.get(TRANSACTION);
        if (transaction == null) {
            return false;
        }
        if (number(transaction) != number(stored.get(TRANSACTION)) || COMMIT.equals(position.get(KIND))) {
            return true;
        }
        int places = Long.compare(number(position.get(PLACE)), number(stored.get(PLACE)));
        return places > 0 || places == 0 && number(position.get(COUNT)) > number(stored.get(COUNT));
    }

    private static long number(Object value) {
        return value == null ? 0 : ((Number) value).longValue();
    }
}
