-- +goose Up
-- Orders whose close is to be scheduled: written with the order, deleted once Kafka
-- has their records. The table stays small and needs no index but its key.
CREATE TABLE outbox_schedules (
  id         BIGINT      NOT NULL AUTO_INCREMENT,
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the key of the record',
  payload    MEDIUMTEXT  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'the value of the record, in JSON',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB;
