package headrace.connect.postgres;

import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/**
 * Keeps the records of one change together, so that they are written in one transaction or not at all.
 *
 * <p>Debezium makes two records of a deletion, it and its tombstone, and three of a changed key: the old key's deletion,
 * its tombstone, and the new key's row. All carry one position, but they are queued one by one, and a poll may come
 * between them: a worker that is killed after what it took was written would never write the rest. So a change that is
 * incomplete at the end of a poll is held back, and goes before what is polled next.
 *
 * <p>One thread makes all records, and nothing else between those of one change: a change is incomplete if its record
 * is the last of all and is a deletion, or a tombstone with the header that announces a row with a new key. Whatever
 * follows it shows that it is complete, so nothing is held back for ever. What is held when a task ends was not
 * written, and the position that is stored is before it: it comes again.
 */
final class WholeChanges {
    private static final String NEW_KEY = "__debezium.newkey", OPERATION = "op", DELETION = "d";

    private List<SourceRecord> held = List.of();

    /** What is to be written, now that these were polled. */
    List<SourceRecord> of(List<SourceRecord> polled) {
        List<SourceRecord> records = polled;
        if (!held.isEmpty()) {
            records = new ArrayList<>(held);
            records.addAll(polled);
        }
        int end = endOfWhole(records);
        held = end == records.size() ? List.of() : List.copyOf(records.subList(end, records.size()));
        return end == records.size() ? records : new ArrayList<>(records.subList(0, end));
    }

    /** Nothing is held any more: the task ends. */
    void forget() {
        held = List.of();
    }

    private static int endOfWhole(List<SourceRecord> records) {
        int end = records.size();
        if (end == 0) {
            return end;
        }
        SourceRecord last = records.get(end - 1);
        if (isDeletion(last)) {
            return end - 1;
        }
        if (last.value() == null && last.headers().lastWithName(NEW_KEY) != null) {
            return end > 1 && isDeletion(records.get(end - 2)) ? end - 2 : end - 1;
        }
        return end;
    }

    private static boolean isDeletion(SourceRecord record) {
        return record.value() instanceof Struct change && change.schema().field(OPERATION) != null
                && DELETION.equals(change.get(OPERATION));
    }
}
