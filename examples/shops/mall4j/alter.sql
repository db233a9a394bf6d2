-- What orderclose needs in the tables of mall4j. Run the statements at a quiet time, in this order.
ALTER TABLE tz_order
  ADD KEY status_created (status, create_time, order_number), ALGORITHM = INPLACE, LOCK = NONE;
-- mall4j's cancel and payment do not compare the status. This trigger refuses to cancel or pay a closed order, and
-- mall4j rolls the transaction back. A closed order can still be deleted. README.md has the change of the code.
CREATE TRIGGER tz_order_closed_once BEFORE UPDATE ON tz_order FOR EACH ROW
  IF OLD.status = 6 AND (NEW.status = 2 OR NEW.status = 6 AND NEW.delete_status <=> OLD.delete_status) THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'the order is closed'; END IF;
