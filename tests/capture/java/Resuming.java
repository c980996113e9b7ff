package headrace.connect.postgres;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.connect.source.SourceRecord;

/** Which records a task that goes on writes, for every kind of position that can be stored. */
public final class Resuming {
    private static final String HEARTBEATS = "heartbeats";

    private Resuming() {}

    public static void main(String[] arguments) {
        noPosition();
        snapshots();
        inATransaction();
        interleavedTransactions();
        theFirstTransactionAfterTheSnapshot();
        atTheBeginningOfATransaction();
        messages();
        anIncrementalSnapshotGoesOn();
        atACommit();
        heartbeatsKeepTheStoredPosition();
        aRecordWithoutAPosition();
        System.out.println("resumed");
    }

    private static void noPosition() {
        Resumption resumption = new Resumption(null);
        same(null, resumption.position());
        same(List.of("a"), written(resumption, row("a", 7, 100, 1, 50)));
    }

    private static void snapshots() {
        Map<String, Object> stored = position(null, 100, null, 100L, null);
        stored.put("snapshot", "INITIAL");
        Resumption resumption = new Resumption(stored);
        same(stored, resumption.position());
        same(List.of("a"), written(resumption, row("a", 7, 90, 1, 50)));
    }

    /** Rows of one COPY share a place: the count tells which are written. Other places of the transaction go by it. */
    private static void inATransaction() {
        Resumption resumption = new Resumption(position(7L, 200, 2L, 100L, "INSERT"));
        Map<String, Object> told = resumption.position();
        same(100L, told.get("lsn"));
        same(100L, told.get("lsn_commit"));
        same("COMMIT", told.get("messageType"));
        for (String name : List.of("lsn_proc", "lsn_events_processed", "txId")) {
            same(false, told.containsKey(name));
        }
        same(
                List.of("c", "d"),
                written(resumption, row("0", 7, 150, 5, 100), row("a", 7, 200, 1, 100), row("b", 7, 200, 2, 100),
                        row("c", 7, 200, 3, 100), row("d", 7, 210, 1, 100)));
        same(List.of("e"), written(resumption, row("e", 8, 160, 1, 300)));
    }

    /** Transactions come in the order of their commits: what one wrote may be before what another has already written. */
    private static void interleavedTransactions() {
        Resumption resumption = new Resumption(position(7L, 200, 1L, 100L, "UPDATE"));
        same(
                List.of("b", "c"),
                written(resumption, row("a", 7, 200, 1, 100), row("b", 8, 120, 1, 300), row("c", 8, 220, 1, 300)));
    }

    /** No commit was seen yet, and none was before: what the transaction ends with is behind it, so it comes whole. */
    private static void theFirstTransactionAfterTheSnapshot() {
        Resumption resumption = new Resumption(position(7L, 200, 1L, null, "INSERT"));
        same(200L, resumption.position().get("lsn"));
        same(200L, resumption.position().get("lsn_commit"));
        same("COMMIT", resumption.position().get("messageType"));
        same(
                List.of("c"),
                written(resumption, row("a", 7, 190, 1, 200), row("b", 7, 200, 1, 200), row("c", 7, 201, 1, 200)));
    }

    /** A heartbeat came right then. The beginning has the place of the first row, and none is counted there yet. */
    private static void atTheBeginningOfATransaction() {
        Resumption resumption = new Resumption(position(7L, 200, null, 100L, "BEGIN"));
        same(100L, resumption.position().get("lsn"));
        same("COMMIT", resumption.position().get("messageType"));
        same(List.of("a", "b"), written(resumption, row("a", 7, 200, 1, 100), row("b", 7, 200, 2, 100)));
    }

    /** One of a transaction counts nothing, and has what was counted before. One of none is between transactions. */
    private static void messages() {
        Resumption within = new Resumption(position(7L, 220, 3L, 100L, "MESSAGE"));
        same(100L, within.position().get("lsn"));
        same(
                List.of("b", "c"),
                written(within, row("a", 7, 210, 3, 100), row("b", 7, 230, 1, 100), row("c", 7, 230, 2, 100)));
        Resumption between = new Resumption(position(null, 250, null, 250L, "MESSAGE"));
        same(250L, between.position().get("lsn"));
        same(List.of("a"), written(between, row("a", 8, 120, 1, 250)));
    }

