-- The events that the webhook has taken from outbox_events, until they are accepted. All events of an order have the same next_ms.
-- Times are unix milliseconds by the database's clock. Each statement can be repeated.
CREATE TABLE IF NOT EXISTS webhook_events (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  order_id TEXT    NOT NULL,
  payload  TEXT    NOT NULL,
  taken_ms INTEGER NOT NULL,
  next_ms  INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  error    TEXT    NOT NULL DEFAULT ''
);
CREATE INDEX IF NOT EXISTS webhook_events_next ON webhook_events (next_ms, id);
CREATE INDEX IF NOT EXISTS webhook_events_order ON webhook_events (order_id, id);
-- Its only row is locked by each process that takes events or chooses the next ones.
CREATE TABLE IF NOT EXISTS webhook_state (id INTEGER PRIMARY KEY, other_reader_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL);
INSERT OR IGNORE INTO webhook_state (id, other_reader_ms, last_ms) VALUES (1, 0, 0);
