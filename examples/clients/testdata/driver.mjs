// Runs orders.mjs against real servers, for the test: insert ID QUANTITY | send ID COUNT | handle < event | serve PORT.
import { createServer } from 'node:http'
import { createRequire } from 'node:module'
import { handle, insertOrder, newOrder, send, verified } from '../node/orders.mjs'

const require = createRequire(import.meta.url) // unlike import, it looks in NODE_PATH
const { DB_PORT, DB_NAME, BROKERS, SECRET } = process.env
const connect = () => require('mysql2/promise').createConnection({ host: '127.0.0.1', port: Number(DB_PORT), user: 'root', database: DB_NAME })

async function body(stream) {
  const parts = []
  for await (const part of stream) parts.push(part)
  return Buffer.concat(parts)
}

const commands = {
  async insert(id, quantity) {
    await insertOrder(await connect(), id, 'virtual', [{ sku: 'b', quantity: Number(quantity) }, { sku: 'a', quantity: 1 }])
  },
  async send(id, count) {
    const { Kafka, Partitioners } = require('kafkajs')
    const kafka = new Kafka({ brokers: [BROKERS], requestTimeout: 4000 })
    const producer = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, retry: { retries: 2, maxRetryTime: 3000 } })
    await producer.connect()
    for (let n = 0; n < Number(count); n++) await send(producer, newOrder(`${id}-${n}`, 'virtual'))
    await producer.disconnect()
  },
  async handle() {
    const db = await connect()
    const message = { value: await body(process.stdin) }
    const work = (data) => db.execute('INSERT INTO work (order_id) VALUES (?)', [data.order_id])
    await handle(db, message, async (data) => { await work(data); throw new Error('on purpose') }).catch(() => {})
    let lost = false
    const loseOnce = async (data) => {
      await work(data)
      if (!lost) {
        lost = true
        await db.query("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1020, MESSAGE_TEXT = 'lost'")
      }
    }
    await handle(db, message, loseOnce)
    await handle(db, message, loseOnce)
  },
  serve: (port) => new Promise(() => createServer(async (request, response) => {
    const raw = await body(request)
    const of = (name) => request.headers['webhook-' + name]
    if (!verified(SECRET, of('id'), of('timestamp'), of('signature'), raw)) return response.writeHead(401).end()
    const verdicts = JSON.parse(raw).orders.map((o) => ({ order_id: o.order_id, verdict: 'closed' }))
    response.writeHead(200, { 'Content-Type': 'application/json' }).end(JSON.stringify({ verdicts }))
  }).listen(Number(port), '127.0.0.1')),
}

const [command, ...args] = process.argv.slice(2)
await commands[command](...args).then(() => process.exit(0), (err) => { console.error(err); process.exit(1) })
