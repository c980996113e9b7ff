package headrace.connect.postgres;

import io.debezium.config.CommonConnectorConfig;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresConnectorTask;
import io.debezium.connector.postgresql.PostgresOffsetContext;
import io.debezium.function.LogPositionValidator;
import io.debezium.pipeline.spi.OffsetContext;
import io.debezium.pipeline.spi.Partition;
import java.util.List;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTaskContext;

/**
 * Confirms what was written to the database, which then need not keep it: at most once a second, and without asking
 * where the stored position is.
 *
 * <p>Debezium confirms with the first poll after each of Connect's commits, which with exactly-once support is every
 * poll, and reads Connect's topic of positions to its end for that, in the thread that carries the rows; now and then
 * it waits half a second there. But with exactly-once support Connect tells of a record only when the transaction with
 * the record and its position is committed, so the position of such a record is stored: that one is confirmed. A record
 * that was left out is told of too, without a place in the log. Its position is not stored, and not confirmed.
 *
 * <p>What is put off is done by a later poll. Where a task goes on is said by {@link Resumption}; that no change is
 * written in part is seen to by {@link WholeChanges}.
 */
public final class CalmPostgresTask extends PostgresConnectorTask {
    private static final long BETWEEN_NS = 1_000_000_000L;

    private SourceRecord stored;
    private long confirmedAt = System.nanoTime() - BETWEEN_NS;
    private final WholeChanges whole = new WholeChanges();
    private ResumptionContext positions;
    private String heartbeats;

    @Override
    public void initialize(SourceTaskContext connect) {
        positions = new ResumptionContext(connect);
        heartbeats = connect.configs().get("topic.heartbeat.prefix") + "." + connect.configs().get("topic.prefix");
        super.initialize(positions);
    }

    /** Asks for the position that is stored, not for the earlier one where Debezium begins. */
    @Override
    public boolean isLogPositionAvailable(
            LogPositionValidator validator, Partition partition, OffsetContext position, CommonConnectorConfig config) {
        Resumption resumption = positions.resumption();
        OffsetContext stored = new PostgresOffsetContext.Loader((PostgresConnectorConfig) config).load(resumption.stored());
        return super.isLogPositionAvailable(validator, partition, stored, config);
    }

    @Override
    public List<SourceRecord> doPoll() throws InterruptedException {
        return whole.of(positions.resumption().unwritten(super.doPoll(), heartbeats));
    }

    @Override
    protected void doStop() {
        whole.forget();
        super.doStop();
    }

    @Override
    public void commitRecord(SourceRecord record, RecordMetadata place) throws InterruptedException {
        super.commitRecord(record, place);
        if (place != null && record.sourceOffset() != null) {
            stored = record;
        }
    }

    @Override
    public void performCommit() {
        long now = System.nanoTime();
        if (now - confirmedAt < BETWEEN_NS) {
            shouldPerformCommit.set(true);
            return;
        }
        if (stored != null && coordinator != null) {
            confirmedAt = now;
            coordinator.commitOffset(stored.sourcePartition(), stored.sourceOffset());
            stored = null;
        }
    }
}
