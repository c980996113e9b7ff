import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Transactions of 1 MiB, one after the other. Arguments: bootstrap servers, topic, how many; a third more to warm up. */
public class TransactionalLoad {
    private static final int RECORDS = 1024;

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("transactional.id", arguments[1] + "-java");
        settings.put("linger.ms", "5");
        settings.put("batch.size", "131072");
        int transactions = Integer.parseInt(arguments[2]);
        byte[] value = new byte[1024];
        new java.util.Random(7).nextBytes(value);
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            int partitions = producer.partitionsFor(arguments[1]).size();
            long started = 0;
            for (int number = -transactions / 3; number < transactions; number++) {
                started = number == 0 ? System.nanoTime() : started;
                producer.beginTransaction();
                for (int record = 0; record < RECORDS; record++) {
                    producer.send(new ProducerRecord<>(arguments[1], record * partitions / RECORDS, null, value));
                }
                producer.commitTransaction();
            }
            System.out.println(transactions * 1e9 / (System.nanoTime() - started) + " transactions/s");
        }
    }
}
