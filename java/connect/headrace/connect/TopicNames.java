package headrace.connect;

import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.ConnectRecord;
import org.apache.kafka.connect.transforms.Transformation;

/**
 * Gives topics their names and leaves out those without one: {@code topics} has a line {@code from=to} for each that is
 * named, {@code from=} for each that is left out. Records of other topics pass as they are.
 */
public final class TopicNames<R extends ConnectRecord<R>> implements Transformation<R> {
    private static final String TOPICS = "topics";
    private static final ConfigDef CONFIG =
            new ConfigDef().define(TOPICS, ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "lines of from=to");

    private final Map<String, String> names = new HashMap<>();

    @Override
    public void configure(Map<String, ?> configs) {
        names.clear();
        for (String line : ((String) CONFIG.parse(configs).get(TOPICS)).split("\n")) {
            int at = line.lastIndexOf('=');
            names.put(line.substring(0, at), line.substring(at + 1));
        }
    }

    @Override
    public R apply(R record) {
        String name = names.get(record.topic());
        if (name == null) {
            return record;
        }
        if (name.isEmpty()) {
            return null;
        }
        return record.newRecord(
                name,
                record.kafkaPartition(),
                record.keySchema(),
                record.key(),
                record.valueSchema(),
                record.value(),
                record.timestamp(),
                record.headers());
    }

    @Override
    public ConfigDef config() {
        return CONFIG;
    }

    @Override
    public void close() {
        names.clear();
    }
}
