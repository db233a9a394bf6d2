-- The events that the webhook has taken from outbox_events, until they are accepted. All events of an order have the same next_ms.
-- Times are unix milliseconds by the database's clock. Each statement can be repeated.
CREATE TABLE IF NOT EXISTS webhook_events (
  id       BIGINT       NOT NULL AUTO_INCREMENT,
  order_id VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payload  MEDIUMTEXT   CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the CloudEvent',
  taken_ms BIGINT       NOT NULL,
  next_ms  BIGINT       NOT NULL COMMENT 'the next attempt for the order, or the end of the one that runs, 0: none failed or runs',
  attempts INT          NOT NULL DEFAULT 0,
  error    VARCHAR(500) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'of the last attempt',
  PRIMARY KEY (id),
  KEY webhook_events_next (next_ms, id),
  KEY webhook_events_order (order_id, id)
) ENGINE = InnoDB;
-- Its only row is locked by each process that takes events or chooses the next ones.
CREATE TABLE IF NOT EXISTS webhook_state (
  id              INT    NOT NULL,
  other_reader_ms BIGINT NOT NULL COMMENT 'when another program was seen that takes rows of outbox_events, 0: never',
  last_ms         BIGINT NOT NULL COMMENT 'the last change of webhook_events',
  PRIMARY KEY (id)
) ENGINE = InnoDB;
INSERT IGNORE INTO webhook_state (id, other_reader_ms, last_ms) VALUES (1, 0, 0);
