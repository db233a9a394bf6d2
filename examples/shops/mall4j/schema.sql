-- The tables of mall4j that a close concerns, with the columns that its code reads or writes then. Names and
-- types are those of db/yami_shop.sql at commit 2617536e.
CREATE TABLE tz_order (
  order_id      BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  user_id       VARCHAR(36)     NOT NULL,
  order_number  VARCHAR(50)     NOT NULL,
  actual_total  DECIMAL(15, 2)  NULL,
  pay_type      INT             NULL,
  status        INT             NOT NULL DEFAULT 0,
  create_time   DATETIME        NOT NULL,
  update_time   DATETIME        NULL,
  pay_time      DATETIME        NULL,
  cancel_time   DATETIME        NULL,
  is_payed      TINYINT(1)      NULL,
  delete_status INT             NULL DEFAULT 0,
  close_type    TINYINT         NULL,
  PRIMARY KEY (order_id),
  UNIQUE KEY order_number_unique_ind (order_number),
  UNIQUE KEY order_number_userid_unique_ind (user_id, order_number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8;
CREATE TABLE tz_order_item (
  order_item_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  order_number  VARCHAR(50)     NOT NULL,
  prod_id       BIGINT UNSIGNED NOT NULL,
  sku_id        BIGINT UNSIGNED NOT NULL,
  prod_count    INT             NOT NULL DEFAULT 0,
  PRIMARY KEY (order_item_id),
  KEY order_number (order_number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8;
CREATE TABLE tz_order_settlement (
  settlement_id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  pay_no        VARCHAR(36)     NULL,
  order_number  VARCHAR(36)     NULL,
  version       INT             NULL,
  pay_status    INT             NULL,
  PRIMARY KEY (settlement_id),
  UNIQUE KEY primary_order_no (order_number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8;
CREATE TABLE tz_sku (
  sku_id      BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  prod_id     BIGINT UNSIGNED NOT NULL,
  stocks      INT             NOT NULL,
  update_time DATETIME        NOT NULL,
  version     INT             NOT NULL DEFAULT 0,
  PRIMARY KEY (sku_id),
  KEY prod_id (prod_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8;
CREATE TABLE tz_prod (
  prod_id      BIGINT UNSIGNED NOT NULL AUTO_INCREMENT,
  prod_name    VARCHAR(300)    NOT NULL DEFAULT '',
  total_stocks INT             NULL DEFAULT 0,
  version      INT             NULL,
  PRIMARY KEY (prod_id)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8;
