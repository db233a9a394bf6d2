// A checkout in Node: orders, their records, the service that closes orders, and a reader of events.
// kafka is a KafkaJS client, db a connection of mysql2/promise. docs/wire.md and docs/http.md have the formats.
import { createHmac, timingSafeEqual } from 'node:crypto'

const minute = 60_000
export const delays = { virtual: 5 * minute } // as delays in topics.yaml
const standard = 30 * minute

// The topics of topics.yaml, and the remaining time from which on each is right.
const buckets = [['delay_10s', 0], ['delay_1m', 54], ['delay_5m', 270], ['delay_30m', 1770], ['delay_2h', 7170], ['delay_12h', 43170]]

export function newOrder(id, category, created = new Date()) {
  return { id: String(id), category, created, due: new Date(created.getTime() + (delays[category] ?? standard)) }
}

export const payload = (o) =>
  JSON.stringify({ order_id: o.id, category: o.category, created_at: o.created.toISOString(), due_at: o.due.toISOString() })

export const record = (o) => ({ key: o.id, headers: { due: String(o.due.getTime()), v: '1' }, value: payload(o) })

export function topic(o, now = Date.now()) {
  const left = (o.due.getTime() - now) / 1000
  return left <= 0 ? 'order-close' : buckets.findLast(([, from]) => from <= left)[0]
}

// The time as text: a Date would be written in the zone of the process.
const utc = (t) => t.toISOString().slice(0, 23).replace('T', ' ')

// The clock that decides when an order is due. With the machine's clock, a wrong one would close orders too early.
export async function databaseNow(db) {
  const [[row]] = await db.query("SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000 AS millis")
  return new Date(Number(row.millis))
}

const conflicts = [1020, 1205, 1213] // docs/wire.md, Lost conflicts

// inTransaction runs work in a transaction, and again if another transaction, such as a close, wins a conflict.
export async function inTransaction(db, work) {
  for (let attempt = 0; ; attempt++) {
    await db.beginTransaction()
    try {
      await work()
      return await db.commit()
    } catch (err) {
      await db.rollback()
      if (attempt === 4 || !conflicts.includes(err.errno)) throw err
    }
    await new Promise((done) => setTimeout(done, Math.random() * 20 * 2 ** attempt))
  }
}

// The order and its outbox row, in one transaction. This is the way to prefer.
export const insertOrder = (db, id, category, lines) =>
  inTransaction(db, async () => {
    const o = newOrder(id, category, await databaseNow(db))
    await db.execute('INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, ?, 0, ?, ?, 1)',
      [o.id, o.category, utc(o.created), utc(o.due)])
    for (const [n, line] of lines.toSorted((a, b) => (a.sku < b.sku ? -1 : 1)).entries()) {
      await db.execute('INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (?, ?, ?, ?)', [o.id, n + 1, line.sku, line.quantity])
      const [stock] = await db.execute('UPDATE stock SET available = available - ?, reserved = reserved + ? WHERE sku_id = ? AND available >= ?',
        [line.quantity, line.quantity, line.sku, line.quantity])
      if (stock.affectedRows !== 1) throw new Error(`not enough of ${line.sku}`)
    }
    await db.execute('INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES (?, ?, UTC_TIMESTAMP(3))', [o.id, payload(o)])
  })

// Without an outbox: send after the commit. The producer is
//   kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, retry: { retries: 2, maxRetryTime: 3000 } })
export const send = (producer, o) => producer.send({ topic: topic(o), acks: -1, timeout: 5000, messages: [record(o)] })

// verified says whether a request of orderclose has a right signature: its headers webhook-id, webhook-timestamp and
// webhook-signature. body is a Buffer with the bytes as they came.
export function verified(secret, id = '', timestamp = '', signatures = '', body, now = Date.now()) {
  if (!/^\d+$/.test(timestamp) || Math.abs(now / 1000 - Number(timestamp)) > 300) return false
  const key = Buffer.from(secret.slice('whsec_'.length), 'base64')
  const want = Buffer.from('v1,' + createHmac('sha256', key).update(`${id}.${timestamp}.`).update(body).digest('base64'))
  return signatures.split(' ').some((s) => {
    const got = Buffer.from(s)
    return got.length === want.length && timingSafeEqual(got, want)
  })
}

// One event, which may come again: its id is stored in the transaction of the work, in a table with a unique key on id.
export async function handle(db, message, work) {
  const event = JSON.parse(message.value)
  if (event.type !== 'order.closed') return
  await inTransaction(db, async () => { // KafkaJS commits the offset after eachMessage has returned
    const [row] = await db.execute('INSERT IGNORE INTO handled_events (id) VALUES (?)', [event.id])
    if (row.affectedRows === 1) await work(event.data)
  })
}

// For the test: node orders.mjs record ID | verify SECRET ID TIMESTAMP SIGNATURES < body
if (process.argv[2] === 'record') console.log(JSON.stringify(record(newOrder(process.argv[3], 'virtual'))))
if (process.argv[2] === 'verify') {
  const parts = []
  for await (const part of process.stdin) parts.push(part)
  process.exitCode = verified(...process.argv.slice(3, 7), Buffer.concat(parts)) ? 0 : 1
}
