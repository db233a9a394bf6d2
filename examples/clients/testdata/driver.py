"""Runs orders.py against real servers, for the test: insert ID QUANTITY | send ID COUNT | handle < event | serve PORT."""
import http.server
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "python"))
import orders


def connect():
    import pymysql
    return pymysql.connect(host="127.0.0.1", port=int(os.environ["DB_PORT"]), user="root", database=os.environ["DB_NAME"])


def send(id, count):
    from confluent_kafka import Producer
    producer = Producer(orders.PRODUCER | {"bootstrap.servers": os.environ["BROKERS"]})
    return all([orders.send(producer, orders.new_order(f"{id}-{n}", "virtual")) for n in range(int(count))])


def handle():
    db, event = connect(), sys.stdin.buffer.read()

    def work(cursor, data):
        cursor.execute("INSERT INTO work (order_id) VALUES (%s)", (data["order_id"],))

    def fail(cursor, data):
        work(cursor, data)
        raise OSError("on purpose")
    try:
        orders.handle(db, event, fail)
    except OSError:
        pass
    lost = []

    def lose_once(cursor, data):
        work(cursor, data)
        if not lost:
            lost.append(True)
            cursor.execute("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1020, MESSAGE_TEXT = 'lost'")
    for _ in range(2):
        orders.handle(db, event, lose_once)


class Closer(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body, h = self.rfile.read(int(self.headers["Content-Length"])), self.headers
        if not orders.verified(os.environ["SECRET"], h["webhook-id"], h["webhook-timestamp"], h["webhook-signature"], body):
            return self.send_error(401)
        reply = json.dumps({"verdicts": [{"order_id": o["order_id"], "verdict": "closed"} for o in json.loads(body)["orders"]]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)


command, *args = sys.argv[1:]
if command == "insert":
    orders.insert_order(connect(), args[0], "virtual", [("b", int(args[1])), ("a", 1)])
elif command == "send":
    sys.exit(0 if send(*args) else 1)
elif command == "handle":
    handle()
else:
    http.server.HTTPServer(("127.0.0.1", int(args[0])), Closer).serve_forever()
