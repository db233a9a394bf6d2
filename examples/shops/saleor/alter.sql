-- What orderclose needs in the tables of Saleor, for Saleor's rule: an unconfirmed order expires after the minutes
-- of its channel, unless it has a transaction or a payment. Run the statements in this order.
ALTER TABLE order_order ADD COLUMN pay_until timestamptz NULL;
CREATE FUNCTION order_pay_until() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.pay_until = NEW.created_at + (SELECT make_interval(mins => expire_orders_after) FROM channel_channel WHERE id = NEW.channel_id AND expire_orders_after > 0); RETURN NEW; END $$;
CREATE TRIGGER order_pay_until BEFORE INSERT ON order_order FOR EACH ROW EXECUTE FUNCTION order_pay_until();
CREATE FUNCTION order_has_payment() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE order_order SET pay_until = NULL WHERE id = NEW.order_id; RETURN NULL; END $$;
CREATE TRIGGER order_has_transaction AFTER INSERT OR UPDATE OF order_id ON payment_transactionitem FOR EACH ROW EXECUTE FUNCTION order_has_payment();
CREATE TRIGGER order_has_payment AFTER INSERT OR UPDATE OF order_id ON payment_payment FOR EACH ROW EXECUTE FUNCTION order_has_payment();
CREATE INDEX orderclose_overdue ON order_order (pay_until, id) WHERE status = 'unconfirmed';
