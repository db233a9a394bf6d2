-- What orderclose needs in the tables of litemall. Run the statements at a quiet time, in this order.
-- The due time: add_time and the setting litemall_order_unpaid, which is 30 minutes here.
ALTER TABLE litemall_order
  ADD COLUMN pay_deadline DATETIME GENERATED ALWAYS AS (add_time + INTERVAL 30 MINUTE) VIRTUAL;
ALTER TABLE litemall_order
  ADD KEY status_deadline (order_status, pay_deadline, id), ALGORITHM = INPLACE, LOCK = NONE;
ALTER TABLE litemall_coupon_user
  ADD KEY by_order (order_id), ALGORITHM = INPLACE, LOCK = NONE;
-- litemall locks by update_time, in whole seconds. A close in the second of the last change must not leave
-- it as it is, or the next statement of litemall does not notice the close. litemall also keeps the time of
-- a close in end_time.
CREATE TRIGGER litemall_order_closed BEFORE UPDATE ON litemall_order FOR EACH ROW SET
  NEW.update_time = IF(OLD.order_status = 101 AND NEW.order_status = 103 AND NEW.update_time <= OLD.update_time,
    OLD.update_time + INTERVAL 1 SECOND, NEW.update_time),
  NEW.end_time = IF(OLD.order_status = 101 AND NEW.order_status = 103, NEW.update_time, NEW.end_time);
