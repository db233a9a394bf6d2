-- What operators have done, by commands and in the console. Nothing deletes rows.
CREATE TABLE IF NOT EXISTS operator_actions (
  id     BIGINT       NOT NULL AUTO_INCREMENT,
  at     DATETIME(3)  NOT NULL,
  who    VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'user@host, or the user of the console',
  action VARCHAR(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  result VARCHAR(2000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB;
