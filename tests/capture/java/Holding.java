package headrace.connect.postgres;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.source.SourceRecord;

/** However records are spread over polls: those of one change are written together, all of them and in their order. */
public final class Holding {
    private static final Schema CHANGE =
            SchemaBuilder.struct().name("prefix.Envelope").field("op", Schema.STRING_SCHEMA).build();
    private static final Schema BEAT =
            SchemaBuilder.struct().name("beat").field("ts_ms", Schema.OPTIONAL_INT64_SCHEMA).build();

    private Holding() {}

    public static void main(String[] arguments) {
        List<SourceRecord> all = List.of(
                row("1", "c"), moved(deletion("2")), moved(tombstone("2")), row("3", "c"), deletion("4"), tombstone("4"),
                row("5", "r"), moved(deletion("6")), moved(tombstone("6")), row("7", "c"), moved(deletion("7")),
                moved(tombstone("7")), row("8", "c"), deletion("8"), tombstone("8"), beat("9"));
        List<Integer> ends = List.of(0, 1, 4, 6, 7, 10, 13, 15, 16);
        for (int spread = 0; spread < 1 << all.size() - 1; spread++) {
            inPolls(all, spread, ends);
        }
        whatFollowsShowsThatAChangeIsComplete();
        whatWasHeldIsForgotten();
        System.out.println("held");
    }

    /** A bit of the spread that is set: there is a poll between this record and the next. */
    private static void inPolls(List<SourceRecord> all, int spread, List<Integer> ends) {
        WholeChanges whole = new WholeChanges();
        List<SourceRecord> poll = new ArrayList<>(), written = new ArrayList<>();
        for (int number = 0; number < all.size(); number++) {
            poll.add(all.get(number));
            if (number == all.size() - 1 || (spread >> number & 1) != 0) {
                written.addAll(whole.of(poll));
                same(true, ends.contains(written.size()));
                same(true, written.size() >= number - 1);
                same(List.of(), whole.of(new ArrayList<>()));
                poll = new ArrayList<>();
            }
        }
        same(keys(all), keys(written));
    }

    private static void whatFollowsShowsThatAChangeIsComplete() {
        WholeChanges whole = new WholeChanges();
        same(List.of(), keys(whole.of(List.of(deletion("1")))));
        same(List.of("1", "2"), keys(whole.of(List.of(beat("2")))));
        same(List.of("3"), keys(whole.of(List.of(row("3", "u"), moved(tombstone("4"))))));
        same(List.of("4", "5"), keys(whole.of(List.of(beat("5")))));
    }

    private static void whatWasHeldIsForgotten() {
        WholeChanges whole = new WholeChanges();
        same(List.of("1"), keys(whole.of(List.of(row("1", "c"), deletion("2")))));
        whole.forget();
        same(List.of("2", "2"), keys(whole.of(List.of(deletion("2"), tombstone("2")))));
    }

    private static List<Object> keys(List<SourceRecord> records) {
        return records.stream().map(SourceRecord::key).collect(Collectors.toList());
    }

    private static SourceRecord row(String key, String operation) {
        return record(key, CHANGE, new Struct(CHANGE).put("op", operation));
    }

    private static SourceRecord deletion(String key) {
        return row(key, "d");
    }

    private static SourceRecord tombstone(String key) {
        return record(key, null, null);
    }

    private static SourceRecord beat(String key) {
        return record(key, BEAT, new Struct(BEAT));
    }

    private static SourceRecord moved(SourceRecord record) {
        record.headers().addString("__debezium.newkey", "another");
        return record;
    }

    private static SourceRecord record(String key, Schema schema, Object value) {
        return new SourceRecord(Map.of(), Map.of("lsn", 1L), "t", null, Schema.STRING_SCHEMA, key, schema, value);
    }

    private static void same(Object wanted, Object found) {
        if (!wanted.equals(found)) {
            throw new AssertionError("not " + wanted + " but " + found);
        }
    }
}
