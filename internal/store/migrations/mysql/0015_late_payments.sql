-- Payments that arrived after their order was closed, and what became of the money. Written in the
-- transaction that finds the payment, and never deleted by orderclose. A row without a payment's id was
-- found by asking the provider; it may be the same money as a row of the same order with an id.
CREATE TABLE IF NOT EXISTS late_payments (
  id          BIGINT       NOT NULL AUTO_INCREMENT,
  order_id    VARCHAR(64)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payment_id  VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '' COMMENT 'of the provider, empty if it is unknown',
  amount      BIGINT       NULL COMMENT 'in minor units of the currency, such as cents, NULL if it is unknown',
  currency    VARCHAR(8)   CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'ISO 4217, empty if the amount is unknown',
  source      VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'callback or recheck',
  found_at    DATETIME(3)  NOT NULL,
  resolved_at DATETIME(3)  NULL COMMENT 'NULL: nobody has decided yet',
  resolution  VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '' COMMENT 'refunded or reopened',
  resolved_by VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL DEFAULT '',
  PRIMARY KEY (id),
  UNIQUE KEY late_payments_payment (order_id, payment_id),
  KEY late_payments_unresolved (resolved_at, found_at)
) ENGINE = InnoDB;
