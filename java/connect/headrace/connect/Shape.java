package headrace.connect;

import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.List;
import java.util.Set;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

/** How values of one schema are written; made once per schema. */
final class Shape {
    private static final Set<String> LOGICAL =
            Set.of(Date.LOGICAL_NAME, Decimal.LOGICAL_NAME, Time.LOGICAL_NAME, Timestamp.LOGICAL_NAME);
    private static final String ENVELOPE = ".Envelope";

    /** Where the position was written last; the end is 0 if the schema has none, or it was null. */
    int positionStart;
    int positionEnd;

    private final Schema schema;
    private final JsonConverter other;
    private final boolean isLeftToOther;
    private final boolean isOptional;
    private final int position;
    private final Field[] fields;
    private final byte[][] names;
    private final Shape[] shapes;

    Shape(Schema schema, JsonConverter other) {
        this.schema = schema;
        this.other = other;
        String name = schema.name();
        isLeftToOther = schema.type() == Schema.Type.MAP || (name != null && LOGICAL.contains(name));
        isOptional = schema.isOptional();
        boolean isStruct = schema.type() == Schema.Type.STRUCT;
        fields = isStruct ? schema.fields().toArray(new Field[0]) : new Field[0];
        names = new byte[fields.length][];
        for (int i = 0; i < fields.length; i++) {
            JsonBytes text = new JsonBytes();
            text.add(i == 0 ? '{' : ',');
            text.addText(fields[i].name());
            text.add(':');
            names[i] = text.copy();
        }
        shapes = shapesOfParts(schema, other);
        boolean isChange = isStruct && name != null && name.endsWith(ENVELOPE);
        Field found = isChange ? schema.field(ChangeConverter.POSITION) : null;
        position = found == null ? -1 : found.index();
    }

    private Shape[] shapesOfParts(Schema schema, JsonConverter other) {
        if (schema.type() == Schema.Type.ARRAY && !isLeftToOther) {
            return new Shape[] {new Shape(schema.valueSchema(), other)};
        }
        Shape[] found = new Shape[fields.length];
        for (int i = 0; i < fields.length; i++) {
            found[i] = new Shape(fields[i].schema(), other);
        }
        return found;
    }

    void write(Object value, JsonBytes out) {
        if (value == null) {
            writeNull(out);
        } else if (isLeftToOther) {
            out.addAll(other.fromConnectData(null, schema, value));
        } else {
            writeValue(value, out);
        }
    }

    private void writeNull(JsonBytes out) {
        if (!isOptional) {
            throw new DataException("a null where the schema allows none");
        }
        out.addAscii("null");
    }

    private void writeValue(Object value, JsonBytes out) {
        switch (schema.type()) {
            case INT8, INT16, INT32, INT64 -> out.addLong(((Number) value).longValue());
            case FLOAT32 -> addNumber(value.toString(), Float.isFinite((Float) value), out);
            case FLOAT64 -> addNumber(value.toString(), Double.isFinite((Double) value), out);
            case BOOLEAN -> out.addAscii((Boolean) value ? "true" : "false");
            case STRING -> out.addText(value.toString());
            case BYTES -> addBytes(value, out);
            case ARRAY -> addAll((List<?>) value, out);
            case STRUCT -> addFields((Struct) value, out);
            default -> throw new DataException("a value of type " + schema.type());
        }
    }

    private static void addNumber(String number, boolean isFinite, JsonBytes out) {
        if (isFinite) {
            out.addAscii(number);
        } else {
            out.addText(number);
        }
    }

    private static void addBytes(Object value, JsonBytes out) {
        byte[] bytes;
        if (value instanceof ByteBuffer buffer) {
            bytes = new byte[buffer.remaining()];
            buffer.duplicate().get(bytes);
        } else {
            bytes = (byte[]) value;
        }
        out.add('"');
        out.addAll(Base64.getEncoder().encode(bytes));
        out.add('"');
    }

    private void addAll(List<?> values, JsonBytes out) {
        out.add('[');
        boolean isFirst = true;
        for (Object value : values) {
            if (!isFirst) {
                out.add(',');
            }
            isFirst = false;
            shapes[0].write(value, out);
        }
        out.add(']');
    }

    private void addFields(Struct struct, JsonBytes out) {
        positionEnd = 0;
        if (fields.length == 0) {
            out.add('{');
        }
        for (int i = 0; i < fields.length; i++) {
            out.addAll(names[i]);
            int start = out.size();
            Object value = valueOf(struct, fields[i]);
            shapes[i].write(value, out);
            if (i == position && value != null) {
                positionStart = start;
                positionEnd = out.size();
            }
        }
        out.add('}');
    }

    /** A null in a column that has a default is a null. */
    private static Object valueOf(Struct struct, Field field) {
        return field.schema().defaultValue() == null ? struct.get(field) : struct.getWithoutDefault(field.name());
    }
}
