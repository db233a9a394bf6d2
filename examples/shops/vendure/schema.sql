-- The tables of Vendure that a close concerns, with the columns that its code reads or writes then. Names are
-- those of the entities at commit 1633446f, as TypeORM writes them to PostgreSQL.
CREATE TABLE "order" (
  id              serial    PRIMARY KEY,
  "createdAt"     timestamp NOT NULL DEFAULT now(),
  "updatedAt"     timestamp NOT NULL DEFAULT now(),
  type            varchar   NOT NULL DEFAULT 'Regular',
  code            varchar   NOT NULL UNIQUE,
  state           varchar   NOT NULL,
  active          boolean   NOT NULL DEFAULT true,
  "orderPlacedAt" timestamp NULL,
  "customerId"    integer   NULL
);
CREATE INDEX ON "order" ("orderPlacedAt");
CREATE TABLE order_line (
  id                 serial  PRIMARY KEY,
  "orderId"          integer NULL REFERENCES "order" (id) ON DELETE CASCADE,
  "productVariantId" integer NOT NULL,
  quantity           integer NOT NULL
);
CREATE INDEX ON order_line ("orderId");
CREATE TABLE payment (
  id        serial  PRIMARY KEY,
  "orderId" integer NULL REFERENCES "order" (id),
  state     varchar NOT NULL,
  amount    integer NOT NULL
);
CREATE INDEX ON payment ("orderId");
CREATE TABLE stock_level (
  id                 serial  PRIMARY KEY,
  "productVariantId" integer NOT NULL,
  "stockLocationId"  integer NOT NULL,
  "stockOnHand"      integer NOT NULL,
  "stockAllocated"   integer NOT NULL,
  UNIQUE ("productVariantId", "stockLocationId")
);
CREATE TABLE history_entry (
  id            serial    PRIMARY KEY,
  "createdAt"   timestamp NOT NULL DEFAULT now(),
  "updatedAt"   timestamp NOT NULL DEFAULT now(),
  type          varchar   NOT NULL,
  "isPublic"    boolean   NOT NULL,
  data          text      NOT NULL,
  discriminator varchar   NOT NULL,
  "orderId"     integer   NULL REFERENCES "order" (id) ON DELETE CASCADE
);
CREATE INDEX ON history_entry ("orderId");
