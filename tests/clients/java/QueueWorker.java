import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.*;

/** A share group's life with the Java clients: every way to settle a record, and what operators can do. Says what it sees. */
public class QueueWorker {
    static String bootstrap, topic, group;
    static final TreeMap<String, String> seen = new TreeMap<>();

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        group = arguments[2];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
            AlterConfigOp earliest =
                new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
            send(0, 10);
            explicitly();
            send(10, 15);
            implicitly();
            operate(admin);
        }
    }

    static void say(String what, Object value) {
        System.out.println(what + "=" + value);
    }

    static void send(int from, int to) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", 100);
        try (Producer<String, String> producer =
                 new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int number = from; number < to; number++) producer.send(new ProducerRecord<>(topic, 0, null, "r" + number));
            producer.flush();
        }
    }

    static KafkaShareConsumer<String, String> consumer(String mode) {
        Map<String, Object> settings =
            Map.of("bootstrap.servers", bootstrap, "group.id", group, "share.acknowledgement.mode", mode);
        KafkaShareConsumer<String, String> made =
            new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        made.subscribe(List.of(topic));
        return made;
    }

    /** Accept 0 to 3 and 8 to 9, release 4 and 5 once, reject 6, renew 7 and then accept it. */
    static void explicitly() {
        try (KafkaShareConsumer<String, String> consumer = consumer("explicit")) {
            Set<String> settled = new TreeSet<>();
            long deadline = System.currentTimeMillis() + 60_000;
            while (settled.size() < 10 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    int number = Integer.parseInt(record.value().substring(1));
                    boolean first = !seen.containsKey(record.value());
                    seen.merge(record.value(), "" + record.deliveryCount().get(), (old, now) -> old + "," + now);
                    AcknowledgeType kind = AcknowledgeType.ACCEPT;
                    if (first && (number == 4 || number == 5)) kind = AcknowledgeType.RELEASE;
                    if (number == 6) kind = AcknowledgeType.REJECT;
                    if (first && number == 7) kind = AcknowledgeType.RENEW;
                    consumer.acknowledge(record, kind);
                    if (kind == AcknowledgeType.ACCEPT || kind == AcknowledgeType.REJECT) settled.add(record.value());
                }
                consumer.commitSync().values().forEach(error -> error.ifPresent(e -> say("error", e)));
            }
            say("settled", settled.size());
            say("seen", seen);
            say("lock", consumer.acquisitionLockTimeoutMs().orElse(-1));
        }
    }

    static int count(KafkaShareConsumer<String, String> consumer, int wanted, long patience) {
        int count = 0;
        long deadline = System.currentTimeMillis() + patience;
        while (count < wanted && System.currentTimeMillis() < deadline) count += consumer.poll(Duration.ofMillis(500)).count();
        return count;
    }

    static void implicitly() {
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit")) {
            say("implicit", count(consumer, 5, 60_000));
            consumer.poll(Duration.ofMillis(100));
        }
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit")) {
            say("again", count(consumer, 1, 2_000));
        }
    }

    static void operate(Admin admin) throws Exception {
        TopicPartition place = new TopicPartition(topic, 0);
        Map<String, ListShareGroupOffsetsSpec> all = Map.of(group, new ListShareGroupOffsetsSpec());
        say("offset", offset(admin.listShareGroupOffsets(all).partitionsToOffsetInfo(group).get().get(place)));
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit")) {
            consumer.poll(Duration.ofMillis(1000));
            ShareGroupDescription described = admin.describeShareGroups(List.of(group)).all().get().get(group);
            say("members", described.members().size() + " " + described.groupState());
            try {
                admin.alterShareGroupOffsets(group, Map.of(place, 2L)).all().get();
            } catch (Exception refused) {
                say("busy", refused.getCause().getClass().getSimpleName());
            }
        }
        say("listed", admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
            .filter(one -> one.groupId().equals(group)).map(one -> one.type().get() + " " + one.groupState().get()).toList());
        admin.alterShareGroupOffsets(group, Map.of(place, 5L)).all().get();
        say("moved", offset(admin.listShareGroupOffsets(all).partitionsToOffsetInfo(group).get().get(place)));
        try (KafkaShareConsumer<String, String> consumer = consumer("implicit")) {
            say("from five", count(consumer, 10, 60_000));
        }
        admin.deleteShareGroupOffsets(group, Set.of(topic)).all().get();
        say("deleted", admin.listShareGroupOffsets(all).partitionsToOffsetInfo(group).get().size());
        admin.deleteShareGroups(List.of(group)).all().get();
        say("left", admin.listGroups(ListGroupsOptions.forShareGroups()).all().get().stream()
            .filter(one -> one.groupId().equals(group)).count());
    }

    static String offset(SharePartitionOffsetInfo info) {
        return info == null ? "none" : info.startOffset() + " lag " + info.lag().orElse(-1L);
    }
}
