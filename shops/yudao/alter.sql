-- What orderclose needs in the tables of yudao's mall. Run the statements at a quiet time, in this order.
-- The due time: create_time and yudao.trade.order.pay-expire-time, which is two hours here.
ALTER TABLE trade_order
  ADD COLUMN pay_deadline DATETIME GENERATED ALWAYS AS (create_time + INTERVAL 2 HOUR) VIRTUAL;
ALTER TABLE trade_order
  ADD KEY status_deadline (status, pay_deadline, id), ALGORITHM = INPLACE, LOCK = NONE;
ALTER TABLE trade_order_item
  ADD KEY by_order (order_id), ALGORITHM = INPLACE, LOCK = NONE;
ALTER TABLE promotion_coupon
  ADD KEY by_order (use_order_id), ALGORITHM = INPLACE, LOCK = NONE;
