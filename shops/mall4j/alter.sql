-- What orderclose needs in the tables of mall4j. Run the statements at a quiet time, in this order.
-- The due time: create_time and the 30 minutes that OrderTask.java has as a constant.
ALTER TABLE tz_order
  ADD COLUMN pay_deadline DATETIME GENERATED ALWAYS AS (create_time + INTERVAL 30 MINUTE) VIRTUAL;
ALTER TABLE tz_order
  ADD KEY status_deadline (status, pay_deadline, order_number), ALGORITHM = INPLACE, LOCK = NONE;
-- mall4j's cancel and payment do not compare the status. This trigger refuses to cancel or pay a closed order, and
-- mall4j rolls the transaction back. A closed order can still be deleted. README.md has the change of the code.
CREATE TRIGGER tz_order_closed_once BEFORE UPDATE ON tz_order FOR EACH ROW
  IF OLD.status = 6 AND (NEW.status = 2 OR NEW.status = 6 AND NEW.delete_status <=> OLD.delete_status) THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the order is closed'; END IF;
