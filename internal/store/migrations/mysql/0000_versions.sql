-- The steps that were applied. Each step adds a row when it ends.
CREATE TABLE IF NOT EXISTS orderclose_schema (
  id         BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  version_id BIGINT          NOT NULL,
  is_applied BOOLEAN         NOT NULL,
  tstamp     DATETIME        NULL DEFAULT CURRENT_TIMESTAMP,
  PRIMARY KEY (id)
);
