import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;

/**
 * Copies a topic in transactions, offsets included, aborting every third one and doing it again; then shows that a
 * second producer of the same id fences the first. Arguments: bootstrap servers, input, output, how many records.
 */
public class TransactionalCopier {
    public static void main(String[] arguments) {
        String bootstrap = arguments[0], input = arguments[1], output = arguments[2];
        int wanted = Integer.parseInt(arguments[3]);
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap, output + "-group");
                KafkaProducer<String, String> producer = producer(bootstrap, output + "-id")) {
            producer.initTransactions();
            consumer.subscribe(List.of(input));
            int copied = 0, transactions = 0;
            while (copied < wanted) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(output, record.key(), record.value()));
                    offsets.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (++transactions % 3 == 0) {
                    producer.abortTransaction();
                    Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
                    for (TopicPartition partition : consumer.assignment()) {
                        OffsetAndMetadata at = committed.get(partition);
                        consumer.seek(partition, at == null ? 0 : at.offset());
                    }
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
            System.out.println("copied " + copied + " in " + transactions);
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(output, "zombie"));
            producer.flush();
            try (KafkaProducer<String, String> successor = producer(bootstrap, output + "-id")) {
                successor.initTransactions();
                try {
                    producer.commitTransaction();
                    System.out.println("not fenced");
                } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                    System.out.println("fenced");
                }
            }
        }
    }

    private static KafkaConsumer<String, String> consumer(String bootstrap, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "20");
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return new KafkaConsumer<>(settings);
    }

    private static KafkaProducer<String, String> producer(String bootstrap, String id) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("transactional.id", id);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        return new KafkaProducer<>(settings);
    }
}
