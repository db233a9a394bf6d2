-- What orderclose needs in the tables of Vendure. The due time: an hour after the last change of the order.
ALTER TABLE "order" ADD COLUMN "payUntil" timestamp GENERATED ALWAYS AS ("updatedAt" + interval '60 minutes') STORED;
CREATE INDEX orderclose_overdue ON "order" ("payUntil", code) WHERE state = 'ArrangingPayment';
-- Vendure writes the state that it has read before, and knows no way out of Cancelled. This trigger refuses such a
-- statement, and Vendure rolls its transaction back.
CREATE FUNCTION order_stays_cancelled() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'the order is cancelled'; END $$;
CREATE TRIGGER order_stays_cancelled BEFORE UPDATE OF state ON "order" FOR EACH ROW WHEN (OLD.state = 'Cancelled' AND NEW.state <> 'Cancelled') EXECUTE FUNCTION order_stays_cancelled();
