-- The tables of yudao's mall (ruoyi-vue-pro) that a close concerns, with the columns that its code reads or writes
-- then. Names are those of TradeOrderDO, TradeOrderItemDO, ProductSkuDO, ProductSpuDO and CouponDO at commit
-- e4e460d5; types follow them, because the repository has no DDL of the mall for MySQL.
CREATE TABLE trade_order (
  id           BIGINT      NOT NULL AUTO_INCREMENT,
  no           VARCHAR(32) NOT NULL,
  type         INT         NOT NULL DEFAULT 0,
  user_id      BIGINT      NOT NULL,
  status       INT         NOT NULL DEFAULT 0,
  cancel_time  DATETIME    NULL,
  cancel_type  INT         NULL,
  pay_status   BIT(1)      NOT NULL DEFAULT b'0',
  pay_order_id BIGINT      NULL,
  pay_time     DATETIME    NULL,
  pay_price    INT         NOT NULL DEFAULT 0,
  coupon_id    BIGINT      NULL,
  create_time  DATETIME    NOT NULL DEFAULT CURRENT_TIMESTAMP,
  update_time  DATETIME    NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
  deleted      BIT(1)      NOT NULL DEFAULT b'0',
  tenant_id    BIGINT      NOT NULL DEFAULT 0,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE trade_order_item (
  id       BIGINT NOT NULL AUTO_INCREMENT,
  user_id  BIGINT NOT NULL,
  order_id BIGINT NOT NULL,
  spu_id   BIGINT NOT NULL,
  sku_id   BIGINT NOT NULL,
  count    INT    NOT NULL,
  deleted  BIT(1) NOT NULL DEFAULT b'0',
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE product_sku (
  id          BIGINT NOT NULL AUTO_INCREMENT,
  spu_id      BIGINT NOT NULL,
  stock       INT    NULL,
  sales_count INT    NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE product_spu (
  id          BIGINT       NOT NULL AUTO_INCREMENT,
  name        VARCHAR(128) NOT NULL,
  stock       INT          NOT NULL DEFAULT 0,
  sales_count INT          NULL DEFAULT 0,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
CREATE TABLE promotion_coupon (
  id           BIGINT   NOT NULL AUTO_INCREMENT,
  user_id      BIGINT   NOT NULL,
  status       INT      NOT NULL,
  use_order_id BIGINT   NULL,
  use_time     DATETIME NULL,
  PRIMARY KEY (id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4;
