import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/**
 * Two consumers of a group are replaced one by one: classic by consumer protocol (with a regular expression), and back.
 * Records are sent all the time and none may be missed. Arguments: bootstrap servers, topic, partitions. Prints a line
 * when a pair has settled, and at the end how many of the records that were sent were missed.
 */
public class RollingMigration {
    static final Set<String> seen = ConcurrentHashMap.newKeySet();
    static String bootstrap, topic;
    static int partitions;

    /** A consumer in a thread of its own. */
    static class Reader extends Thread {
        final String protocol;
        volatile Set<TopicPartition> assignment = Set.of();
        volatile boolean stopping = false;
        volatile Throwable failure = null;

        Reader(String protocol) {
            this.protocol = protocol;
            start();
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings(protocol))) {
                if (protocol.equals("classic")) {
                    consumer.subscribe(List.of(topic));
                } else {
                    consumer.subscribe(new SubscriptionPattern("\\Q" + topic + "\\E"));
                }
                while (!stopping) {
                    for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                        seen.add(record.value());
                    }
                    assignment = new HashSet<>(consumer.assignment());
                    try {
                        consumer.commitSync();
                    } catch (RebalanceInProgressException | CommitFailedException rebalancing) {
                        // What was not committed is read again by whoever gets the partition.
                    }
                }
            } catch (Throwable error) {
                failure = error;
            }
        }

        void end() throws InterruptedException {
            stopping = true;
            join();
            check();
        }

        void check() {
            if (failure != null) {
                throw new IllegalStateException(protocol, failure);
            }
        }
    }

    static Properties settings(String protocol) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", topic + "-group");
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (protocol.equals("classic")) {
            settings.put("heartbeat.interval.ms", "200");
            settings.put("session.timeout.ms", "6000");
        }
        settings.put("key.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        settings.put("value.deserializer", "org.apache.kafka.common.serialization.StringDeserializer");
        return settings;
    }

    /** Waits until these readers, and nobody else, have all partitions, each a fair share. */
    static void settle(String name, Reader... readers) throws InterruptedException {
        long deadline = System.currentTimeMillis() + 60_000;
        while (true) {
            List<TopicPartition> all = new ArrayList<>();
            int least = partitions;
            for (Reader reader : readers) {
                reader.check();
                all.addAll(reader.assignment);
                least = Math.min(least, reader.assignment.size());
            }
            if (all.size() == partitions && new HashSet<>(all).size() == partitions && least == partitions / readers.length) {
                System.out.println("settled: " + name);
                return;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException(name + " did not settle: " + all);
            }
            Thread.sleep(50);
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        Set<String> sent = ConcurrentHashMap.newKeySet();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings)) {
            Thread sender = new Thread(() -> {
                for (int number = 0; !Thread.currentThread().isInterrupted(); number++) {
                    String value = Integer.toString(number);
                    producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (at, error) -> {
                        if (error == null) {
                            sent.add(value);
                        }
                    });
                    try {
                        Thread.sleep(1);
                    } catch (InterruptedException stop) {
                        return;
                    }
                }
            });
            sender.start();
            Reader first = new Reader("classic"), second = new Reader("classic");
            settle("classic", first, second);
            for (String protocol : new String[] {"consumer", "classic"}) {
                Reader replacement = new Reader(protocol);
                first.end();
                settle("mixed", replacement, second);
                first = replacement;
                replacement = new Reader(protocol);
                second.end();
                settle(protocol, first, replacement);
                second = replacement;
            }
            sender.interrupt();
            sender.join();
            producer.flush();
            long deadline = System.currentTimeMillis() + 30_000;
            while (!seen.containsAll(sent) && System.currentTimeMillis() < deadline) {
                Thread.sleep(50);
            }
            first.end();
            second.end();
        }
        Set<String> missed = new HashSet<>(sent);
        missed.removeAll(seen);
        System.out.println("missed " + missed.size() + " of " + (sent.isEmpty() ? "none" : "many"));
        System.exit(0);
    }
}
