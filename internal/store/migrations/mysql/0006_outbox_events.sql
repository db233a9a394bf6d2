-- +goose Up
-- Events on their way to Kafka: written in the transaction of the close, deleted once
-- Kafka has them. The table stays small and needs no index but its key.
CREATE TABLE outbox_events (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'in JSON: the event without what the rest of the row tells',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB;
