import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.List;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/** Runs Orders and Direct against real servers, for the test: insert ID QUANTITY | send ID COUNT | handle < event | serve PORT. */
public class Driver {
    static Connection connect() throws SQLException {
        Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"), "root", "");
        db.setAutoCommit(false);
        return db;
    }

    static List<String> strings(String json, String field) {
        return Pattern.compile("\"" + field + "\":\"([^\"]*)\"").matcher(json).results().map(m -> m.group(1)).toList();
    }

    static void handle() throws Exception {
        Connection db = connect();
        String event = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        String id = strings(event, "id").get(0), order = strings(event, "order_id").get(0);
        Orders.Work work = c -> Orders.update(c, "INSERT INTO work (order_id) VALUES (?)", order);
        try {
            Orders.handle(db, id, c -> {
                work.run(c);
                throw new SQLException("on purpose");
            });
        } catch (SQLException expected) {
            // It comes again.
        }
        boolean[] lost = {false};
        Orders.Work loseOnce = c -> {
            work.run(c);
            if (!lost[0]) {
                lost[0] = true;
                c.createStatement().execute("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1020, MESSAGE_TEXT = 'lost'");
            }
        };
        Orders.handle(db, id, loseOnce);
        Orders.handle(db, id, loseOnce);
    }

    static void serve(int port) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/", exchange -> {
            byte[] body = exchange.getRequestBody().readAllBytes(), reply = {};
            var headers = exchange.getRequestHeaders();
            try (exchange) {
                if (!Orders.verified(System.getenv("SECRET"), headers.getFirst("webhook-id"), headers.getFirst("webhook-timestamp"),
                        headers.getFirst("webhook-signature"), body)) {
                    exchange.sendResponseHeaders(401, -1);
                    return;
                }
                reply = strings(new String(body, StandardCharsets.UTF_8), "order_id").stream()
                    .map(id -> "{\"order_id\":" + Orders.quote(id) + ",\"verdict\":\"closed\"}")
                    .collect(Collectors.joining(",", "{\"verdicts\":[", "]}")).getBytes(StandardCharsets.UTF_8);
                exchange.getResponseHeaders().set("Content-Type", "application/json");
                exchange.sendResponseHeaders(200, reply.length);
                exchange.getResponseBody().write(reply);
            } catch (java.security.GeneralSecurityException e) {
                throw new IllegalStateException(e);
            }
        });
        server.start();
    }

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "insert" -> Orders.insertOrder(connect(), args[1], "virtual",
                List.of(new Orders.Line("b", Integer.parseInt(args[2])), new Orders.Line("a", 1)));
            case "send" -> {
                try (var producer = Direct.producer(System.getenv("BROKERS"))) {
                    for (int n = 0; n < Integer.parseInt(args[2]); n++) {
                        Direct.send(producer, Orders.newOrder(args[1] + "-" + n, "virtual"));
                    }
                }
            }
            case "handle" -> handle();
            default -> serve(Integer.parseInt(args[1]));
        }
    }
}
