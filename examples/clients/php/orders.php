<?php
// A checkout in PHP: orders, their outbox rows, the service that closes orders, and a reader of events.
// $db is a PDO with ERRMODE_EXCEPTION. docs/wire.md and docs/http.md have the formats.
declare(strict_types=1);

const DELAYS = ['virtual' => 300]; // seconds, as delays in topics.yaml
const STANDARD = 1800;

function utc(DateTimeImmutable $t, string $format): string
{
    return $t->setTimezone(new DateTimeZone('UTC'))->format($format);
}

function newOrder(string $id, string $category, ?DateTimeImmutable $created = null): array
{
    $created ??= new DateTimeImmutable('now', new DateTimeZone('UTC'));
    $created = new DateTimeImmutable(utc($created, 'Y-m-d\TH:i:s.v\Z')); // whole milliseconds
    return ['id' => $id, 'category' => $category, 'created' => $created,
        'due' => $created->modify('+' . (DELAYS[$category] ?? STANDARD) . ' seconds')];
}

function payload(array $o): string
{
    return json_encode(['order_id' => $o['id'], 'category' => $o['category'], 'created_at' => utc($o['created'], 'Y-m-d\TH:i:s.v\Z'),
        'due_at' => utc($o['due'], 'Y-m-d\TH:i:s.v\Z')], JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE);
}

// The record, for php-rdkafka: $topic->producev(RD_KAFKA_PARTITION_UA, 0, $r['value'], $r['key'], $r['headers']), and then
// $producer->flush(5000). Set acks=all and message.timeout.ms=5000.
function record(array $o): array
{
    return ['key' => $o['id'], 'headers' => ['due' => utc($o['due'], 'Uv'), 'v' => '1'], 'value' => payload($o)];
}

function execute(PDO $db, string $sql, array $args): int
{
    $statement = $db->prepare($sql);
    $statement->execute($args);
    return $statement->rowCount();
}

const CONFLICTS = [1020, 1205, 1213]; // docs/wire.md, Lost conflicts

// Runs $work in a transaction, and again if another transaction, such as a close, wins a conflict.
function inTransaction(PDO $db, callable $work): void
{
    for ($attempt = 0; ; $attempt++) {
        $db->beginTransaction();
        try {
            $work();
            $db->commit();
            return;
        } catch (Throwable $e) {
            $db->rollBack();
            if ($attempt === 4 || !$e instanceof PDOException || !in_array($e->errorInfo[1] ?? 0, CONFLICTS, true)) {
                throw $e;
            }
        }
        usleep(random_int(0, 20000 * 2 ** $attempt));
    }
}

// The order and its outbox row, in one transaction. $lines has quantities by SKU. Times are text in UTC.
function insertOrder(PDO $db, string $id, string $category, array $lines): void
{
    ksort($lines, SORT_STRING);
    inTransaction($db, function () use ($db, $id, $category, $lines): void {
        // The clock that decides when an order is due. With the machine's clock, a wrong one would close orders too early.
        $now = $db->query("SELECT DATE_FORMAT(UTC_TIMESTAMP(3), '%Y-%m-%dT%H:%i:%s.%fZ')")->fetchColumn();
        $o = newOrder($id, $category, new DateTimeImmutable($now));
        execute($db, 'INSERT INTO orders (id, category, status, created_at, expire_at, version) VALUES (?, ?, 0, ?, ?, 1)',
            [$o['id'], $o['category'], utc($o['created'], 'Y-m-d H:i:s.v'), utc($o['due'], 'Y-m-d H:i:s.v')]);
        $number = 0;
        foreach ($lines as $sku => $quantity) {
            execute($db, 'INSERT INTO order_items (order_id, line_no, sku_id, quantity) VALUES (?, ?, ?, ?)', [$o['id'], ++$number, $sku, $quantity]);
            if (execute($db, 'UPDATE stock SET available = available - ?, reserved = reserved + ? WHERE sku_id = ? AND available >= ?',
                [$quantity, $quantity, $sku, $quantity]) !== 1) {
                throw new RuntimeException("not enough of $sku");
            }
        }
        execute($db, 'INSERT INTO outbox_schedules (order_id, payload, created_at) VALUES (?, ?, UTC_TIMESTAMP(3))', [$o['id'], payload($o)]);
    });
}

// Whether a request of orderclose has a right signature: its headers webhook-id, webhook-timestamp and webhook-signature. $body is
// file_get_contents('php://input').
function verified(string $secret, string $id, string $timestamp, string $signatures, string $body): bool
{
    if (!preg_match('/^[0-9]{1,12}$/D', $timestamp) || abs(time() - (int) $timestamp) > 300) {
        return false;
    }
    $key = base64_decode(substr($secret, strlen('whsec_')));
    $want = 'v1,' . base64_encode(hash_hmac('sha256', "$id.$timestamp.$body", $key, true));
    foreach (explode(' ', $signatures) as $signature) {
        if (hash_equals($want, $signature)) {
            return true;
        }
    }
    return false;
}

// One event, which may come again: its id is stored in the transaction of the work, in a table with a unique key on id.
function handle(PDO $db, string $message, callable $work): void
{
    $event = json_decode($message, true, 64, JSON_THROW_ON_ERROR);
    if ($event['type'] !== 'order.closed') {
        return;
    }
    inTransaction($db, function () use ($db, $event, $work): void {
        if (execute($db, 'INSERT IGNORE INTO handled_events (id) VALUES (?)', [$event['id']]) === 1) {
            $work($event['data']);
        }
    });
}

// For the test: record ID | verify SECRET ID TIMESTAMP SIGNATURES < body
if (PHP_SAPI === 'cli' && ($argv[1] ?? '') === 'record') {
    echo json_encode(record(newOrder($argv[2], 'virtual')), JSON_THROW_ON_ERROR), "\n";
} elseif (PHP_SAPI === 'cli' && ($argv[1] ?? '') === 'verify') {
    exit(verified($argv[2], $argv[3], $argv[4], $argv[5], stream_get_contents(STDIN)) ? 0 : 1);
}
