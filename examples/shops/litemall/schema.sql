-- The tables of litemall that a close concerns, with the columns that its code reads or writes
-- then. Names and types are those of litemall-db/sql/litemall_table.sql at commit a1ef964a.
CREATE TABLE litemall_order (
  id            INT            NOT NULL AUTO_INCREMENT,
  user_id       INT            NOT NULL,
  order_sn      VARCHAR(63)    NOT NULL,
  order_status  SMALLINT       NOT NULL,
  groupon_price DECIMAL(10, 2) NOT NULL,
  actual_price  DECIMAL(10, 2) NOT NULL,
  pay_id        VARCHAR(63)    NULL,
  pay_time      DATETIME       NULL,
  refund_amount DECIMAL(10, 2) NULL,
  refund_time   DATETIME       NULL,
  end_time      DATETIME       NULL,
  add_time      DATETIME       NULL,
  update_time   DATETIME       NULL,
  deleted       TINYINT(1)     NULL DEFAULT 0,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE litemall_order_goods (
  id         INT        NOT NULL AUTO_INCREMENT,
  order_id   INT        NOT NULL DEFAULT 0,
  goods_id   INT        NOT NULL DEFAULT 0,
  product_id INT        NOT NULL DEFAULT 0,
  number     SMALLINT   NOT NULL DEFAULT 0,
  deleted    TINYINT(1) NULL DEFAULT 0,
  PRIMARY KEY (id),
  KEY order_id (order_id),
  KEY goods_id (goods_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE litemall_goods_product (
  id          INT        NOT NULL AUTO_INCREMENT,
  goods_id    INT        NOT NULL DEFAULT 0,
  number      INT        NOT NULL DEFAULT 0,
  update_time DATETIME   NULL,
  deleted     TINYINT(1) NULL DEFAULT 0,
  PRIMARY KEY (id),
  KEY goods_id (goods_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE litemall_coupon_user (
  id          INT        NOT NULL AUTO_INCREMENT,
  user_id     INT        NOT NULL,
  coupon_id   INT        NOT NULL,
  status      SMALLINT   NULL DEFAULT 0,
  used_time   DATETIME   NULL,
  order_id    INT        NULL,
  update_time DATETIME   NULL,
  deleted     TINYINT(1) NULL DEFAULT 0,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
