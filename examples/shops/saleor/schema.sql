-- The tables of Saleor that a close concerns, with the columns that its code reads or writes then. Names and
-- types are those of the models at commit 723cd4eb.
CREATE TABLE channel_channel (
  id                  serial      PRIMARY KEY,
  slug                varchar(255) NOT NULL UNIQUE,
  expire_orders_after integer     NULL
);
CREATE TABLE discount_voucher (
  id          serial  PRIMARY KEY,
  usage_limit integer NULL
);
CREATE TABLE discount_vouchercode (
  id         uuid         PRIMARY KEY,
  code       varchar(255) NOT NULL UNIQUE,
  used       integer      NOT NULL CHECK (used >= 0),
  is_active  boolean      NOT NULL,
  voucher_id integer      NOT NULL REFERENCES discount_voucher (id),
  created_at timestamptz  NOT NULL
);
CREATE TABLE order_order (
  id               uuid         PRIMARY KEY,
  number           integer      NOT NULL UNIQUE,
  created_at       timestamptz  NOT NULL,
  updated_at       timestamptz  NOT NULL,
  expired_at       timestamptz  NULL,
  status           varchar(32)  NOT NULL,
  authorize_status varchar(32)  NOT NULL,
  charge_status    varchar(32)  NOT NULL,
  user_email       varchar(254) NOT NULL,
  channel_id       integer      NOT NULL REFERENCES channel_channel (id),
  voucher_code     varchar(255) NULL
);
CREATE INDEX order_order_channel_id ON order_order (channel_id);
CREATE INDEX order_order_updated_at ON order_order (updated_at);
CREATE TABLE order_orderline (
  id       uuid    PRIMARY KEY,
  order_id uuid    NOT NULL REFERENCES order_order (id),
  quantity integer NOT NULL
);
CREATE INDEX order_orderline_order_id ON order_orderline (order_id);
CREATE TABLE order_orderevent (
  id         serial      PRIMARY KEY,
  date       timestamptz NOT NULL,
  type       varchar(255) NOT NULL,
  parameters jsonb       NOT NULL,
  order_id   uuid        NOT NULL REFERENCES order_order (id)
);
CREATE INDEX order_orderevent_order_id ON order_orderevent (order_id);
CREATE TABLE warehouse_stock (
  id                 serial  PRIMARY KEY,
  warehouse_id       uuid    NOT NULL,
  product_variant_id integer NOT NULL,
  quantity           integer NOT NULL,
  quantity_allocated integer NOT NULL,
  UNIQUE (warehouse_id, product_variant_id)
);
CREATE TABLE warehouse_allocation (
  id                 serial  PRIMARY KEY,
  order_line_id      uuid    NOT NULL REFERENCES order_orderline (id),
  stock_id           integer NOT NULL REFERENCES warehouse_stock (id),
  quantity_allocated integer NOT NULL CHECK (quantity_allocated >= 0),
  UNIQUE (order_line_id, stock_id)
);
CREATE INDEX warehouse_allocation_stock_id ON warehouse_allocation (stock_id);
CREATE TABLE payment_transactionitem (
  id            serial         PRIMARY KEY,
  order_id      uuid           NULL REFERENCES order_order (id),
  charged_value numeric(20, 3) NOT NULL
);
CREATE INDEX payment_transactionitem_order_id ON payment_transactionitem (order_id);
CREATE TABLE payment_payment (
  id       serial PRIMARY KEY,
  order_id uuid   NULL REFERENCES order_order (id)
);
CREATE INDEX payment_payment_order_id ON payment_payment (order_id);
