-- +goose Up
-- Money that a customer paid and gets back: the payment came after the order was
-- closed, cancelled or paid by another payment. The key ensures one row per payment.
-- Each statement but the last can be repeated, if this step fails in the middle.
CREATE TABLE IF NOT EXISTS refund_intents (
  order_id   VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  payment_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
  reason     VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'closed, cancelled or paid_twice',
  created_at DATETIME(3) NOT NULL,
  PRIMARY KEY (order_id, payment_id)
) ENGINE = InnoDB;
ALTER TABLE stock_ledger
  MODIFY COLUMN kind VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'close or cancel (back to available) or ship (gone)';
ALTER TABLE orders
  MODIFY COLUMN status TINYINT NOT NULL COMMENT '0 unpaid, 1 paid, 2 closed, 3 cancelled, 4 shipped, 5 confirmed',
  ADD COLUMN payment_id VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL COMMENT 'the payment that made it paid';
