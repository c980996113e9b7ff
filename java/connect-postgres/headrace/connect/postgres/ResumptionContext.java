package headrace.connect.postgres;

import java.util.Collection;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.connect.source.SourceTaskContext;
import org.apache.kafka.connect.source.TransactionContext;
import org.apache.kafka.connect.storage.OffsetStorageReader;

/** What Connect gives a task, except that the stored position is the one where the task is to go on. */
final class ResumptionContext implements SourceTaskContext, OffsetStorageReader {
    private final SourceTaskContext connect;
    private volatile Resumption resumption = new Resumption(null);

    ResumptionContext(SourceTaskContext connect) {
        this.connect = connect;
    }

    /** Of the position that was asked after last. */
    Resumption resumption() {
        return resumption;
    }

    @Override
    public <T> Map<String, Object> offset(Map<String, T> partition) {
        resumption = new Resumption(connect.offsetStorageReader().offset(partition));
        return resumption.position();
    }

    @Override
    public <T> Map<Map<String, T>, Map<String, Object>> offsets(Collection<Map<String, T>> partitions) {
        Map<Map<String, T>, Map<String, Object>> found = new HashMap<>();
        partitions.forEach(partition -> found.put(partition, offset(partition)));
        return found;
    }

    @Override
    public OffsetStorageReader offsetStorageReader() {
        return this;
    }

    @Override
    public Map<String, String> configs() {
        return connect.configs();
    }

    @Override
    public TransactionContext transactionContext() {
        return connect.transactionContext();
    }

    @Override
    public PluginMetrics pluginMetrics() {
        return connect.pluginMetrics();
    }
}
