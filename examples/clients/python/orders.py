"""A checkout in Python: orders, their records, the service that closes orders, and a reader of events.

producer is a confluent_kafka.Producer, db a connection of PyMySQL. docs/wire.md and docs/http.md have the formats.
"""
import base64
import hashlib
import hmac
import json
import random
import sys
import time
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

DELAYS = {"virtual": timedelta(minutes=5)}  # as delays in topics.yaml
STANDARD = timedelta(minutes=30)
# The topics of topics.yaml, and the remaining seconds from which on each is right.
BUCKETS = [("delay_10s", 0), ("delay_1m", 54), ("delay_5m", 270), ("delay_30m", 1770), ("delay_2h", 7170), ("delay_12h", 43170)]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass
class Order:
    id: str
    category: str
    created: datetime  # with a zone, in whole milliseconds
    due: datetime


def new_order(id, category, created=None):
    created = created or datetime.now(timezone.utc)
    created = created.replace(microsecond=created.microsecond // 1000 * 1000)
    return Order(str(id), category, created, created + DELAYS.get(category, STANDARD))


def rfc3339(t):
    return t.astimezone(timezone.utc).isoformat(timespec="milliseconds")


def millis(t):
    return (t - EPOCH) // timedelta(milliseconds=1)  # whole numbers: a float could be a millisecond early


def payload(o):
    return json.dumps({"order_id": o.id, "category": o.category, "created_at": rfc3339(o.created), "due_at": rfc3339(o.due)}, allow_nan=False)


def record(o):
    return {"key": o.id, "headers": {"due": str(millis(o.due)), "v": "1"}, "value": payload(o)}


def topic(o):
    left = (o.due - datetime.now(timezone.utc)).total_seconds()
    return "order-close" if left <= 0 else [name for name, at in BUCKETS if at <= left][-1]


def utc(t):
    """The time for a column without a zone: the driver drops the zone and writes the digits."""
    return t.astimezone(timezone.utc).replace(tzinfo=None)


CONFLICTS = (1020, 1205, 1213)  # docs/wire.md, Lost conflicts


def in_transaction(db, work):
    """Runs work with a cursor in a transaction, and again if another transaction, such as a close, wins a conflict."""
    for attempt in range(5):
        try:
            db.begin()
            with db.cursor() as c:
                work(c)
            db.commit()
            return
        except BaseException as e:
            db.rollback()
            if attempt == 4 or not e.args or e.args[0] not in CONFLICTS:
                raise
            time.sleep(random.uniform(0, 0.02 * 2 ** attempt))


def database_now(c):
    """The clock that decides when an order is due. With the machine's clock, a wrong one would close orders too early."""
    c.execute("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3))")
    return EPOCH + timedelta(microseconds=c.fetchone()[0])


def insert_order(db, id, category, lines):
    """The order and its outbox row, in one transaction. This is the way to prefer. lines are pairs of SKU and quantity."""
    def work(c):
        o = new_order(id, category, database_now(c))
        c.execute("INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (%s, %s, 0, %s, %s, 1)",
                  (o.id, o.category, utc(o.created), utc(o.due)))
        for n, (sku, quantity) in enumerate(sorted(lines), 1):
            c.execute("INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (%s, %s, %s, %s)", (o.id, n, sku, quantity))
            if c.execute("UPDATE stock SET available = available - %s, reserved = reserved + %s WHERE sku_id = %s AND available >= %s",
                         (quantity, quantity, sku, quantity)) != 1:
                raise ValueError(f"not enough of {sku}")
        c.execute("INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES (%s, %s, UTC_TIMESTAMP(3))", (o.id, payload(o)))
    in_transaction(db, work)


# Without an outbox: send after the commit, with Producer(PRODUCER | {"bootstrap.servers": …}).
PRODUCER = {"acks": "all", "enable.idempotence": True, "message.timeout.ms": 5000}


def send(producer, o):
    """Returns whether Kafka has the record. If not, send again: a duplicate is harmless."""
    r, done = record(o), []
    producer.produce(topic(o), key=r["key"], value=r["value"], headers=[(k, v.encode()) for k, v in r["headers"].items()],
                     on_delivery=lambda err, _: done.append(err is None))
    producer.flush(6)
    return done == [True]


def verified(secret, id, timestamp, signatures, body):
    """Whether a request of orderclose has a right signature: its headers webhook-id, webhook-timestamp and webhook-signature. body are
    the bytes as they came."""
    if not (timestamp.isascii() and timestamp.isdigit()) or abs(time.time() - int(timestamp)) > 300:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    want = b"v1," + base64.b64encode(hmac.new(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256).digest())
    return any(hmac.compare_digest(s.encode(), want) for s in signatures.split())


def handle(db, message, work):
    """One event, which may come again: its id is stored in the transaction of the work. Commit the offset afterwards."""
    event = json.loads(message)
    if event["type"] != "order.closed":
        return

    def once(c):
        if c.execute("INSERT IGNORE INTO handled_events (id) VALUES (%s)", (event["id"],)) == 1:
            work(c, event["data"])
    in_transaction(db, once)


if __name__ == "__main__":  # for the test: record ID | verify SECRET ID TIMESTAMP SIGNATURES < body
    if sys.argv[1] == "record":
        print(json.dumps(record(new_order(sys.argv[2], "virtual"))))
    else:
        sys.exit(0 if verified(*sys.argv[2:6], sys.stdin.buffer.read()) else 1)
