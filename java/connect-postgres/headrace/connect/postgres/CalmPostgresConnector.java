package headrace.connect.postgres;

import io.debezium.connector.postgresql.PostgresConnector;
import org.apache.kafka.connect.connector.Task;

/** Debezium's connector, with a task that confirms what was written once a second. */
public final class CalmPostgresConnector extends PostgresConnector {
    @Override
    public Class<? extends Task> taskClass() {
        return CalmPostgresTask.class;
    }
}
