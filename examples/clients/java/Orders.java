import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.sql.Connection;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.temporal.ChronoUnit;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ThreadLocalRandom;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** A checkout in Java: orders, their records, the service that closes orders, and a reader of events. Direct has Kafka. */
public class Orders {
    static final Map<String, Duration> DELAYS = Map.of("virtual", Duration.ofMinutes(5)); // as delays in topics.yaml
    static final Duration STANDARD = Duration.ofMinutes(30);

    record Order(String id, String category, Instant created, Instant due) {}

    record Line(String sku, int quantity) {}

    static final Set<Integer> CONFLICTS = Set.of(1020, 1205, 1213); // docs/wire.md, Lost conflicts

    /** Work in the transaction of the connection. */
    interface Work {
        void run(Connection db) throws SQLException;
    }

    static Order newOrder(String id, String category) {
        return newOrder(id, category, Instant.now().truncatedTo(ChronoUnit.MILLIS));
    }

    static Order newOrder(String id, String category, Instant created) {
        return new Order(id, category, created, created.plus(DELAYS.getOrDefault(category, STANDARD)));
    }

    /** The value of a record. With Jackson: times as text, by toString. */
    static String payload(Order o) {
        return "{\"order_id\":" + quote(o.id) + ",\"category\":" + quote(o.category)
            + ",\"created_at\":\"" + o.created + "\",\"due_at\":\"" + o.due + "\"}";
    }

    static String quote(String s) { // enough for ids and categories, which have no control characters
        return '"' + s.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }

    /** The time for a column without a zone. An Instant would be written in the zone of the JVM. */
    static LocalDateTime utc(Instant t) {
        return LocalDateTime.ofInstant(t, ZoneOffset.UTC);
    }

    /** Runs work in a transaction, and again if another transaction, such as a close, wins a conflict. db has no auto-commit. */
    static void inTransaction(Connection db, Work work) throws SQLException {
        for (int attempt = 0;; attempt++) {
            try {
                work.run(db);
                db.commit();
                return;
            } catch (SQLException | RuntimeException e) {
                db.rollback();
                if (attempt == 4 || !(e instanceof SQLException lost) || !CONFLICTS.contains(lost.getErrorCode())) {
                    throw e;
                }
            }
            try {
                Thread.sleep(ThreadLocalRandom.current().nextLong(20L << attempt));
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new SQLException(e);
            }
        }
    }

    /** The clock that decides when an order is due. With the machine's clock, a wrong one would close orders too early. */
    static Instant databaseNow(Connection db) throws SQLException {
        try (var statement = db.createStatement();
                var rows = statement.executeQuery("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000")) {
            rows.next();
            return Instant.ofEpochMilli(rows.getLong(1));
        }
    }

    /** The order and its outbox row, in one transaction. This is the way to prefer. */
    static void insertOrder(Connection db, String id, String category, List<Line> lines) throws SQLException {
        inTransaction(db, c -> {
            Order o = newOrder(id, category, databaseNow(db));
            update(db, "INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, ?, 0, ?, ?, 1)",
                o.id, o.category, utc(o.created), utc(o.due));
            int number = 0;
            for (Line line : lines.stream().sorted((a, b) -> a.sku.compareTo(b.sku)).toList()) {
                update(db, "INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (?, ?, ?, ?)",
                    o.id, ++number, line.sku, line.quantity);
                if (update(db, "UPDATE stock SET available = available - ?, reserved = reserved + ? WHERE sku_id = ? AND available >= ?",
                        line.quantity, line.quantity, line.sku, line.quantity) != 1) {
                    throw new SQLException("not enough of " + line.sku);
                }
            }
            update(db, "INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES (?, ?, UTC_TIMESTAMP(3))", o.id, payload(o));
        });
    }

    static int update(Connection db, String sql, Object... args) throws SQLException {
        try (var statement = db.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) {
                statement.setObject(i + 1, args[i]);
            }
            return statement.executeUpdate();
        }
    }

    /**
     * Whether a request of orderclose has a right signature: its headers webhook-id, webhook-timestamp and webhook-signature. body are
     * the bytes as they came.
     */
    static boolean verified(String secret, String id, String timestamp, String signatures, byte[] body) throws GeneralSecurityException {
        if (timestamp == null || signatures == null || !timestamp.matches("[0-9]{1,12}")
                || Math.abs(Instant.now().getEpochSecond() - Long.parseLong(timestamp)) > 300) {
            return false;
        }
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(Base64.getDecoder().decode(secret.substring("whsec_".length())), "HmacSHA256"));
        mac.update((id + "." + timestamp + ".").getBytes(StandardCharsets.UTF_8));
        byte[] want = ("v1," + Base64.getEncoder().encodeToString(mac.doFinal(body))).getBytes(StandardCharsets.US_ASCII);
        boolean found = false;
        for (String signature : signatures.split(" ")) {
            found |= MessageDigest.isEqual(want, signature.getBytes(StandardCharsets.UTF_8));
        }
        return found;
    }

    /**
     * One event, which may come again: its id is stored in the transaction of the work, in a table with a unique key on
     * id. Commit the offset afterwards.
     */
    static void handle(Connection db, String eventId, Work work) throws SQLException {
        inTransaction(db, c -> {
            if (update(db, "INSERT IGNORE INTO handled_events (id) VALUES (?)", eventId) == 1) {
                work.run(db);
            }
        });
    }

    /** For the test: record ID, or verify SECRET ID TIMESTAMP SIGNATURES with the body on stdin. */
    public static void main(String[] args) throws IOException, GeneralSecurityException {
        if (args[0].equals("record")) {
            Order o = newOrder(args[1], "virtual");
            String line = "{\"key\":" + quote(o.id) + ",\"headers\":{\"due\":\"" + o.due.toEpochMilli() + "\",\"v\":\"1\"},\"value\":"
                + quote(payload(o)) + "}";
            System.out.write((line + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        } else if (!verified(args[1], args[2], args[3], args[4], System.in.readAllBytes())) {
            System.exit(1);
        }
    }
}
