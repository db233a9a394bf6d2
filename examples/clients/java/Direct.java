import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Sends a record without an outbox, after the commit of the order. Needs kafka-clients. */
public class Direct {
    /** The topics of topics.yaml, and the remaining seconds from which on each is right. */
    static final NavigableMap<Long, String> BUCKETS = new TreeMap<>(Map.of(
        0L, "delay_10s", 54L, "delay_1m", 270L, "delay_5m", 1770L, "delay_30m", 7170L, "delay_2h", 43170L, "delay_12h"));

    static KafkaProducer<String, String> producer(String brokers) {
        Properties p = new Properties();
        p.putAll(Map.of("bootstrap.servers", brokers, "acks", "all", "enable.idempotence", "true",
            "delivery.timeout.ms", "5000", "request.timeout.ms", "4000", "max.block.ms", "5000"));
        return new KafkaProducer<>(p, new StringSerializer(), new StringSerializer());
    }

    static String topic(Instant due) {
        Duration left = Duration.between(Instant.now(), due);
        return left.isNegative() || left.isZero() ? "order-close" : BUCKETS.floorEntry(left.toSeconds()).getValue();
    }

    static ProducerRecord<String, String> record(Orders.Order o) {
        var record = new ProducerRecord<>(topic(o.due()), o.id(), Orders.payload(o));
        record.headers().add("due", Long.toString(o.due().toEpochMilli()).getBytes(StandardCharsets.US_ASCII));
        record.headers().add("v", "1".getBytes(StandardCharsets.US_ASCII));
        return record;
    }

    /** If it fails, send again: a duplicate is harmless. */
    static void send(KafkaProducer<String, String> producer, Orders.Order o) throws ExecutionException, InterruptedException {
        producer.send(record(o)).get();
    }
}
