package headrace.connect;

import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.storage.Converter;

/**
 * JSON without schemas, byte for byte as Connect's JsonConverter writes it, without the tree of nodes that this one
 * builds first. Of a change (Debezium's envelope) the bytes of {@code source} also become the header of that name.
 *
 * <p>How a schema is written is found out once: Debezium gives the same schema object with every row of a table. Values
 * without a schema, maps and Connect's own logical types are left to JsonConverter. One thread.
 */
public final class ChangeConverter implements Converter {
    static final String POSITION = "source";
    private static final int MOST_SHAPES = 2000;

    private final JsonConverter other = new JsonConverter();
    private final JsonBytes out = new JsonBytes();
    private final Map<Schema, Shape> shapes = new IdentityHashMap<>();

    @Override
    public void configure(Map<String, ?> configs, boolean isKey) {
        other.configure(configs, isKey);
    }

    @Override
    public ConfigDef config() {
        return other.config();
    }

    @Override
    public byte[] fromConnectData(String topic, Schema schema, Object value) {
        return fromConnectData(topic, null, schema, value);
    }

    @Override
    public byte[] fromConnectData(String topic, Headers headers, Schema schema, Object value) {
        if (schema == null || value == null) {
            return other.fromConnectData(topic, schema, value);
        }
        Shape shape = shapes.get(schema);
        if (shape == null) {
            shape = learned(schema);
        }
        out.clear();
        shape.write(value, out);
        if (headers != null && shape.positionEnd > 0) {
            headers.add(POSITION, Arrays.copyOfRange(out.bytes(), shape.positionStart, shape.positionEnd));
        }
        return out.copy();
    }

    @Override
    public SchemaAndValue toConnectData(String topic, byte[] value) {
        return other.toConnectData(topic, value);
    }

    private Shape learned(Schema schema) {
        if (shapes.size() >= MOST_SHAPES) {
            shapes.clear();
        }
        Shape shape = new Shape(schema, other);
        shapes.put(schema, shape);
        return shape;
    }
}
