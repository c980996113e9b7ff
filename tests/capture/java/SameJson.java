import headrace.connect.ChangeConverter;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeaders;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;

/** Our converter beside Connect's own: the same bytes for random schemas and values, and of changes the header. */
public final class SameJson {
    private static final Map<String, ?> SETTINGS =
            Map.of("schemas.enable", "false", "decimal.format", "NUMERIC", "replace.null.with.default", "false");
    private static final String[] TEXTS = {
        "", "plain", "\"quoted\\", "\u0000\u0001\u001f\b\t\n\f\r/\u007f", "\u0080\u07ff\u0800\uffff", "za\u017c\u00f3\u0142\u0107 \u65e5\u672c \ud83d\ude80 \ud83d", "x".repeat(5000)
    };
    private static final long[] NUMBERS = {
        0, 1, -1, 9, 10, 99, 100, 999_999_999L, 1_000_000_000_000_000_000L, Long.MAX_VALUE, Long.MIN_VALUE, -1_000_000_000_000_000_000L
    };
    private final Random random;
    private final JsonConverter theirs = new JsonConverter();
    private final ChangeConverter ours = new ChangeConverter();

    private SameJson(long seed) {
        random = new Random(seed);
        theirs.configure(SETTINGS, false);
        ours.configure(SETTINGS, false);
    }

    public static void main(String[] arguments) {
        long seed = Long.parseLong(arguments[0]);
        SameJson both = new SameJson(seed);
        for (int round = 0; round < 3000; round++) {
            Schema schema = both.schema(3);
            for (int again = 0; again < 3; again++) {
                both.compare(schema, both.value(schema));
            }
        }
        both.compare(null, null);
        both.compare(null, Map.of("schemaless", 1));
        both.compare(Schema.OPTIONAL_STRING_SCHEMA, null);
        both.compareChanges();
        both.compareRefusals();
        System.out.println("the same, seed " + seed);
    }

    private void compare(Schema schema, Object value) {
        ensure(theirs.fromConnectData("t", schema, value), ours.fromConnectData("t", new RecordHeaders(), schema, value));
    }

    private void compareChanges() {
        Schema source = SchemaBuilder.struct().name("s").field("lsn", Schema.OPTIONAL_INT64_SCHEMA).field("table", Schema.STRING_SCHEMA).build();
        Schema change = SchemaBuilder.struct().name("prefix.Envelope").field("after", Schema.OPTIONAL_STRING_SCHEMA)
                .field("source", source).field("op", Schema.STRING_SCHEMA).build();
        Schema other = SchemaBuilder.struct().name("payload").field("source", source).build();
        Struct position = new Struct(source).put("lsn", 7L).put("table", "a\"b");
        RecordHeaders headers = new RecordHeaders();
        Struct value = new Struct(change).put("source", position).put("op", "c");
        ensure(theirs.fromConnectData("t", change, value), ours.fromConnectData("t", headers, change, value));
        Header[] found = headers.toArray();
        if (found.length != 1 || !found[0].key().equals("source")) {
            throw new AssertionError("headers: " + headers);
        }
        ensure(theirs.fromConnectData("t", source, position), found[0].value());
        RecordHeaders none = new RecordHeaders();
        ours.fromConnectData("t", none, other, new Struct(other).put("source", position));
        if (none.toArray().length != 0) {
            throw new AssertionError("what is no change has no position: " + none);
        }
    }

    private void compareRefusals() {
        Schema required = SchemaBuilder.struct().field("n", Schema.INT32_SCHEMA).build();
        Struct lacking = new Struct(required);
        if (!isRefused(theirs, lacking) || !isRefused(ours, lacking)) {
            throw new AssertionError("a null where there may be none is not refused");
        }
    }

    private static boolean isRefused(Converter one, Struct lacking) {
        try {
            one.fromConnectData("t", lacking.schema(), lacking);
            return false;
        } catch (DataException refused) {
            return true;
        }
    }

    private static void ensure(byte[] expected, byte[] found) {
        if (!Arrays.equals(expected, found)) {
            throw new AssertionError("expected " + text(expected) + "\n   found " + text(found));
        }
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "nothing" : new String(bytes, StandardCharsets.UTF_8);
    }

    private Schema schema(int depth) {
        SchemaBuilder found;
        switch (random.nextInt(depth > 0 ? 14 : 11)) {
            case 0 -> found = SchemaBuilder.int8();
            case 1 -> found = SchemaBuilder.int16();
            case 2 -> found = SchemaBuilder.int32();
            case 3 -> found = SchemaBuilder.int64();
            case 4 -> found = SchemaBuilder.float32();
            case 5 -> found = SchemaBuilder.float64();
            case 6 -> found = SchemaBuilder.bool();
            case 7 -> found = SchemaBuilder.string();
            case 8 -> found = SchemaBuilder.bytes();
            case 9 -> found = Decimal.builder(2);
            case 10 -> found = Timestamp.builder();
            case 11 -> found = SchemaBuilder.array(schema(depth - 1));
            case 12 -> found = SchemaBuilder.map(Schema.STRING_SCHEMA, schema(depth - 1));
            default -> {
                found = SchemaBuilder.struct();
                int fields = random.nextInt(5);
                for (int i = 0; i < fields; i++) {
                    found.field(TEXTS[random.nextInt(6)] + i, schema(depth - 1));
                }
            }
        }
        if (random.nextBoolean()) {
            found.optional();
        }
        if (found.type() == Schema.Type.STRING && random.nextBoolean()) {
            found.defaultValue("a default");
        }
        return found.build();
    }

    private Object value(Schema schema) {
        if (schema.isOptional() && random.nextInt(4) == 0) {
            return null;
        }
        if (Decimal.LOGICAL_NAME.equals(schema.name())) {
            return BigDecimal.valueOf(random.nextLong(), 2);
        }
        if (Timestamp.LOGICAL_NAME.equals(schema.name())) {
            return new Date(random.nextInt());
        }
        long number = random.nextBoolean() ? random.nextLong() : NUMBERS[random.nextInt(NUMBERS.length)];
        return switch (schema.type()) {
            case INT8 -> (byte) number;
            case INT16 -> (short) number;
            case INT32 -> (int) number;
            case INT64 -> number;
            case FLOAT32 -> random.nextInt(4) == 0 ? Float.NaN : Float.intBitsToFloat((int) number);
            case FLOAT64 -> random.nextInt(4) == 0 ? Double.NEGATIVE_INFINITY : Double.longBitsToDouble(number);
            case BOOLEAN -> random.nextBoolean();
            case STRING -> TEXTS[random.nextInt(TEXTS.length)];
            case BYTES -> {
                byte[] bytes = new byte[random.nextInt(9)];
                random.nextBytes(bytes);
                yield random.nextBoolean() ? bytes : ByteBuffer.wrap(bytes);
            }
            case ARRAY -> {
                List<Object> found = new ArrayList<>();
                for (int i = random.nextInt(4); i > 0; i--) {
                    found.add(value(schema.valueSchema()));
                }
                yield found;
            }
            case MAP -> java.util.Collections.singletonMap("key", value(schema.valueSchema()));
            case STRUCT -> {
                Struct found = new Struct(schema);
                for (Field field : schema.fields()) {
                    found.put(field, value(field.schema()));
                }
                yield found;
            }
        };
    }
}