    /** Debezium is told how far one is, as it was stored. */
    private static void anIncrementalSnapshotGoesOn() {
        Map<String, Object> stored = position(7L, 200, 2L, 100L, "INSERT");
        Map<String, Object> reached = Map.of(
                "incremental_snapshot_collections", "[{\"incremental_snapshot_collections_id\":\"public.t\"}]",
                "incremental_snapshot_primary_key", "aced", "incremental_snapshot_maximum_key", "aced0005");
        stored.putAll(reached);
        Resumption resumption = new Resumption(stored);
        same(100L, resumption.position().get("lsn"));
        reached.forEach((name, value) -> same(value, resumption.position().get(name)));
        SourceRecord early = record(HEARTBEATS, "early", position(null, 100, null, 100L, "COMMIT"));
        List<SourceRecord> found =
                resumption.unwritten(List.of(early, row("a", 7, 200, 2, 100), row("b", 7, 200, 3, 100)), HEARTBEATS);
        same(List.of("early", "b"), keys(found));
        same(stored, found.get(0).sourceOffset());
    }

    /** All of the transaction is written, and nothing of the next. */
    private static void atACommit() {
        Resumption resumption = new Resumption(position(7L, 300, 0L, 300L, "COMMIT"));
        same(300L, resumption.position().get("lsn"));
        same(List.of("a"), written(resumption, row("a", 8, 120, 1, 300)));
        Resumption inside = new Resumption(position(7L, 200, 1L, 100L, "INSERT"));
        SourceRecord end = record(HEARTBEATS, "end", position(7L, 300, 0L, 300L, "COMMIT"));
        same(List.of("end"), written(inside, row("a", 7, 200, 1, 100), end));
        same(300L, end.sourceOffset().get("lsn"));
    }

    private static void heartbeatsKeepTheStoredPosition() {
        Map<String, Object> stored = position(7L, 200, 2L, 100L, "INSERT");
        Resumption resumption = new Resumption(stored);
        SourceRecord early = record(HEARTBEATS, "early", position(null, 100, null, 100L, "COMMIT"));
        SourceRecord within = record(HEARTBEATS, "within", position(7L, 200, 1L, 100L, "INSERT"));
        SourceRecord after = record(HEARTBEATS, "after", position(7L, 200, 3L, 100L, "INSERT"));
        List<SourceRecord> found = resumption.unwritten(
                List.of(early, row("a", 7, 200, 1, 100), within, row("b", 7, 200, 2, 100), row("c", 7, 200, 3, 100), after),
                HEARTBEATS);
        same(List.of("early", "within", "c", "after"), keys(found));
        same(stored, found.get(0).sourceOffset());
        same(stored, found.get(1).sourceOffset());
        same(early.value(), found.get(0).value());
        same(after.sourceOffset(), found.get(3).sourceOffset());
    }

    /** Such a one is nothing that the database sends again. */
    private static void aRecordWithoutAPosition() {
        Resumption resumption = new Resumption(position(7L, 200, 2L, 100L, "INSERT"));
        same(List.of("a"), written(resumption, record("t", "a", null)));
    }

    private static List<Object> written(Resumption resumption, SourceRecord... records) {
        return keys(resumption.unwritten(new ArrayList<>(List.of(records)), HEARTBEATS));
    }

    private static List<Object> keys(List<SourceRecord> records) {
        return records.stream().map(SourceRecord::key).collect(Collectors.toList());
    }

    private static SourceRecord row(String key, long transaction, long place, long count, long committed) {
        return record("t", key, position(transaction, place, count, committed, "INSERT"));
    }

    private static SourceRecord record(String topic, String key, Map<String, Object> position) {
        return new SourceRecord(Map.of("server", "s"), position, topic, 0, null, key, null, "value of " + key);
    }

    private static Map<String, Object> position(Long transaction, long place, Long count, Long committed, String kind) {
        Map<String, Object> found = new HashMap<>(Map.of("lsn", place, "lsn_proc", place));
        found.put("txId", transaction);
        found.put("lsn_events_processed", count);
        found.put("lsn_commit", committed);
        found.put("messageType", kind);
        found.values().removeIf(value -> value == null);
        return found;
    }

    private static void same(Object wanted, Object found) {
        if (wanted == null ? found != null : !wanted.equals(found)) {
            throw new AssertionError("not " + wanted + " but " + found);
        }
    }
}
