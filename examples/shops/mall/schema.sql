-- The tables of mall that a close concerns, with the columns that its code reads or writes then. Names
-- and types are those of document/sql/mall.sql at commit 74eebe06.
CREATE TABLE oms_order (
  id              BIGINT         NOT NULL AUTO_INCREMENT,
  member_id       BIGINT         NOT NULL,
  coupon_id       BIGINT         NULL,
  order_sn        VARCHAR(64)    NULL,
  create_time     DATETIME       NULL,
  pay_amount      DECIMAL(10, 2) NULL,
  pay_type        INT            NULL,
  status          INT            NULL,
  delete_status   INT            NOT NULL DEFAULT 0,
  use_integration INT            NULL,
  payment_time    DATETIME       NULL,
  modify_time     DATETIME       NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE oms_order_item (
  id               BIGINT NOT NULL AUTO_INCREMENT,
  order_id         BIGINT NULL,
  product_sku_id   BIGINT NULL,
  product_quantity INT    NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE pms_sku_stock (
  id         BIGINT NOT NULL AUTO_INCREMENT,
  stock      INT    NULL DEFAULT 0,
  lock_stock INT    NULL DEFAULT 0,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE sms_coupon_history (
  id         BIGINT   NOT NULL AUTO_INCREMENT,
  coupon_id  BIGINT   NULL,
  member_id  BIGINT   NULL,
  use_status INT      NULL,
  use_time   DATETIME NULL,
  order_id   BIGINT   NULL,
  PRIMARY KEY (id),
  INDEX idx_member_id (member_id),
  INDEX idx_coupon_id (coupon_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE ums_member (
  id          BIGINT      NOT NULL AUTO_INCREMENT,
  username    VARCHAR(64) NULL,
  integration INT         NULL,
  PRIMARY KEY (id),
  UNIQUE INDEX idx_username (username)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
